"""The confidence of a verdict."""

from __future__ import annotations

import pytest

from backend.analysis.verdict_draft import by_count, weaker
from backend.domain.verdict import Confidence


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
