"""Makes text from outside safe to print, and makes JSON from outside readable if single characters of it are broken."""

from __future__ import annotations

import re
from typing import Final

NAME_MAX: Final = 80
"""Characters of a name in a sentence, a line of the command line or a notification."""

# An escape in JSON text: a pair of surrogates, a surrogate without its partner (the group), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)

# Flink puts these between the operators of a chain.
_BREAK = re.compile("<br ?/?>")


def printable(text: str) -> str:
    r"""Return ``text`` with each unprintable character replaced by its Python escape, such as ``\x1b`` or ``\n``.

    Text from a target, a request or a file can then neither control a terminal nor forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


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
