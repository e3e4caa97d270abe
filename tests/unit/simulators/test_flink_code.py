"""Tests of comparing our code with Flink's classes: recorded answers, and questions with different answers."""

from __future__ import annotations

import pytest

from tests.simulators import flink_code
from tests.simulators.flink_code import FlinksCode, differing


def test_only_questions_with_different_answers_are_shown_with_both_answers():
    assert differing(str.upper, ["a", "b"], ["A", "x"]) == ["b\nours  B\nFlink x"]


def test_a_missing_answer_is_an_error():
    with pytest.raises(AssertionError):
        differing(str.upper, ["a", "b"], ["A"])


def test_what_is_recorded_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(flink_code, "HARNESSES", tmp_path)
    monkeypatch.setattr(flink_code, "drive", lambda jars, harness, lines: [f"{harness} {line}" for line in lines])
    monkeypatch.setattr("sys.argv", ["record", str(tmp_path)])
    code = FlinksCode("Harness", "answers")

    code.record(["one", "two"])

    assert code.recorded() == (["one", "two"], ["Harness one", "Harness two"])
