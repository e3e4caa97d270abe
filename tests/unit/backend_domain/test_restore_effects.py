"""Tests of what is told after a restore: each effect is a sentence, and a sentence is found in an exception's text."""

from __future__ import annotations

import pytest

from backend.domain import restore_effects

_NOTHING = {
    "lost_channel_bytes": 0,
    "repeated_records": 0,
    "records_before_watermark": 0,
    "records_with_other_watermark": 0,
}


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ({}, []),
        ({"lost_channel_bytes": 2048}, ["2.0 kB of records in flight are lost: channel state was not restored"]),
        (
            {"repeated_records": 7},
            ["7 records were processed again although the state contains them: at-least-once mode"],
        ),
        (
            {"records_before_watermark": 9, "records_with_other_watermark": 9},
            ["9 records met another watermark than before: no operator stores the watermark"],
        ),
        (
            {"records_before_watermark": 9},
            ["0 records met another watermark than before: without store_watermark it would be 9"],
        ),
        (
            {"records_before_watermark": 9, "records_with_other_watermark": 4},
            ["4 records met another watermark than before: without store_watermark it would be 9"],
        ),
        ({"records_before_watermark": None}, ["the watermark of the checkpoint has not been reached again"]),
    ],
)
def test_each_effect_is_a_sentence(costs: dict[str, int | None], told: list[str]) -> None:
    said = list(restore_effects.told(_NOTHING | costs, "after the start"))

    assert said == [f"after the start, {words}" for words in told]


def test_a_watermark_that_is_not_known_yet_is_left_out_on_request() -> None:
    costs = _NOTHING | {"records_before_watermark": None, "repeated_records": 1}

    (said,) = restore_effects.told(costs, "after the start", says_unknown=False)

    assert "processed again" in said


def test_the_sentence_is_read_from_the_text_of_an_exception_and_other_texts_are_none() -> None:
    said = "after the start from runtime:/1/chk-7, 9 records met another watermark than before"

    assert restore_effects.read(f"work/0: {restore_effects.EXCEPTION}: {said}") == said
    assert restore_effects.read(f"java.lang.Exception: {said}") is None
