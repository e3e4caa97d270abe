"""Breaks the lines of what ``diagnose`` prints of files: logs, and checkpoint folders."""

from __future__ import annotations

import textwrap
from typing import Final

from backend.domain.text import printable

WIDTH: Final = 100


def wrapped(text: str, first: str = "", other: str | None = None) -> list[str]:
    """Return the lines of a text, of at most ``WIDTH`` columns. A longer word has a line of its own.

    The first line begins with ``first``, and the others with ``other``, or with ``first`` if it is None.
    """
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if other is None else other,
        break_long_words=False,
        break_on_hyphens=False,
    )
