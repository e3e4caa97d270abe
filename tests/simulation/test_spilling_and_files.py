"""Goal: all ways to write channel state restore the same bytes, lose no file, and leave no unneeded file.

Method: run small jobs under all invariants with continuous spilling, with merged files and with incremental channel
state. INV-2 compares the persisted bytes of every channel with those that were sent and not processed. INV-7 reads the
files of the retained checkpoints, and looks for files that nothing needs. The in-flight data that each subtask copies
as if spilling were ad-hoc is compared with what the stored checkpoint restores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.errors import CorruptCheckpointError, PlanError
from backend.domain.failure import FailureReason
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.config import RuntimeConfig, change
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import ChannelState
from backend.runtime.network.channel import ChannelKey
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from backend.runtime.task import channel_writing
from backend.runtime.task.messages import DeclineMessage
from backend.runtime.task.spilling import SpillLogWriter
from tests.simulators.fault_plans import FILES, Case
from tests.simulators.storms import outcome_of
from tests.support.invariants import Watch
from tests.support.runtime_jobs import PROTOCOLS, STAYS, late_triggers, small_job

_CP = "execution.checkpointing."
_CONTINUOUS: dict[str, object] = {"runtime.spilling": "continuous", f"{_CP}file-merging.max-file-size": "4 kb"}
_MERGED: dict[str, object] = {f"{_CP}file-merging.enabled": True}
_ACROSS = _MERGED | {f"{_CP}file-merging.across-checkpoint-boundary": True}
_INCREMENTAL: dict[str, object] = {"runtime.incremental-channel-state": True}
_WAYS: dict[str, dict[str, object]] = {
    "continuous": _CONTINUOUS,
    "merged": _MERGED,
    "across": _ACROSS | {f"{_CP}file-merging.max-file-size": "20 kb"},
    "incremental": _INCREMENTAL,
    "incremental across": _INCREMENTAL | _ACROSS,
}
_UNTIL_US = 1_000_000


def _watched(protocol: str, seed: int, config: dict[str, object], **more: Any) -> Watch:
    spec = small_job(
        protocol,
        seed=seed,
        fuzz=seed,
        task_managers=1 + seed % 2,
        plan=tuple(late_triggers()),
        config=config | STAYS,
        **more,
    )
    watch = Watch(JobEngine(spec))
    watch.run_until(_UNTIL_US)
    return watch


@pytest.mark.parametrize("way", _WAYS)
def test_every_way_to_write_channel_state_persists_the_bytes_between_the_snapshots(way: str) -> None:
    persisted = 0
    for seed, protocol in enumerate(PROTOCOLS):
        watch = _watched(protocol, seed, _WAYS[way])
        assert watch.checked_checkpoints >= 8
        persisted += watch.checked_bytes
    assert persisted > 100_000


def test_a_log_restores_the_bytes_that_ad_hoc_spilling_would_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: defaultdict[int, dict[tuple[ChannelKey, bool], bytes]] = defaultdict(dict)
    write = SpillLogWriter.write

    def copying(self: SpillLogWriter, checkpoint_id: int, channels: ChannelState, *told: Callable[..., None]) -> Any:
        for is_input, side in ((True, channels.inputs), (False, channels.outputs)):
            for key, chunks in side.items():
                copied[checkpoint_id][key, is_input] = b"".join(map(bytes, chunks))
        return write(self, checkpoint_id, channels, *told)

    monkeypatch.setattr(SpillLogWriter, "write", copying)
    engine = JobEngine(small_job("unaligned", task_managers=2, record_bytes=700, config=_CONTINUOUS))
    compared = 0
    for at_us in range(100_000, _UNTIL_US, 50_000):
        engine.run_until(at_us)
        newest = engine.coordinator.newest
        if newest is None:
            continue
        read = read_checkpoint(newest.stored(engine.env.graph))
        restored: dict[ChannelKey, bytes] = {}
        for vertex in read.vertices.values():
            for subtask in vertex.subtasks:
                assert subtask.channels.inputs == {}
                restored |= {key: b"".join(map(bytes, c)) for key, c in subtask.channels.outputs.items()}
        sides = copied[newest.record.id]
        keys = {key for key, _ in sides}
        assert restored == {key: sides.get((key, True), b"") + sides.get((key, False), b"") for key in keys}
        compared += sum(map(len, restored.values()))
    assert compared > 50_000


def test_no_crash_breaks_an_invariant_whatever_the_files() -> None:
    drawn = (
        Case(protocol, kind, seed)
        for seed in range(40)
        for protocol, kind in (("unaligned", "storm"), ("capped", "store"), ("aligned-timeout", "rescaled-storm"))
    )
    cases = [case for case in drawn if FILES in case.options][:8]
    assert {case.options[FILES].get("runtime.spilling") for case in cases} == {None, "continuous"}
    for case in cases:
        outcome = outcome_of(case)
        assert outcome.problem is None, f"{case}: {outcome.problem}"


# --- what it costs ----------------------------------------------------------------------------------------------------


def _document(config: dict[str, object], protocol: str = "unaligned") -> dict[str, Any]:
    spec = small_job(protocol, parallelism=4, records=None, config=config | {f"{_CP}interval": "60 ms"})
    return simulate(spec, duration_us=1_500_000, is_size_only=True).to_json()


def _sum(document: dict[str, Any], figure: str) -> int:
    return sum(checkpoint["channel_state"][figure] for checkpoint in document["checkpoints"])


def test_continuous_spilling_writes_all_output_and_ad_hoc_only_what_was_overtaken() -> None:
    ad_hoc, continuous = _document({}), _document(_CONTINUOUS)

    assert ad_hoc["channel_files"]["written_bytes"] == _sum(ad_hoc, "written_bytes")
    assert _sum(ad_hoc, "written_bytes") == sum(c["persisted_bytes"] for c in ad_hoc["checkpoints"]) > 0
    assert _sum(continuous, "written_bytes") == 0
    sent = sum(sum(vertex["records_out"]) for vertex in continuous["vertices"]) * 120
    # Up to one unfinished buffer of each channel is not in the log yet.
    assert 0.9 * sent < continuous["channel_files"]["written_bytes"] <= sent + 37 * sent // 120
    assert continuous["channel_files"]["deleted"] > 0


def test_merged_files_are_fewer_and_reused_ones_fewest() -> None:
    own, merged, across = _document(_INCREMENTAL), _document(_MERGED), _document(_ACROSS)

    created = [document["channel_files"]["created"] for document in (own, merged, across)]
    assert created[0] > 2 * created[1] > 4 * created[2] > 0
    assert all(_sum(document, "new_files") == n for document, n in zip((own, merged, across), created, strict=True))


def test_data_that_does_not_move_is_written_once() -> None:
    slow = {f"{_CP}interval": "20 ms", **_INCREMENTAL}
    spec = small_job("unaligned", records=None, config=slow, keyed={"cost_us": 30_000})
    full = simulate(replace(spec, config=replace(spec.config, are_buffers_incremental=False)), duration_us=1_500_000)
    reused = simulate(spec, duration_us=1_500_000).to_json()

    assert _sum(reused, "written_bytes") < _sum(full.to_json(), "written_bytes") / 4
    for checkpoint in reused["checkpoints"]:
        figures = checkpoint["channel_state"]
        if checkpoint["status"] == "COMPLETED":
            assert figures["written_bytes"] + figures["reused_bytes"] == checkpoint["persisted_bytes"]


def test_a_file_of_which_too_little_is_needed_is_not_used_again() -> None:
    stored = {}
    for most in ("1", "1000"):
        config = _INCREMENTAL | _ACROSS | {f"{_CP}file-merging.max-space-amplification": most}
        watch = _watched("unaligned", 2, config | {f"{_CP}interval": "30 ms"}, records=None)
        stored[most] = watch.engine.env.channel_files.store.stored_bytes
    assert stored["1"] < stored["1000"] / 2


def test_files_of_size_only_runs_have_the_same_bytes() -> None:
    for config in (_CONTINUOUS, _INCREMENTAL | _ACROSS):
        spec = small_job("unaligned", records=None, config=config)
        engines = JobEngine(spec), JobEngine(spec, is_size_only=True)
        kept = []
        for engine in engines:
            engine.run_until(600_000)
            newest = engine.coordinator.newest
            assert newest is not None
            kept.append(newest.stored(engine.env.graph))
        assert engines[0].trace_hash == engines[1].trace_hash
        assert kept[0] == kept[1]
        assert any("segments" in kept[0].metadata.decode() for _ in kept)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failed_write_fails_the_writes_of_the_subtasks_that_share_the_file() -> None:
    plan = tuple(FaultSpec("store.write", hit=5, action=FaultAction.ERROR) for _ in range(40))
    engine = JobEngine(small_job("unaligned", parallelism=3, records=None, config=_MERGED, plan=plan))
    declined: list[DeclineMessage] = []
    on_decline = engine.coordinator.on_decline
    engine.coordinator.on_decline = lambda message: (declined.append(message), on_decline(message))[1]  # type: ignore[method-assign, return-value]
    engine.run_until(900_000)

    reasons = {message.reason for message in declined}
    assert {FailureReason.ASYNC_FAILURE, FailureReason.SHARED_STREAM_FAILURE} <= reasons


def _stored(config: dict[str, object]) -> StoredCheckpoint:
    engine = JobEngine(small_job("unaligned", records=None, config=config))
    engine.run_until(600_000)
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph)


@pytest.mark.parametrize("way", ["continuous", "across"])
def test_a_missing_damaged_or_short_file_is_refused_with_its_place(way: str) -> None:
    stored, spec = _stored(_WAYS[way]), small_job("unaligned", records=None)
    path = max(stored.files)
    content = stored.files[path]
    broken = {
        "missing": {name: data for name, data in stored.files.items() if name != path},
        "damaged": {**stored.files, path: bytes(byte ^ 1 for byte in content)},
        "missing ": {**stored.files, path: content[:10]},
    }
    for problem, files in broken.items():
        with pytest.raises(CorruptCheckpointError, match=problem.strip()) as refused:
            JobEngine(spec, restore=StoredCheckpoint(stored.metadata, files))
        error = refused.value
        assert (error.rule, error.part) == ("CK-3", path)
        assert any(f"of {vertex.id}/" in str(error) for vertex in spec.graph.vertices)
        assert error.fix == "restore another checkpoint or savepoint"
    assert read_checkpoint(stored).persisted_bytes > 0


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (_INCREMENTAL | _CONTINUOUS, "FM-5"),
        ({f"{_CP}file-merging.across-checkpoint-boundary": True}, "FM-2"),
    ],
)
def test_settings_that_have_no_effect_together_are_refused(config: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError) as refused:
        change(RuntimeConfig(), config)
    assert refused.value.rule == rule
    assert refused.value.fix is not None


def test_a_savepoint_has_no_segments() -> None:
    for config in (_CONTINUOUS, _ACROSS):
        engine = JobEngine(small_job("unaligned", records=None, config=config))
        engine.run_until(300_000)
        savepoint = engine.request_savepoint()
        engine.run_until(1_500_000)
        assert savepoint.checkpoint_id is not None
        stored = engine.savepoint(savepoint.checkpoint_id)
        assert stored is not None
        assert "segments" not in stored.metadata.decode()


def test_the_writer_of_a_subtask_is_one_of_three() -> None:
    found = {}
    for name, config in (("own", {}), ("log", _CONTINUOUS), ("shared", _MERGED)):
        engine = JobEngine(small_job("unaligned", config=config))
        engine.run_until(1)
        found[name] = {type(task.checkpointing.channel_state) for task in engine.tasks}
    assert found == {"own": {channel_writing.OwnFile}, "log": {SpillLogWriter}, "shared": {channel_writing.Segments}}
