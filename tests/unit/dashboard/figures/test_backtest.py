"""The charts of a backtest: when a cause was named, predicted and measured durations, and warnings."""

from __future__ import annotations

from datetime import UTC

import plotly.graph_objects as go
import pytest

from dashboard.components.status import KIND_WORDS
from dashboard.figures.backtest import ROWS_MAX, effects, said, warnings
from dashboard.palette import DARK, LIGHT
from tests.support.made_up_backtests import result

WORDS = {kind.value: word for kind, word in KIND_WORDS.items()}
HOW = {"theme": LIGHT, "where": UTC}


def named(chart):
    return {t["name"]: t for t in chart.figure["data"]}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("is_narrow", [False, True])
def test_the_figures_are_valid_with_and_without_data(theme, is_narrow):
    found, how = result(), {"theme": theme, "where": UTC, "is_narrow": is_narrow}
    for episodes, cards, warned in (
        (found.verdict.episodes, found.advice.cards, found.warning.warnings),
        ([], [], []),
    ):
        for chart in (said(episodes, WORDS, **how), effects(cards, **how), warnings(warned, **how)):
            go.Figure(chart.figure)
            assert chart.summary


def test_a_cause_is_a_row_with_a_line_for_each_time_that_it_was_named():
    one, later = result().verdict.episodes
    again = one.model_copy(update={"first_at": later.last_at, "last_at": later.last_at})
    chart = said([one, later, again], WORDS, **HOW)

    rows = named(chart)
    assert list(rows) == ["vertex at capacity: last", "straggler: last"]
    assert len(rows["vertex at capacity: last"]["x"]) == 6
    assert rows["vertex at capacity: last"]["x"][2] is None
    assert set(rows["straggler: last"]["y"]) == {1, None}
    assert [row[5] for row in chart.table.rows] == [39, 5, 39]
    assert chart.summary == "3 episodes of 2 causes; most: vertex at capacity: last."


def test_causes_beyond_the_rows_of_the_chart_are_in_its_table():
    one = result().verdict.episodes[0]
    many = [one.model_copy(update={"vertex": f"v{i:02}", "said_count": i}) for i in range(ROWS_MAX + 5)]
    chart = said(many, WORDS, **HOW)

    assert (len(chart.figure["data"]), len(chart.table.rows)) == (ROWS_MAX, ROWS_MAX + 5)
    assert next(iter(named(chart))) == f"vertex at capacity: v{ROWS_MAX + 4:02}"


def test_a_change_that_was_not_made_has_no_measured_value():
    chart = effects(result().advice.cards, **HOW)

    found = named(chart)
    assert found["predicted"]["y"] == [0, 1]
    card = result().advice.cards[0].predictions[0]
    assert found["predicted interval"]["x"][:3] == [card.low, card.high, None]
    assert (found["measured, inside"]["x"], found["measured, inside"]["y"]) == ([230.0], [0])
    assert "measured, outside" not in found
    assert [row[5] for row in chart.table.rows] == [230.0, None]
    assert chart.summary == "2 cards; of 1 measured durations, 1 were inside."


def test_the_summary_of_a_cut_chart_says_how_many_cards_it_draws():
    chart = effects(result().advice.cards * 7, **HOW)

    assert len(named(chart)["predicted"]["y"]) == ROWS_MAX
    assert chart.summary.startswith(f"The newest {ROWS_MAX} of 14 cards; ")


def test_a_warning_is_at_its_share_of_the_timeout_and_says_whether_the_checkpoint_expired():
    chart = warnings(result().warning.warnings, **HOW)

    found = named(chart)
    assert found["it expired"]["y"] == [pytest.approx(1 / 3), pytest.approx(1.4 / 3)]
    assert found["it completed"]["marker"]["symbol"] != found["it expired"]["marker"]["symbol"]
    assert chart.summary == "3 warnings; 2 of these checkpoints expired."
