"""Any text that an engine sends becomes text or JSON that PostgreSQL takes."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from backend.store.postgres.encoding import clean, clean_or_none, dump

_TEXTS = st.text(alphabet=st.characters(exclude_categories=[]), max_size=20)


@given(_TEXTS)
def test_any_text_becomes_one_that_postgresql_takes(words):
    cleaned = clean(words)

    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned


@given(st.text(max_size=20))
def test_json_holds_no_nul_and_stays_json(words):
    text = dump({"a": words})

    assert orjson.loads(text)["a"].replace("\ufffd", "") == orjson.loads(orjson.dumps(words)).replace("\0", "").replace(
        "\ufffd", ""
    )
    assert "\\u0000" not in text.replace("\\\\", "")


def test_an_endless_text_is_cut():
    assert len(clean("x" * 100_000)) == 8000
    assert clean_or_none(None) is None
