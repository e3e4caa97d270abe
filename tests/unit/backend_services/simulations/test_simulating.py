"""The result of a simulation has what the runtime measured, and is the same for the same request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.assembling import EVIDENCE_COUNT
from backend.analysis.measures.evidence import JobEvidence
from backend.contracts.simulations import SimulationIn
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.cut import CutState
from backend.domain.errors import TooLargeError
from backend.domain.verdict import Basis, Verdict
from backend.runtime.engine.simulate import simulate
from backend.services.simulations import simulating
from backend.services.simulations.catalog import LIMITS, catalog, plan
from backend.services.simulations.simulating import Progress, SimulationStoppedError, run, unpacked

_REQUEST = SimulationIn(
    shape="backpressured",
    protocol="aligned",
    second_protocol="unaligned",
    duration_s=12.0,
    settings={"execution.checkpointing.interval": "2 s", "execution.checkpointing.timeout": "20 s"},
)

_OFTEN = {"execution.checkpointing.interval": "2 s"}


@pytest.fixture(scope="module")
def result():
    return run(_REQUEST, Progress())


def test_a_run_measures_what_the_command_simulate_measures(result):
    for planned, found in zip(plan(_REQUEST), result.runs, strict=True):
        wanted = simulate(planned.spec, duration_us=12_000_000, is_size_only=True).to_json()

        assert found.trace_hash == wanted["trace_hash"]
        ended = [c for c in found.checkpoints if c.status is not CheckpointStatus.IN_PROGRESS]
        assert ended, found.protocol
        assert [(c.checkpoint_id, c.persisted_bytes, c.acknowledged_count) for c in ended] == [
            (c["id"], c["persisted_bytes"], c["acknowledged"]) for c in wanted["checkpoints"]
        ]
        longest = {c["id"]: c["start_delay_max_us"] // 1000 for c in wanted["checkpoints"]}
        assert {c.checkpoint_id: c.start_delay_max_ms for c in ended} == longest


def test_the_same_request_gives_the_same_result(result):
    assert run(_REQUEST, Progress()) == result


def test_the_verdict_uses_as_many_earlier_checkpoints_as_that_of_a_collected_one(monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    judge = simulating.checkpoint_verdict

    def noted(checkpoint: Checkpoint, evidence: JobEvidence) -> Verdict:
        seen.append(len([c for c in evidence.checkpoints if c is not checkpoint]))
        return judge(checkpoint, evidence)

    monkeypatch.setattr(simulating, "checkpoint_verdict", noted)
    often = {"execution.checkpointing.interval": "200 ms"}
    run(_REQUEST.model_copy(update={"second_protocol": None, "protocol": "unaligned", "settings": often}), Progress())

    assert seen[:3] == [0, 1, 2]
    assert max(seen) == EVIDENCE_COUNT


def test_an_open_checkpoint_has_no_duration(result):
    last = result.runs[0].checkpoints[-1]

    assert (last.status, last.end_to_end_duration_ms) == (CheckpointStatus.IN_PROGRESS, None)


def test_the_phases_of_a_checkpoint_that_some_subtasks_did_not_acknowledge_are_lower_bounds(result):
    found = [c for r in result.runs for c in r.checkpoints]

    assert {c.is_lower_bound for c in found} == {True, False}
    for c in found:
        is_partly = c.status is not CheckpointStatus.COMPLETED and c.acknowledged_count < c.subtask_count
        assert c.is_lower_bound == is_partly, c.checkpoint_id


def test_each_checkpoint_has_its_subtasks_and_its_measured_barrier_events(result):
    stored = [unpacked(c.document) for c in result.checkpoints]
    unaligned = [s for s in stored if s.checkpoint.run_id == "unaligned" and s.checkpoint.status == "completed"]

    assert {s.checkpoint.link for s in stored} == {c.link for r in result.runs for c in r.checkpoints}
    assert all([len(v.subtasks) for v in s.checkpoint.vertices] == [4, 4, 4] for s in stored)
    assert {s.barriers.basis for s in stored} == {Basis.MEASURED}
    assert any(e.kind == "overtook" and e.channel is not None for s in unaligned for e in s.barriers.events)
    times = [e.at_ms for e in stored[0].barriers.events]
    assert times == sorted(times)


def test_without_room_for_barrier_events_they_are_reconstructed_and_say_so(monkeypatch):
    monkeypatch.setattr(simulating, "EVENTS_MAX", 0)
    found = unpacked(run(_REQUEST, Progress()).checkpoints[0].document)

    assert found.barriers.basis is Basis.RECONSTRUCTED
    assert found.barriers.note is not None
    assert not found.checkpoint.has_barriers
    assert found.space_time is not None
    assert found.space_time.basis is Basis.RECONSTRUCTED
    assert "a simulation keeps at most" in found.space_time.note


@pytest.mark.parametrize("name", [p.name for p in catalog().protocols])
def test_each_protocol_has_a_space_time_diagram_whose_cut_is_checked(name):
    request = SimulationIn(shape="healthy", protocol=name, parallelism=2, duration_s=6.0, settings=_OFTEN)
    done = run(request, Progress())
    stored = [unpacked(c.document) for c in done.checkpoints]
    completed = [s for s in stored if s.checkpoint.status is CheckpointStatus.COMPLETED]

    assert completed
    assert done.runs[0].processed_records
    for found in completed:
        assert found.space_time is not None
        assert found.space_time.basis is Basis.MEASURED
        assert len(found.space_time.lanes) == 6
        assert len(found.space_time.arrows) == 8
        assert found.space_time.cut.state is CutState.CONSISTENT or name == "at-least-once"


def test_a_diagram_of_many_subtasks_is_folded_but_for_one_vertex():
    request = SimulationIn(shape="healthy", protocol="aligned", parallelism=21, duration_s=2.5, settings=_OFTEN)
    diagram = unpacked(run(request, Progress()).checkpoints[0].document).space_time

    assert diagram is not None
    assert diagram.is_folded
    assert sum(lane.subtask is not None for lane in diagram.lanes) >= 21


def test_an_incremental_checkpoint_writes_less_than_its_state():
    request = SimulationIn(shape="large-kv", protocol="incremental-diff", duration_s=12.0)
    sizes = [(c.checkpointed_size_bytes, c.full_state_size_bytes) for c in run(request, Progress()).runs[0].checkpoints]

    assert sizes[0][0] == sizes[0][1]
    assert sizes[1][0] < sizes[1][1]


def test_a_bounded_job_ends_and_only_the_final_checkpoints_commit_its_last_records():
    request = SimulationIn(shape="bounded", protocol="finish-revised", second_protocol="finish-legacy", duration_s=60.0)
    revised, legacy = run(request, Progress()).runs

    assert (revised.status, revised.committed_records) == ("FINISHED", 15_000)
    assert (legacy.status, legacy.processed_records) == ("FINISHED", 15_000)
    assert legacy.committed_records < 15_000


def test_a_stopped_simulation_ends_early():
    with pytest.raises(SimulationStoppedError):
        run(_REQUEST, Progress(is_stopped=True))


def test_a_simulation_that_needs_too_much_cpu_time_is_refused_with_the_limit():
    seconds = iter(range(1000))
    with pytest.raises(TooLargeError, match="more than 5 s of CPU time"):
        run(_REQUEST, Progress(), replace(LIMITS, cpu_max_s=5.0), lambda: float(next(seconds)))


def test_a_result_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(simulating, "_BYTES_MAX", 2**10)
    with pytest.raises(TooLargeError, match="its result"):
        run(_REQUEST, Progress())


def test_the_progress_covers_both_runs():
    progress, seen = Progress(), []

    run(_REQUEST, progress, LIMITS, lambda: float(seen.append(progress.ratio) or 0))
    assert seen[1:] == sorted(seen[1:])
    assert any(0 < ratio < 0.5 for ratio in seen)
    assert progress.ratio == 1.0


def test_a_partly_finished_job_is_restored_from_a_checkpoint_of_the_rest_if_checkpoints_continue_after_the_first_end():
    asked = SimulationIn(
        shape="partly-finished", protocol="finish-revised", second_protocol="finish-legacy", duration_s=60.0
    )
    revised, legacy = run(asked, Progress()).runs

    assert (revised.status, revised.restart_count, revised.committed_records) == ("FINISHED", 1, 6_000)
    assert revised.failed_count == 0
    assert (legacy.completed_count, legacy.restart_count) == (1, 1)
    assert legacy.committed_records < 1_000
