"""Tests of the confidence of a verdict, and of its two lines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.analysis.verdict.draft import by_count, two_lines, weaker
from backend.domain.verdict import Confidence, VerdictKind


@pytest.mark.parametrize(
    ("count", "confidence"),
    [(0, Confidence.LOW), (1, Confidence.LOW), (2, Confidence.MEDIUM), (3, Confidence.HIGH), (9, Confidence.HIGH)],
)
def test_confidence_grows_with_the_number_of_observations(count, confidence):
    assert by_count(count) is confidence


@pytest.mark.parametrize("other", Confidence)
def test_the_weaker_of_two_confidences_counts(other):
    assert weaker(Confidence.LOW, other) is weaker(other, Confidence.LOW) is Confidence.LOW
    assert weaker(Confidence.HIGH, other) is weaker(other, Confidence.HIGH) is other


LEAD = "3 of the last 5 checkpoints failed"
HIGH, LOW = Confidence.HIGH, Confidence.LOW


@pytest.mark.parametrize(
    ("kind", "sure", "vertex", "reason", "headline", "detail"),
    [
        # The name of the vertex contains a colon.
        (VerdictKind.LATE_INPUT, HIGH, "Source: orders", "Source: orders is late: it waits",
         "Source: orders is late", f"{LEAD}: it waits."),
        (VerdictKind.SKEW, HIGH, "count", "count subtask 3 gets twice the records (key skew)",
         "count subtask 3 gets twice the records (key skew)", f"{LEAD}."),
        (VerdictKind.SYNC, HIGH, "count", "the sync part of count takes 4 s: the task is blocked",
         "The sync part of count takes 4 s", f"{LEAD}: the task is blocked."),
        (VerdictKind.CAPACITY, LOW, "count", "count is at capacity: it is busy",
         "Probable cause: count is at capacity", f"{LEAD}: it is busy."),
        (VerdictKind.FAILING_SUBTASK, HIGH, "sink",
         'sink subtask 1 did not acknowledge 2 of them ("IOException: full")',
         "sink subtask 1 did not acknowledge 2 of the checkpoints", f'{LEAD} ("IOException: full").'),
        (VerdictKind.FAILING_SUBTASK, HIGH, "sink", "sink subtask 1 did not acknowledge it",
         "sink subtask 1 did not acknowledge the checkpoint", f"{LEAD}."),
        (VerdictKind.UNDECIDED, LOW, None, "the cause is not known", LEAD, "The cause is not known."),
    ],
)  # fmt: skip
def test_a_headline_names_the_cause_and_the_line_below_it_the_effect(kind, sure, vertex, reason, headline, detail):
    case = SimpleNamespace(lead=LEAD, is_suffering=True)

    assert two_lines(case, kind, sure, reason, vertex) == (headline, detail)


def test_the_headline_of_a_job_that_does_not_suffer_is_its_state():
    case = SimpleNamespace(lead="Checkpoints are healthy at 200 ms", is_suffering=False)

    found = two_lines(case, VerdictKind.CAPACITY, HIGH, "count is at capacity: it is busy", "count")
    assert found == ("Checkpoints are healthy at 200 ms", "But count is at capacity: it is busy.")
    found = two_lines(case, VerdictKind.NONE, HIGH, "nothing holds the barrier", None)
    assert found == ("Checkpoints are healthy at 200 ms", "Nothing holds the barrier.")
