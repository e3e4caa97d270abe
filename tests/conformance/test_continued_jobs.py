"""Jobs of every protocol that end at a random moment and continue in another run keep all invariants over both.

The seed draws when the first run ends, whether the second begins from a checkpoint or a savepoint, and how its job
differs: in its parallelism, with one operator more or one less. A change is refused by the rule of the specification,
or it is permitted, and nothing else (RS-11, GR-2, FN-18, CO-8). ``tests/simulators/continued_runs.py`` has the runs.
The storms continue a quarter of theirs in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.core.prng import Stream
from backend.runtime.engine import handover
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Partitioner
from backend.runtime.operators.storage import OutsideState
from backend.runtime.snapshot.completed import Completed
from backend.runtime.snapshot.saved import Handover
from tests.simulators import broken_restarts
from tests.simulators.continued_runs import Change, Continued, Origin, run_continued
from tests.simulators.fault_plans import AT_LEAST_ONCE, MODES, OF_AT_LEAST_ONCE
from tests.support.rescaled_jobs import RECORDS, rescaled_job
from tests.support.runtime_jobs import small_job

_INCREMENTAL: dict[str, object] = {"runtime.state-backend": "sst", "execution.checkpointing.incremental": True}
_MERGED: dict[str, object] = {"execution.checkpointing.file-merging.enabled": True}
_FORCED: dict[str, object] = {
    "execution.checkpointing.unaligned.forced": True,
    "runtime.finish-protocol": "none",
}
_QUICK, _SLOW = 5, 60
_PARTITIONERS = ("hash", "rebalance", "shuffle", "global")


def _job(protocol: str, seed: int) -> JobSpec:
    draws = Stream(seed, f"job of {protocol}")
    config = dict(OF_AT_LEAST_ONCE) if protocol == AT_LEAST_ONCE else {}
    config |= ({}, _INCREMENTAL, _MERGED)[draws.below(3)]
    if draws.below(2):
        # Both runs commit within the job, and the tasks do not finish, so that no change is refused by FN-18.
        config["runtime.finish-protocol"] = "none"
    parallelism = 1 + draws.below(3), 1 + draws.below(3), 1 + draws.below(3)
    return rescaled_job(protocol, _PARTITIONERS[draws.below(len(_PARTITIONERS))], parallelism, seed=seed, config=config)


def _continued(protocol: str, seed: int, origin: Origin | None = None) -> Continued | None:
    is_exact = protocol != AT_LEAST_ONCE
    draws = Stream(seed, f"continued {protocol}")
    return run_continued(_job(protocol, seed), records=RECORDS, is_exact=is_exact, draws=draws, origin=origin)


def test_every_invariant_holds_over_a_job_and_the_one_that_continues_it() -> None:
    """The seeds reach each kind of origin and change, with data in flight and without, and a refusal."""
    runs = (_continued(protocol, seed) for protocol in MODES for seed in range(_QUICK))
    found = [each for each in runs if each is not None]
    assert len(found) > len(MODES) * _QUICK * 0.8
    counts = Counter[object](each.origin for each in found) + Counter[object](each.change for each in found)
    assert {name: counts[name] >= 2 for name in (*Origin, *Change)} == dict.fromkeys((*Origin, *Change), True)
    assert sum(each.is_unaligned for each in found) >= 3
    assert sum(each.is_unaligned and each.is_rescaled for each in found) >= 2
    assert {rule for each in found for rule in each.refused} >= {"GR-2"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MODES)
def test_every_invariant_holds_over_many_jobs_and_those_that_continue_them(protocol: str) -> None:
    refused: set[str] = set()
    for seed in range(_QUICK, _SLOW):
        found = _continued(protocol, seed)
        refused |= set() if found is None else set(found.refused)
    assert refused <= {"GR-2", "FN-18"}


def test_a_pointwise_edge_with_data_in_flight_is_not_rescaled_by_a_continuation() -> None:
    refused = Counter[str]()
    for seed in range(8):
        spec = small_job("unaligned", seed=seed, records=240, config=_FORCED)
        first, second = spec.graph.edges
        graph = replace(spec.graph, edges=(replace(first, partitioner=Partitioner.RESCALE), second))
        found = run_continued(
            replace(spec, graph=graph), records=240, is_exact=True, draws=Stream(seed, "x"), origin=Origin.CHECKPOINT
        )
        refused.update(() if found is None else found.refused)
    assert refused["RS-11"] >= 1


# --- what the runs must find --------------------------------------------------------------------------------------


def _forgets_the_output(patch: pytest.MonkeyPatch) -> None:
    begin = handover.JobEngine

    def begun(*arguments: Any, handover: Handover, **options: Any) -> JobEngine:
        return begin(*arguments, handover=replace(handover, outside=OutsideState()), **options)

    patch.setattr("backend.runtime.engine.handover.JobEngine", begun)


def _begins_behind_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    def kept(engine: JobEngine, checkpoint_id: int) -> Completed:
        every = (*engine.coordinator.completed, *engine.coordinator.savepoints.values())
        return next(each for each in every if each.record.id == checkpoint_id)

    patch.setattr("tests.simulators.continued_runs.kept_checkpoint", kept)


_BROKEN: Mapping[Callable[[pytest.MonkeyPatch], None], int] = {
    broken_restarts.do_not_filter: 10,
    broken_restarts.give_channel_state_to_the_wrong_subtask: 1,
    broken_restarts.restore_the_last_chunk_first: 1,
    broken_restarts.leave_moved_keys_behind: 0,
    broken_restarts.deal_splits_out_twice: 0,
    _forgets_the_output: 0,
    _begins_behind_what_is_committed: 3,
}
"""Each fault of the restoring code, with a seed that finds it. If the draws change, another seed finds it too."""


@pytest.mark.parametrize("breaks", _BROKEN, ids=lambda breaks: breaks.__name__.strip("_"))
def test_a_broken_continuation_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in (_BROKEN[breaks], *range(30)):
            _continued("unaligned", seed)
