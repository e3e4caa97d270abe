"""Tests of the words for the states of a recommendation."""

from __future__ import annotations

import pytest

from backend.domain.advice import AdviceState


@pytest.mark.parametrize(
    ("held", "word"),
    [
        ((), "measured"),
        ((True,), "verified"),
        ((True, True), "verified"),
        ((True, False), "not as predicted"),
        ((False,), "not as predicted"),
    ],
)
def test_a_measured_change_is_called_verified_only_if_every_prediction_held(held, word):
    assert AdviceState.VERIFIED.word(held) == word


@pytest.mark.parametrize("state", [s for s in AdviceState if s is not AdviceState.VERIFIED])
def test_no_other_state_depends_on_the_predictions(state):
    assert state.word((False,)) == state.word() == state.value
