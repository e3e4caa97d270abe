"""Goal: the verdict names the drawn cause of a job, at its place, and accuses nothing in a healthy job.

Unaligned checkpoints are not advised where they do not cure the cause.

Method: a job of the reference runtime is drawn with a known cause, runs in virtual time and is polled like a live
target. These few jobs are the everyday part; ``make culprits`` draws more. To replay one job:
python -m tests.simulators.culprits --replay commit/102
"""

from __future__ import annotations

import pytest

from backend.advisor import advise
from backend.advisor.advice import Advice
from backend.domain.advice import Mode, Topic
from backend.domain.engines import RUNTIME
from backend.domain.verdict import VerdictKind
from tests.simulators import culprits_described
from tests.simulators.culprits import outcome_of, report, watched

_NAMES = (
    # Once called a lack of capacity: the commit holds the sink all the time.
    "commit/102",
    # Once called a lack of capacity: readings are too far apart to show that the vertex stands still.
    "callback/100/intermittent",
    # Once called a lack of capacity: the callback holds back the source, whose rate changes.
    "callback/50000",
    # The same: two readings are apart by the callback and the time in which the vertex catches up.
    "callback/92000/intermittent",
    # Of four subtasks, one was named: the barriers waited above the vertex, which it holds back.
    "callback/92000",
    "stuck_sync/100",
    "coordinator/100",
    "slow_host/100",
    "restarts/100",
    "replay/100",
    "capacity/100",
    "healthy/1000",
)
_CURED_BY_NO_MODE = frozenset(
    {
        VerdictKind.SYNC,
        VerdictKind.CALLBACK,
        VerdictKind.COMMIT,
        VerdictKind.COORDINATOR,
        VerdictKind.REPLAY,
        VerdictKind.RESTARTS,
        VerdictKind.NONE,
    }
)
# For these, a mode is advised, and the card says first what stays as it is.
_STAYS = {VerdictKind.SLOW_HOST: "the slow host:", VerdictKind.CAPACITY: "the lack of capacity of"}


@pytest.mark.anyio
@pytest.mark.parametrize("name", _NAMES)
async def test_the_verdict_names_the_drawn_cause_and_the_advice_promises_no_cure_by_a_mode(name):
    job, evidence = await watched(name)
    found = outcome_of(name, job, evidence)

    assert found.is_first_right, found.diagnosis.verdict.sentence
    assert not found.is_sure_and_wrong
    assert found.is_health_right, found.diagnosis.health
    assert report([found])
    # The same evidence, as if fewer than three failures were known: the rules choose, and not a simulation.
    advice = advise(evidence, engine=RUNTIME, version=None)
    (cause,) = job.causes
    proposed = _proposed_mode(advice)
    if cause.kind in _CURED_BY_NO_MODE:
        assert proposed in (None, Mode.ALIGNED), advice.recommendations
    elif cause.kind in _STAYS:
        # Barriers overtake the queues in front of the slow subtasks, and those stay slow.
        assert proposed is Mode.ALIGNED_WITH_TIMEOUT, advice.silences
        (card,) = [r for r in advice.recommendations if r.topic is Topic.MODE]
        assert card.will_not_cure[0].startswith(_STAYS[cause.kind])
    else:
        pytest.fail(f"nothing is expected of the mode for {cause.kind}")


@pytest.mark.parametrize(
    "name", ["jobmanager-stands-still", "ended transactions", "lost hosts", "own code, one lost host"]
)
def test_no_sentence_of_high_confidence_on_a_drawn_variant_of_a_described_job_is_wrong(name):
    """``test_public_cases_drawn`` draws more of the families that have a case of their own."""
    found = culprits_described.judged(name, 100)

    assert found.wrong == "", found.sentence
    assert "wrong sentences of high confidence: 0" in culprits_described.report([found])


@pytest.mark.parametrize(("wrong", "is_sure", "count"), [("", True, 0), ("store", False, 0), ("store", True, 1)])
def test_the_table_counts_what_is_wrong_and_of_high_confidence(wrong, is_sure, count):
    told = culprits_described.Described("coordinator", wrong, is_sure, "It is so.")

    assert f"wrong sentences of high confidence: {count}" in culprits_described.report([told])


def _proposed_mode(advice: Advice) -> Mode | None:
    return next((r.proposed.mode for r in advice.recommendations if r.topic is Topic.MODE), None)
