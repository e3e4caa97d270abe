"""Tests that any text from an engine becomes text or JSON that PostgreSQL accepts."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from backend.store.postgres.encoding import clean, clean_or_none, dump

_TEXTS = st.text(alphabet=st.characters(exclude_categories=[]), max_size=20)


@given(_TEXTS)
def test_any_text_becomes_text_that_postgresql_accepts(words):
    cleaned = clean(words)

    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned


@given(st.text(max_size=20))
def test_json_has_no_nul_and_stays_valid(words):
    text = dump({"a": words})

    assert orjson.loads(text)["a"].replace("\ufffd", "") == orjson.loads(orjson.dumps(words)).replace("\0", "").replace(
        "\ufffd", ""
    )
    assert "\\u0000" not in text.replace("\\\\", "")


def test_a_very_long_text_is_truncated():
    assert len(clean("x" * 100_000)) == 8000
    assert clean_or_none(None) is None
