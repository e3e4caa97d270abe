"""Goal: faults of every kind break no invariant, and the job continues after they stop (T-1, T-2).

Method: run the first seeds of ``make sim SEEDS=...`` (``tests/simulators/storms.py``), and the cases that
failed earlier. To replay one case: ``make sim SEEDS=1 ARGS='--replay unaligned/storm/17'``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from backend.runtime.job.faults import POINTS
from tests.simulators.fault_plans import (
    CONCURRENT,
    CONTINUED,
    EFFECTS,
    FROM_SAVEPOINT,
    IN_FLIGHT,
    KINDS,
    MODES,
    OPTIONS,
    Case,
)
from tests.simulators.storms import case_of, outcome_of
from tests.support.runtime_jobs import points_of

# These cases failed because of seven bugs, in this order. A checkpoint that was superseded by a cancelled checkpoint
# was never forgotten. A deletion that was interrupted by a crash was never finished. A barrier that was overtaken by
# a newer barrier changed the newer barrier's cut. A marker that arrived after its checkpoint was given up was not
# ignored. The last buffers of a finished subtask's log were written after the log was closed, and stayed. The events
# of a checkpoint that waited while ten newer ones failed were dropped. The log of a subtask that had finished before
# a restart was closed, although it sent the end of its data again.
_ONCE_FAILED = (
    "capped/messages/22/plain",
    "aligned/storm/389/plain",
    "capped/links/2007/plain",
    "chandy-lamport/store/31",
    "capped/storm/0",
    "unaligned/rescaled-messages/12270",
    "last-barrier/rescaled-pair/24501",
    # The oracle of continued runs missed a checkpoint that a crash kept from being reported.
    "at-least-once/pair/12",
)
_SEEDS = range(len(MODES) * len(KINDS))
# The position of each kind. A kind and its variant with a rescale are an odd number of positions apart, so that each
# of the two test halves runs one of them.
_PLACE = {kind: n for n, kind in enumerate(KINDS)}


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_no_kind_of_fault_breaks_an_invariant(half: int) -> None:
    struck: Counter[str] = Counter()
    for seed in _SEEDS:
        case = case_of(seed)
        # Each half combines every protocol with every kind of fault, either with a rescale or without one.
        if (MODES.index(case.protocol) + _PLACE[case.kind]) % 2 != half:
            continue
        outcome = outcome_of(case)
        assert outcome.problem is None, f"{outcome.case}: {outcome.problem}"
        struck += outcome.struck
    assert struck[FROM_SAVEPOINT] > 3
    assert struck[IN_FLIGHT] > 5
    assert struck[CONTINUED] > 5
    struck = Counter({n: count for n, count in struck.items() if n not in (*OPTIONS, *EFFECTS.values(), CONTINUED)})
    if half == 0:
        # There is one run for each protocol and kind. Together, these runs reach every group of failpoints.
        kinds = {point.partition(".")[0] for point in POINTS}
        assert {point.partition(".")[0] for point in struck} == kinds | {"rescale", "finish"}


@pytest.mark.parametrize("name", _ONCE_FAILED)
def test_a_case_that_once_failed_does_not_fail_again(name: str) -> None:
    assert outcome_of(Case.of(name)).problem is None


def test_seeds_cover_all_protocols_and_kinds_and_all_points_alone_and_in_pairs() -> None:
    cells = {(case.protocol, case.kind) for case in map(case_of, _SEEDS)}
    assert cells == {(protocol, kind) for protocol in MODES for kind in KINDS}
    points = points_of("aligned-timeout")
    alone = {Case("aligned-timeout", "alone", n).spec().faults for n in range(len(points))}
    assert {points_ for plan in alone for points_ in (f.point for f in plan)} >= set(points)
    later = set()
    for n in range(3 * len(points)):
        crashes = [f.point for f in Case("aligned-timeout", "pair", n).spec().faults if f.point in points]
        later |= {(crashes[0], crashes[-1])}
    assert len(later) >= 3 * len(points) - len(points) // 2


def test_each_option_that_is_off_by_default_is_drawn_in_at_least_a_twenty_fifth_of_the_runs() -> None:
    drawn = Counter(name for seed in range(1_000) for name in case_of(seed).options)
    assert {name: drawn[name] >= 40 for name in OPTIONS} == dict.fromkeys(OPTIONS, True), drawn
    case = next(case for case in map(case_of, _SEEDS) if CONCURRENT in case.options)
    assert case.spec().config.is_unaligned_concurrent
    plain = Case.of(f"{case}/plain")
    assert (str(plain), plain.options) == (f"{case}/plain", {})
    assert not plain.spec().config.is_unaligned_concurrent
