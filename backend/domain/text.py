"""Makes text from outside safe to print, and makes JSON from outside readable if single characters of it are broken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

NAME_MAX: Final = 80
"""Characters of a name in a sentence, a line of the command line or a notification."""

# An escape in JSON text: a pair of surrogates, a surrogate without its partner (the group), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)

# Flink's ids of vertices and jobs.
_VERTEX_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")

# Flink puts these between the operators of a chain.
_BREAK = re.compile("<br ?/?>")


def printable(text: str) -> str:
    r"""Return ``text`` with each unprintable character replaced by its Python escape, such as ``\x1b`` or ``\n``.

    Text from a target, a request or a file can then neither control a terminal nor forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def capitalised(text: str) -> str:
    """Return ``text`` with a capital first letter, as a sentence begins. An address at its beginning stays as it is."""
    return text if "://" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


def clean(text: str, *, length_max: int) -> str:
    """Return ``text`` as one line of printable characters, cut to ``length_max`` with an ellipsis.

    Every name and text from outside passes through this function, or through ``clean_lines``, where it comes in.
    """
    if len(text) <= length_max and text.isprintable():
        return text
    # The text is cut before the loop over its characters, because a name from a hostile target may have millions.
    head = text[: length_max + 1]
    shown = "".join(c if c.isprintable() else " " for c in head)
    return shown if len(head) <= length_max else shown[: length_max - 1] + "…"


def clean_lines(text: str, *, length_max: int) -> str:
    """Return ``text`` as ``clean`` does, but keep line breaks and tabs."""
    head = text[: length_max + 1]
    shown = "".join(c if c.isprintable() or c in "\n\t" else " " for c in head)
    return shown if len(head) <= length_max else shown[: length_max - 1] + "…"


def said_once(problems: Sequence[str]) -> tuple[str, ...]:
    """Return the problems in their order, those that differ only in the id of a vertex once and with their number.

    If a target refuses one kind of request, each vertex of a job has the same problem.
    """
    sentences: dict[str, str] = {}
    others: dict[str, set[str]] = {}
    for problem in problems:
        alike = _VERTEX_ID.sub("*", problem)
        if sentences.setdefault(alike, problem) != problem:
            others.setdefault(alike, set()).add(problem)
    counts = {alike: len(texts) for alike, texts in others.items()}
    return tuple(text + _more_alike(counts.get(alike, 0)) for alike, text in sentences.items())


def _more_alike(count: int) -> str:
    if not count:
        return ""
    return f" (and {count} more that differ{'s' if count == 1 else ''} only in the id of the vertex)"


def shortened(name: str, most: int = NAME_MAX) -> str:
    """Return a name on one line, with its middle left out if it has more than ``most`` characters.

    The names of a job's vertices often differ at both ends, and a name that SQL makes can have hundreds of characters.
    This is the only place that shortens names of vertices and jobs. Whoever shows the result offers the whole name too.
    """
    flat = " ".join(_BREAK.sub(" ", name).split())
    if len(flat) <= most:
        return flat
    head = (most - 1) * 2 // 3
    return f"{flat[:head]}…{flat[len(flat) - (most - 1 - head) :]}"


def with_whole_characters(body: bytes) -> bytes:
    r"""Return JSON text with every broken character replaced by U+FFFD.

    A character is broken if its bytes are not UTF-8, or if it is an escaped surrogate without its partner
    (``\ud800``). A parser refuses the whole text because of one such character, so one odd name would hide all other
    data.
    """
    utf_8 = body.decode("utf-8", "replace").encode()
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], utf_8)
