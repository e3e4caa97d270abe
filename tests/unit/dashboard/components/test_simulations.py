"""Tests of the sentences that compare two simulated runs."""

from __future__ import annotations

import pytest

from dashboard import text
from dashboard.components.simulations import compared, sentence
from tests.support.api_examples import example

_LONGER = ("longer", "shorter")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (4_000, 40, "100 times shorter"),
        (40, 4_000, "100 times longer"),
        (100, 150, "50 % longer"),
        (100, 60, "40 % shorter"),
        (100, 103, "about equal"),
        (0, 0, "equal"),
        (0, 158, "158 ms longer"),
        (158, 0, "158 ms shorter"),
        (None, 10, "cannot be compared"),
    ],
)
def test_a_difference_has_plain_words(first, second, words):
    assert compared(first, second, text.duration, _LONGER) == words


@pytest.mark.parametrize(("count", "words"), [(0, "in flight."), (1, "restored once."), (3, "restored 3 times.")])
def test_the_sentence_says_that_a_job_was_restored(count, words):
    one = example("simulation").runs[0].model_copy(update={"restart_count": count, "persisted_max_bytes": 5_000})

    assert sentence([one], ["Aligned"]).endswith(words)
