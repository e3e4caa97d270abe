"""Tests of the verdict's card: its sentence, its evidence, and the effect of the last subtask."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from backend.contracts import api
from backend.contracts.causes import CriticalPathOut
from backend.domain.verdict import Basis, Confidence, Health, VerdictKind
from dashboard.components import status, verdict
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi


@pytest.fixture(scope="module")
def expired() -> api.CheckpointDetailOut:
    return FakeApi(now=lambda: datetime(2026, 11, 21, 8, 0, tzinfo=UTC)).jobs["jE"].checkpoints[-1]


def test_the_card_begins_with_the_sentence_and_names_vertex_subtasks_host_phase_and_confidence(expired):
    shown = texts(verdict.verdict_card(expired.verdict))

    assert shown.startswith(expired.verdict.sentence)
    for word in (
        "vertex at capacity",
        "slow-stage-2 -> sink: Writer",
        "taskmanager-1",
        "start delay",
        "high confidence",
    ):
        assert word in shown


def test_a_verdict_with_a_headline_shows_it_and_the_rest_below(expired):
    told = expired.verdict.model_copy(update={"headline": "sink is at capacity", "detail": "Checkpoints take 4 s."})

    shown = texts(verdict.verdict_card(told))

    assert shown.startswith("sink is at capacity Checkpoints take 4 s.")
    assert expired.verdict.sentence not in shown


@pytest.mark.parametrize(("has_barriers", "is_linked"), [(True, True), (False, False)])
def test_the_card_links_the_page_of_the_cause_which_is_about_barriers(expired, has_barriers, is_linked):
    engine = expired.capabilities.model_copy(update={"has_barriers": has_barriers})

    card = json.dumps(verdict.verdict_card(expired.verdict, engine=engine), default=lambda c: c.to_plotly_json())

    assert ('"href": "/ui/causes/capacity"' in card) is is_linked


def test_evidence_has_its_value_and_where_the_value_is_from(expired):
    shown = texts(verdict.evidence_table(expired.verdict))

    assert "all four subtasks of slow-stage-2 are busy 99 %" in shown
    assert "measured" not in shown
    assert "11 ms reconstructed" in shown


def test_a_statement_without_a_number_shows_none(expired):
    told = api.EvidenceOut(statement="last in 11 of 11", metric="ack", basis=Basis.MEASURED)
    shown = texts(verdict.evidence_table(expired.verdict.model_copy(update={"evidence": [told]})))

    assert shown.endswith("last in 11 of 11")


@pytest.mark.parametrize(
    ("without_ms", "says"), [(2_700, "2.7 s instead of 7.9 s (reconstructed)"), (7_899, "still 7.9 s (reconstructed)")]
)
def test_without_a_named_vertex_the_effect_of_the_last_subtask_is_shown(expired, without_ms, says):
    path = CriticalPathOut(
        steps=[], last_vertex="slow", last_subtask=3, without_last_ms=without_ms, last_in="last in 11 of 11"
    )

    nothing = expired.verdict.model_copy(update={"vertex": None, "subtasks": []})
    found = texts(verdict.effects(path, 7_900, nothing))

    assert f"Without slow subtask 3: {says}" in found
    assert "slow subtask 3 was last in 11 of 11" in found


def test_the_effect_is_that_of_the_subtasks_that_the_verdict_names(expired):
    path = CriticalPathOut(steps=[], last_vertex="sink", last_subtask=0, without_last_ms=14_100)
    named = expired.verdict.model_copy(update={"vertex": "clean", "subtasks": [2]})

    assert verdict.effects(path, 14_100, named) == []
    found = texts(verdict.effects(path.model_copy(update={"kept_pace_ms": 1_260}), 14_100, named))
    assert "If clean subtask 2 had kept pace with the others: 1.3 s instead of 14.1 s (reconstructed)" in found
    assert "sink" not in found


def test_an_undecided_verdict_names_what_is_needed_and_is_not_alarming():
    undecided = api.VerdictOut(
        kind=VerdictKind.UNDECIDED, vertex=None, subtasks=[], phase=None, sentence="Not enough is known.", evidence=[],
        confidence=Confidence.LOW, would_decide=["a reading of the backpressure"],
    )  # fmt: skip

    assert status.verdict_tone(undecided, Health.FAILING) == "quiet"
    sync = undecided.model_copy(update={"kind": VerdictKind.SYNC})
    assert [status.verdict_tone(sync, h) for h in (Health.HEALTHY, Health.SLOW)] == ["quiet", "warn"]
    shown = texts(verdict.verdict_card(undecided))
    assert "Needed to decide: a reading of the backpressure" in shown


def test_every_kind_and_every_health_has_its_own_icon_and_word():
    assert set(status.KIND_WORDS) == set(status.KIND_ICONS) == set(VerdictKind)
    assert len(set(status.KIND_ICONS.values())) == len(VerdictKind)
    assert len(set(status.KIND_WORDS.values())) == len(VerdictKind)
    assert set(status.HEALTH_TONES) == set(Health)
