"""Converts text and JSON to forms that PostgreSQL accepts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

_MAX_TEXT = 8000


def clean(text: str) -> str:
    """Return ``text`` as PostgreSQL accepts it: no NUL, no lone surrogates, at most ``_MAX_TEXT`` characters."""
    return text[:_MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    """Apply ``clean`` to a text, and return None for None."""
    return None if text is None else clean(text)


# Text from which on a parsed document is kept.
_LARGE = 100_000


def load(text: str) -> Any:
    """Parse the JSON of a column. The result must not be changed.

    The graph and the hosts of a job of 100,000 subtasks are megabytes of JSON, which every request about the job reads
    and which rarely change. So large documents are kept.
    """
    return _kept(text) if len(text) > _LARGE else orjson.loads(text)


@lru_cache(maxsize=8)
def _kept(text: str) -> Any:
    return orjson.loads(text)


def dump(document: object) -> str:
    """Return dataclasses, mappings and sequences as JSON text. NUL is replaced, because jsonb refuses it."""
    return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS).decode().replace("\\u0000", "\\ufffd")
