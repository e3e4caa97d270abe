"""Goal: an aligned and an unaligned checkpoint that cut the sources at the same place lead to the same output (T-12).

Method: until its first checkpoint, a job runs the same under every protocol. The first aligned, unaligned,
switched and capped checkpoints therefore contain the same offsets. The aligned checkpoint has in its state the
records that the unaligned ones contain as in-flight data. A new job starts from each checkpoint and continues
its ledger.

With one source and every edge hashed by key, the order of a key's records is fixed, so the ledgers must be
equal row by row. Otherwise, they must agree in each record and in each key's counts.
"""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.coordinator.coordinator import Completed
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.operators.state import OperatorSnapshot
from backend.runtime.operators.storage import Row
from tests.support.inside_jobs import take_over
from tests.support.runtime_jobs import PROTOCOLS

_RECORDS = 240
_AT = "execution.checkpointing.aligned-checkpoint-timeout"


def _job(protocol: str, *, seed: int, parallelism: int, sources: int) -> JobSpec:
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "150 ms",
        # The first trigger comes at a random time between the pause and the interval. With equal values, that time is
        # fixed.
        "execution.checkpointing.min-pause": "150 ms",
        "execution.checkpointing.timeout": "20 s",
        "taskmanager.memory.segment-size": 512,
        "runtime.task-managers": 1 + seed % 2,
        "runtime.fuzz-schedule": seed,
    }
    settings |= PROTOCOLS[protocol] | ({_AT: "10 ms"} if protocol == "aligned-timeout" else {})
    common: dict[str, Any] = {"parallelism": parallelism, "record_bytes": (60, 700)[seed % 2]}
    document = {
        "name": f"cut-{protocol}",
        "seed": seed,
        "config": settings,
        "vertex": [
            {"id": "source", "kind": "source", "keys": 12, "limit": _RECORDS, "cost_us": 50}
            | common
            | {"parallelism": sources},
            {"id": "map", "kind": "map", "cost_us": 300, **common},
            {"id": "keyed", "kind": "keyed+sink", "cost_us": 1500 * parallelism, **common},
        ],
        "edge": [{"from": a, "to": b, "partitioner": "hash"} for a, b in (("source", "map"), ("map", "keyed"))],
        "store": {"latency": "3 ms", "bytes_per_s": "20 mb"},
    }
    return load_job_document(document)


def _offsets(completed: Completed) -> list[OperatorSnapshot]:
    return [s.operators[0] for (v, _), s in sorted(completed.snapshots.items()) if v == 0]


def _continued(spec: JobSpec) -> tuple[list[Row], Completed]:
    """Run the job until its first checkpoint completes, and finish it in a new run from that checkpoint.

    Return the final ledger, and the checkpoint.
    """
    first = JobEngine(spec, keeps_rows=True)
    while first.coordinator.newest is None:
        first.run_until(first.now_us + 1_000)
    newest = first.coordinator.newest
    # The first run does not advance any more, so it commits nothing after the checkpoint.
    second = JobEngine(spec, keeps_rows=True, restore=newest.stored(newest.record.graph))
    take_over(second.ledger, first.ledger)
    while second.ledger.committed_count < _RECORDS and second.now_us < 30_000_000:
        second.run_until(second.now_us + 50_000)
    return second.ledger.rows, newest


@pytest.mark.parametrize(("parallelism", "sources", "seed"), [(1, 1, 3), (3, 1, 4), (2, 2, 5)])
def test_aligned_and_unaligned_cuts_at_the_same_place_lead_to_the_same_ledger(
    parallelism: int, sources: int, seed: int
) -> None:
    runs = {p: _continued(_job(p, seed=seed, parallelism=parallelism, sources=sources)) for p in PROTOCOLS}
    rows, cut = runs["aligned"]
    assert (len(rows), cut.record.persisted_bytes) == (_RECORDS, 0)
    for protocol, (other_rows, other) in runs.items():
        where = f"seed {seed}: {protocol} against aligned"
        assert _offsets(other) == _offsets(cut), f"{where}: the offsets differ, so that nothing can be compared"
        # With several sources, the records of a key arrive in any order, so records and counts are compared
        # separately.
        views = (lambda r: (r.origin, r.key), lambda r: (r.key, r.value), lambda r: (r.origin, r.key, r.value))
        for view in views[: 3 if sources == 1 else 2]:
            assert sorted(map(view, other_rows)) == sorted(map(view, rows)), where
    assert runs["unaligned"][1].record.persisted_bytes > 2_000, "nothing in flight: the cuts do not differ"
