"""Goal: a job restarted at another parallelism loses and doubles nothing, whatever it is restarted from (RS-1 to RS-14).

Method: the jobs of ``tests/support/rescaled_jobs.py`` fill both edges, are stopped there and started again with other
parallelisms; the ledger must hold each record once and each key's counts 1..n. Every partitioner meets every kind of
checkpoint here, each with two of the changes of RS-13 in turn; ``RESCALE_SEEDS=n`` runs all of them for n seeds.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from backend.domain.errors import PlanError, ProtocolViolationError
from backend.runtime.graph import FaultSpec
from backend.runtime.jobfile import load_job_document
from backend.runtime.kernel import Engine
from backend.runtime.measures import TaskKey
from backend.runtime.prng import Stream
from backend.runtime.recovery import Recovery
from backend.runtime.task import TaskStatus
from tests.support.rescaled_jobs import (
    MODES,
    PARTITIONERS,
    RECORDS,
    TARGETS,
    filtered,
    finish,
    out_of_order,
    rescaled_job,
    run_rescaled,
    violations,
)

_SEEDS = int(os.environ.get("RESCALE_SEEDS", "0"))
_TURN = [(mode, partitioner) for mode in MODES for partitioner in PARTITIONERS]


def _changes(mode: str, partitioner: str) -> list[tuple[tuple[int, int], int]]:
    """(change of parallelism, seed)"""
    if _SEEDS:
        return [(pair, seed) for pair in TARGETS for seed in range(_SEEDS)]
    turn = _TURN.index((mode, partitioner))
    return [(TARGETS[(3 * turn + n) % len(TARGETS)], turn + n) for n in (0, 4)]


def _run(mode: str, partitioner: str, pair: tuple[int, int], seed: int) -> Engine:
    """The change in the middle; what is before and behind it changes otherwise, at the same time (RS-13)."""
    before, after = pair
    first = (before, before, before), {"source": after, "map": after, "keyed": after}
    other = (2, before, 3), {"source": 3, "map": after, "keyed": 2}
    parallelism, wanted = first if seed % 2 else other
    spec = rescaled_job(mode, partitioner, parallelism, seed=seed)
    return run_rescaled(spec, wanted, from_savepoint=mode == "savepoint")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_goes_on_exactly_once_at_another_parallelism(mode: str, partitioner: str) -> None:
    in_flight = 0
    for pair, seed in _changes(mode, partitioner):
        engine = _run(mode, partitioner, pair, seed)
        where = f"{mode}, {partitioner}, {pair}, seed {seed}"
        assert violations(engine) == [], where
        (rescale,) = engine.rescales
        assert rescale.restored_id is not None, where
        assert engine.restarts[-1].restored_id == rescale.restored_id, where
        assert engine.restart_count == 1, where
        assert {t.spec.id: t.spec.parallelism for t in engine.tasks}["map"] == pair[1], where
        assert all(task.status is TaskStatus.RUNNING for task in engine.tasks), where
        assert engine.coordinator.newest is not None, where
        assert engine.coordinator.newest.record.id > rescale.restored_id, where
        in_flight += rescale.persisted_bytes
    assert (in_flight > 0) == (mode not in ("aligned", "savepoint")), f"{mode}, {partitioner}: {in_flight}"
