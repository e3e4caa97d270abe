"""Tests of the recommendations page: labelled predictions next to measured values, and links to checkpoints."""

from __future__ import annotations

from datetime import UTC, timedelta

import httpx
import pytest

from backend.contracts.advice import IntervalOut, JobAdviceOut, MeasuredOut, WatchOut
from backend.contracts.advice_text import as_markdown, as_text
from backend.contracts.api import Page
from backend.domain.advice import AdviceOutcome, AdviceState, Metric
from dashboard import routes, text
from dashboard.client import ApiClient
from dashboard.components import advice_cards
from dashboard.pages import advice, fleet
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, texts
from tests.support.made_up_alerts import ADVISED


def shown(card) -> str:
    return repr(advice_cards.card(card, UTC, card.updated_at))


def test_the_age_of_numbers_is_shown_if_they_are_not_computed_every_minute():
    card = example("card")
    at = card.updated_at
    fresh = card.model_copy(update={"computed_at": at})

    for state, after_s, words in (
        (AdviceState.NEW, 119, None),
        (AdviceState.NEW, 121, "Numbers computed 2026-11-21 12:00:00; the rules have not given it since."),
        (AdviceState.ACCEPTED, 0, "Numbers computed 2026-11-21 12:00:00; they stay as they were then."),
    ):
        told = fresh.model_copy(update={"state": state})
        page = repr(advice_cards.card(told, UTC, at + timedelta(seconds=after_s)))
        assert ("Numbers computed" in page) == (words is not None), (state, after_s)
        assert words is None or words in page


def test_the_address_of_the_page_parses_to_its_route():
    route = routes.parse(routes.advice("j/ 1"))

    assert (route.page, route.job) == ("advice", "j/ 1")


def test_a_new_card_shows_the_diff_the_prediction_and_what_can_be_done():
    page = shown(example("card"))

    assert "- execution.checkpointing.unaligned.enabled: false" in page
    assert "+ execution.checkpointing.aligned-checkpoint-timeout: 200 ms" in page
    assert "predicted" in page
    assert "202 ms to 441 ms" in page
    assert "advice-dismiss" in page
    assert "advice-apply" not in page, "Flink's settings are changed by a restart, which is the operator's"
    assert routes.checkpoint(example("card").job_id, example("card").run_id, 412) in page


def test_a_change_that_no_setting_makes_is_told_as_steps_and_has_no_diff():
    card = example("card")
    advice = card.recommendation
    how_to = advice.how_to.model_copy(update={"lines": [], "rollback_lines": [], "steps": ["Call setParallelism(8)."]})
    told = card.model_copy(
        update={"recommendation": advice.model_copy(update={"changes": [], "how_to": how_to}), "exports": []}
    )

    page = shown(told)
    assert "Call setParallelism(8)." in page
    assert "configuration diff" not in page
    assert "How to undo it" not in page
    lines = as_text([told.recommendation], [], width=100)
    assert any("Call setParallelism(8)." in line for line in lines)
    assert not any(line.startswith(("  +", "  to undo")) for line in lines)
    assert "```diff" not in as_markdown([told.recommendation], [])


def test_a_change_that_needs_no_restart_can_be_applied():
    assert "advice-apply" in shown(example("card").model_copy(update={"can_apply": True}))


def test_after_a_change_was_applied_measured_values_are_next_to_predicted_ones():
    interval = IntervalOut(value=228, low=202, high=441)
    rows = [
        MeasuredOut(
            metric=Metric.DURATION, unit="ms", predicted=interval, measured=value, is_inside=inside, checkpoint_count=5
        )
        for value, inside in ((231, True), (900, False))
    ]
    update = {"state": AdviceState.VERIFIED, "measured": tuple(rows), "measured_ids": (413,)}
    page = shown(example("card").model_copy(update=update))

    assert "231 ms" in page
    assert "inside the interval" in page
    assert "outside the interval" in page
    assert "advice-dismiss" not in page


