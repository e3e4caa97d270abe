"""Goal: the cut that is checked from the trace is consistent for every protocol, and a broken protocol is found.

Method: small jobs run, also with crashes, so that channel state is restored. The check reads only the barrier events of
each completed checkpoint, as the space-time diagram does.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.measures.cut import CutCheck, check_cut
from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.domain.cut import CutError, CutState
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import CheckpointState
from tests.simulators import broken_markers, broken_protocols
from tests.simulators.fault_plans import OF_AT_LEAST_ONCE
from tests.support.runtime_jobs import PROTOCOLS, late_triggers, small_job

_CRASH = (FaultSpec("coordinator.between-notifies", hit=8),)


def _checks(spec: JobSpec, until_us: int = 1_500_000) -> list[CutCheck]:
    """Run a job, and check the cut of each checkpoint that completed."""
    engine = JobEngine(replace(spec, config=replace(spec.config, history_size=200)))
    engine.run_until(until_us)
    checks = []
    for record in engine.coordinator.history:
        events = engine.barriers(record.id)
        assert events is not None
        if record.state is CheckpointState.COMPLETED:
            checks.append(check_cut(events, is_completed=True))
    return checks


def _job(protocol: str, seed: int, config: dict[str, object] | None = None, crash: bool = False) -> JobSpec:
    return small_job(
        protocol,
        seed=seed,
        fuzz=1 + seed,
        task_managers=1 + seed % 2,
        record_bytes=(700, 1500)[seed % 2],
        plan=(*(_CRASH if crash else ()), *late_triggers()),
        config=config or {},
        parallelism=2 + seed % 2,
    )


@pytest.mark.parametrize("crash", [False, True], ids=["plain", "restored"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_cuts_consistently(protocol: str, crash: bool) -> None:
    for seed in (1, 2):
        checks = _checks(_job(protocol, seed, crash=crash))
        assert len(checks) > 2
        assert {c.state for c in checks} == {CutState.CONSISTENT}, f"seed {seed}: {checks}"
        assert all(c.checked_count == c.channel_count > 0 for c in checks)


def test_restored_channel_state_is_in_the_trace_and_not_taken_for_data_of_the_sender() -> None:
    engine = JobEngine(_job("unaligned", 1, crash=True))
    restored: dict[int, int] = {}

    def happened(checkpoint_id: int, event: BarrierEvent) -> None:
        if event.kind is BarrierEventKind.RESTORED_BEFORE_SNAPSHOT:
            restored[checkpoint_id] = restored.get(checkpoint_id, 0) + (event.size_bytes or 0)

    engine.env.log.listener = happened
    engine.run_until(1_500_000)
    assert engine.restart_count > 0
    assert restored
    assert min(restored.values()) > 0


_BROKEN = {
    "aligned, no channel is blocked": (broken_protocols.do_not_block, "aligned", {}),
    "aligned, the barrier is late": (broken_protocols.forward_one_record_late, "aligned", {}),
    "unaligned, state at the last barrier": (broken_protocols.snapshot_at_the_last_barrier, "unaligned", {}),
    "unaligned, output is forgotten": (broken_protocols.forget_the_overtaken_output, "unaligned", {}),
    "unaligned, a partial record is forgotten": (broken_protocols.forget_the_partial_record, "unaligned", {}),
    "unaligned, a buffer is persisted twice": (broken_protocols.persist_the_polled_buffer, "unaligned", {}),
    **{f"markers, {name}": (v.breaks, v.protocol, v.config) for name, v in broken_markers.VARIANTS.items()},
}


@pytest.mark.parametrize("name", _BROKEN)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, protocol, config = _BROKEN[name]
    breaks(monkeypatch)
    found = [p for seed in range(3) for c in _checks(_job(protocol, seed, config)) for p in c.problems]
    assert found, "the cut of every checkpoint looks consistent"
    assert all(p.size_bytes > 0 for p in found)


def test_a_late_barrier_lets_data_cross_the_cut_or_be_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_markers.snapshot_at_the_last_marker(monkeypatch)
    checks = [c for seed in range(3) for c in _checks(_job("chandy-lamport", seed))]
    errors = {p.error for c in checks for p in c.problems}
    assert errors & {CutError.BACKWARDS, CutError.REPEATED}
    assert CutError.LOST not in errors


def test_at_least_once_reports_the_data_that_would_be_repeated() -> None:
    checks = [c for seed in range(3) for c in _checks(_job("aligned", seed, OF_AT_LEAST_ONCE))]
    assert CutState.INCONSISTENT in {c.state for c in checks}
    assert {p.error for c in checks for p in c.problems} == {CutError.BACKWARDS}
