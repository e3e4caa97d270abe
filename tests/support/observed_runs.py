"""Collect everything that can be observed in a run, to compare it with a run that must behave identically."""

from __future__ import annotations

from backend.domain.barriers import BarrierEvent
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine

_RUN_US = 1_000_000


def observed(
    spec: JobSpec, *, is_size_only: bool = False, is_stepwise: bool = False, looks: bool = False
) -> dict[str, object]:
    """Run the job for one second, and return its events, measurements, queues, state, stored checkpoints and output.

    With ``looks``, also stop at irregular times and read the figures of each subtask, which must not change the run.
    """
    engine = JobEngine(spec, keeps_rows=True, is_size_only=is_size_only, is_stepwise=is_stepwise)
    events: list[tuple[int, BarrierEvent]] = []
    engine.env.log.listener = lambda k, event: events.append((k, event))
    terminal = []
    engine.coordinator.on_terminal = terminal.append
    stored, queued = [], []
    for at_us in range(0, _RUN_US + 1, 100_000):
        while looks and engine.now_us + 7_919 < at_us:
            engine.run_until(engine.now_us + 7_919)
            queued_bytes = engine.queued_bytes, [t.totals for t in engine.tasks]
            assert queued_bytes == (engine.queued_bytes, [t.totals for t in engine.tasks])
        engine.run_until(at_us)
        newest = engine.coordinator.newest
        stored.append(newest and newest.stored(newest.record.graph))
        totals = [(t.name, t.totals, t.account.settle(engine.now_us)) for t in engine.tasks]
        queued.append((engine.queued_bytes, [t.gate.polled_bytes for t in engine.tasks], totals))
    return {
        "trace": (engine.trace_hash, engine.event_count, engine.restart_count),
        "events": events,
        "measured": [(r.id, r.state, r.end_to_end_us, {k: a.measured for k, a in r.acks.items()}) for r in terminal],
        "stored": stored,
        "queued": queued,
        "rows": engine.ledger.rows,
        "restarts": list(engine.restarts),
        "committed": (engine.ledger.committed_count, engine.ledger.table),
    }