def test_the_measured_checkpoints_are_those_of_the_run_after_a_restart():
    row = MeasuredOut(
        metric=Metric.DURATION, unit="ms", predicted=IntervalOut(value=228, low=202, high=441), measured=231,
        is_inside=True, checkpoint_count=5,
    )  # fmt: skip
    update = {"state": AdviceState.VERIFIED, "measured": (row,), "measured_ids": (3,), "measured_run_id": "later"}
    card = example("card").model_copy(update=update)

    page = shown(card)

    assert routes.checkpoint(card.job_id, "later", 3) in page
    assert routes.checkpoint(card.job_id, card.run_id, 412) in page, "the evidence is of the run before"


def test_a_topic_without_a_recommendation_shows_reason_and_rule():
    found: JobAdviceOut = example("job_advice")
    parts = repr(advice_cards.silences(found.silences))

    assert "persist no in-flight data" in parts
    assert "R-CAP-1" in parts
    assert "Details" not in parts


def test_the_reasons_of_many_topics_without_a_recommendation_are_folded():
    (silence,) = example("job_advice").silences
    parts = repr(advice_cards.silences([silence] * 10))

    assert "Summary('the reasons for 10 topics')" in parts
    assert parts.count("persist no in-flight data") == 10


def test_settings_to_check_show_the_cure_and_the_source():
    found: JobAdviceOut = example("job_advice")
    parts = repr(advice_cards.lints(found.lints))

    assert "Tolerate as many failures" in parts
    assert found.lints[0].source in parts
    assert advice_cards.lints([]) is None


def test_the_fleet_shows_the_number_of_open_recommendations():
    row = fleet.row(example("job").model_copy(update={"open_advice_count": 2}), "v-1")

    assert row["advice"] == 2
    assert row["advice_chip"]["word"] == "2 open"


def test_evidence_has_a_small_chart_of_the_values_behind_its_number():
    thumbnail = advice_cards.thumbnail((0.5, None, 1.0), "ratio")

    assert [getattr(b, "style", None) for b in thumbnail.children] == [{"height": "50%"}, None, {"height": "100%"}]
    assert thumbnail.children[1].className == "is-missing"
    assert thumbnail.title == "2 values, 50 % to 100 %"
    assert getattr(thumbnail, "aria-label") == thumbnail.title
    page = shown(example("card"))
    assert "10 values, 4.1 s to 5.6 s" in page
    assert "6 values, 91 % to 99 %" in page


def test_a_single_value_has_no_small_chart_and_zeros_have_one():
    assert advice_cards.thumbnail((3.0,), "ms") == text.MISSING
    assert advice_cards.thumbnail((), "ms") == text.MISSING
    assert advice_cards.thumbnail((0, 0), "bytes").title == "2 values, all 0 B"
    assert len(advice_cards.thumbnail(tuple(range(100)), "count").children) == 24


@pytest.mark.parametrize("is_inside", [True, False])
def test_the_word_for_a_measured_change_agrees_with_its_table(is_inside):
    card = example("card_verified")
    rows = tuple(m.model_copy(update={"is_inside": is_inside}) for m in card.measured)
    card = card.model_copy(update={"measured": rows})

    words = {"verified": "inside the interval", "not as predicted": "outside the interval"}
    expected = "verified" if is_inside else "not as predicted"
    for part in (advice_cards.state_badge(card), advice_cards.history([card], UTC)):
        assert [w for w in words if w in texts(part)] == [expected]
    assert [w for w in words.values() if w in shown(card)] == [words[expected]]


