"""Converts text and JSON to forms that PostgreSQL accepts."""

from __future__ import annotations

import orjson

_MAX_TEXT = 8000


def clean(text: str) -> str:
    """Return ``text`` as PostgreSQL accepts it: no NUL, no lone surrogates, at most ``_MAX_TEXT`` characters."""
    return text[:_MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    """Apply ``clean`` to a text, and return None for None."""
    return None if text is None else clean(text)


def dump(document: object) -> str:
    """Return dataclasses, mappings and sequences as JSON text. NUL is replaced, because jsonb refuses it."""
    return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS).decode().replace("\\u0000", "\\ufffd")
