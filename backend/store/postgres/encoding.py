"""Text and JSON as PostgreSQL takes them."""

from __future__ import annotations

import orjson

_MAX_TEXT = 8000


def clean(text: str) -> str:
    """``text`` as PostgreSQL takes it: no NUL, no lone surrogates, and not endless."""
    return text[:_MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    """``clean`` that lets a missing text be missing."""
    return None if text is None else clean(text)


def dump(document: object) -> str:
    """JSON text of dataclasses, mappings and sequences. NUL cannot be part of a jsonb value."""
    return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS).decode().replace("\\u0000", "\\ufffd")