def test_a_change_in_force_shows_how_many_of_its_checkpoints_were_watched_and_who_did_what():
    card = example("card_verified")
    watch = WatchOut(checkpoint_count=7, of_count=20, is_over=False)
    event = card.history[0].model_copy(update={"author": "ann", "outcome": AdviceOutcome.REFUSED})
    page = shown(card.model_copy(update={"watch": watch, "history": (event,)}))

    assert "7 of 20 checkpoints watched since the change." in page
    assert "Td('refused')" in page
    assert "Td('ann')" in page
    over = watch.model_copy(update={"checkpoint_count": 20, "is_over": True})
    assert "the last judgement is made" in shown(card.model_copy(update={"watch": over}))
    assert "watched since" not in shown(card.model_copy(update={"watch": None}))
    guarded = card.model_copy(update={"is_guarded": True, "watch": watch})
    assert "judged after 5, 10 and 20 of them" in shown(guarded)
    once = guarded.model_copy(update={"watch": watch.model_copy(update={"of_count": 5})})
    assert "judged after 5 of them" in shown(once)
    done = guarded.model_copy(update={"watch": watch.model_copy(update={"is_over": True})})
    assert "rolled back by itself" not in shown(done)
    assert "a person" in shown(card.model_copy(update={"history": (event.model_copy(update={"author": None}),)}))


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "author"), [(" ann ", "ann"), ("", None), (None, None)])
async def test_each_decision_is_sent_with_the_name_that_was_typed_or_none(ui, name, author):
    route = {"job": ADVISED}
    card = ui.fake.alerting.card.id
    client = ApiClient(transport=httpx.MockTransport(ui.fake.handle), base_url="http://api.test")
    press = {"type": "advice-accept", "card": card}
    await advice.decide(client, dismissed=[], accepted=[1], reasons=[], ids=[], author=name, route=route, trigger=press)
    await advice.apply(client, confirmed=1, card=card, guard=True, author=name, route=route)
    await advice.roll_back(client, confirmed=1, card=card, author=name, route=route)
    history = ui.fake.alerting.card.history[-3:]

    assert [e.author for e in history] == [author] * 3


def test_a_change_in_force_can_be_rolled_back_if_the_engine_allows_it():
    able = example("card").model_copy(update={"state": AdviceState.APPLIED, "can_roll_back": True})

    assert "advice-undo" in shown(able)
    assert "advice-undo" not in shown(able.model_copy(update={"can_roll_back": False}))
    undone = repr(advice_cards.diff(able.recommendation, is_undone=True))
    assert "- execution.checkpointing.unaligned.enabled: true" in undone
    assert "+ execution.checkpointing.unaligned.enabled: false" in undone


@pytest.mark.anyio
async def test_the_charts_are_drawn_again_when_the_window_becomes_narrow(ui):
    ui.fake.alerting.verify()
    route = {"advice-route.data": {"job": ADVISED}}

    async def refreshed(before, *, is_narrow):
        look = {"look.data": LOOK["look.data"] | {"is_narrow": is_narrow}}
        values = look | route | {"advice-digest.data": before}
        return await ui.call("advice-head.children", values, by="tick.n_intervals")

    wide = await refreshed(None, is_narrow=False)
    seen = wide["advice-digest"]["data"]
    assert "outcome-graph" not in await refreshed(seen, is_narrow=False)
    narrow = await refreshed(seen, is_narrow=True)

    def height(answer):
        return answer["outcome-graph"]["figure"]["layout"]["height"]

    assert height(narrow) > height(wide)


@pytest.mark.anyio
async def test_each_card_with_candidates_has_a_chart_that_names_it(ui, monkeypatch):
    ui.fake.alerting.verify()
    old = ui.fake.alerting.card
    new = old.recommendation.model_copy(update={"headline": "Use unaligned checkpoints"})
    cards = [example("card").model_copy(update={"id": "other", "recommendation": new}), old]
    found = example("job_advice").model_copy(update={"cards": cards})
    values = LOOK | {"advice-route.data": {"job": ADVISED}}

    async def advice(_self, _job):
        return found

    async def past(_self, _job):
        return Page(items=[], as_of=found.as_of)

    monkeypatch.setattr(ApiClient, "advice", advice)
    monkeypatch.setattr(ApiClient, "recommendations", past)
    answer = await ui.call("advice-head.children", values, by="tick.n_intervals")

    assert answer["candidates-hint"]["children"].startswith("Use unaligned checkpoints: ")
    assert answer["candidates-2-hint"]["children"].startswith(f"{old.recommendation.headline}: ")
    names = [{t["name"] for t in answer[f"{n}-graph"]["figure"]["data"]} for n in ("candidates", "candidates-2")]
    assert ("now" in names[0], "applied" in names[1]) == (True, True)
    styles = [answer[f"advice-{n}"]["style"] for n in ("candidates", "candidates-2", "candidates-3")]
    assert styles == [{}, {}, {"display": "none"}]
    assert answer["outcome-hint"]["children"].startswith(f"mode: {old.recommendation.headline}. ")
