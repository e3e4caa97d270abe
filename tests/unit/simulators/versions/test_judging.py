"""Right, open and wrong verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.judging import Judged, Outcome, judged, worse

BY_NAME = {job.name: job for job in JOBS}
CAPACITY = BY_NAME["sql-aggregation"]
CALM = BY_NAME["calm"]


def diagnosis(
    kind: str, vertex: str | None = None, *, health: str = "slow", confidence: str = "high"
) -> dict[str, Any]:
    verdict = {"kind": kind, "vertex": vertex, "subtasks": [], "confidence": confidence, "sentence": "a sentence"}
    return {"job": "a job", "health": health, "verdict": verdict}


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (diagnosis("capacity", "GroupAggregate[3] -> Calc"), Outcome.RIGHT),
        (diagnosis("capacity", "Source: orders"), Outcome.WRONG),
        (diagnosis("late-input", "Source: orders"), Outcome.WRONG),
        (diagnosis("none"), Outcome.WRONG),
        (diagnosis("undecided"), Outcome.NOT_DECIDED),
        (diagnosis("none", health="too-few"), Outcome.NOT_DECIDED),
        (None, Outcome.UNREAD),
    ],
)
def test_a_verdict_is_right_only_if_it_names_the_kind_and_the_vertex_that_were_built(told, outcome):
    assert judged(CAPACITY, told).outcome is outcome


def test_a_healthy_job_with_another_health_is_wrong_even_if_no_cause_is_named():
    assert judged(CALM, diagnosis("none", health="healthy")).outcome is Outcome.RIGHT
    found = judged(CALM, diagnosis("none", health="failing"))
    assert (found.outcome, found.why) == (Outcome.WRONG, "failing, built was healthy")
    assert found.is_wrong_and_sure


def test_of_two_verdicts_the_worse_one_and_then_the_surer_one_counts():
    right = Judged("j", Outcome.RIGHT, "high")
    unsure, sure = Judged("j", Outcome.WRONG, "low"), Judged("j", Outcome.WRONG, "high")

    assert worse(right, unsure) is worse(unsure, right) is unsure
    assert worse(unsure, sure) is worse(sure, unsure) is sure
