"""Tests of the model check: its limit of states, its output and its exit codes."""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import Alignment
from tests.simulators.model_check import TooManyStatesError, explore, main
from tests.simulators.model_handlers import ModelError
from tests.simulators.model_job import World


def test_a_space_that_is_too_large_is_given_up() -> None:
    with pytest.raises(TooManyStatesError, match="more than 20"):
        explore(World(Alignment.ALIGNED, None, 2), most=20)


def test_a_state_that_breaks_an_invariant_is_printed_with_the_way_there_and_the_exit_code_is_1(monkeypatch, capsys):
    def broken(world: World) -> None:
        raise ModelError("INV-2: made up", ())

    monkeypatch.setattr(World, "check_end", broken)

    assert main(["--only", "aligned"]) == 1

    shown = capsys.readouterr().out
    assert shown.startswith("aligned: INV-2: made up")
    assert "trigger" in shown, "the steps that lead to the state"


def test_a_space_beyond_the_limit_is_reported_and_is_not_a_failure(capsys):
    assert main(["--only", "aligned", "--most", "50"]) == 0

    assert "more than 50 states, none of which breaks an invariant" in capsys.readouterr().out
