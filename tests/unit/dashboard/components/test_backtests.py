"""The words and tables of a backtest: parts that were not replayed, and what stands below a table that is cut."""

from __future__ import annotations

from datetime import UTC

from dashboard.components import backtests
from tests.support.dash_calls import texts
from tests.support.made_up_backtests import result


def test_a_part_that_was_not_asked_for_says_so_and_has_no_table():
    for words in (backtests.verdict_words, backtests.advice_words, backtests.warning_words):
        assert texts(words(None)) == "It was not asked for."
    assert backtests.episodes("j", None, UTC) is None
    assert backtests.replayed_cards("j", None, UTC) is None


def test_a_part_without_checkpoints_claims_nothing():
    found = result()
    none = {"checkpoint_count": 0, "opened_count": 0}

    assert "no verdict was replayed" in texts(backtests.verdict_words(found.verdict.model_copy(update=none)))
    assert texts(backtests.advice_words(found.advice.model_copy(update=none))) == "No ended checkpoint is stored."
    assert "no warning was replayed" in texts(backtests.warning_words(found.warning.model_copy(update=none)))


def test_a_table_that_is_cut_counts_all_and_says_where_the_others_are():
    found, rows = result(), backtests.ROWS_MAX
    many = found.verdict.model_copy(update={"episodes": found.verdict.episodes[:1] * 100, "episode_count": 130})
    cards = found.advice.model_copy(update={"cards": found.advice.cards[:1] * 100, "opened_count": 140})

    said = texts(backtests.episodes("j", many, UTC))
    assert said.endswith(f"The newest {rows} of 130. The table of the chart has the newest 100.")
    said = texts(backtests.replayed_cards("j", cards, UTC))
    assert said.endswith(
        f"The newest {rows} of 140. The table of the chart has those that predict a duration, of the newest 100."
    )
    assert "The newest" not in texts(backtests.replayed_cards("j", found.advice, UTC))
