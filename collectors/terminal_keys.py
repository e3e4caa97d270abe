"""Reads single keys from a terminal, and leaves the terminal as it was."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_ESCAPES = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[D": "<", b"\x1b[C": ">"}
_LETTERS = {b"k": "up", b"j": "down", b",": "<", b".": ">"}


@contextmanager
def single_keys(descriptor: int) -> Iterator[None]:
    """Deliver each key at once and do not echo it, as long as the context lasts."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        yield
    finally:
        # What was typed and not read yet is not passed on to the shell.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def read_keys(descriptor: int) -> list[str]:
    """Return the keys that were pressed: ``up``, ``down``, or the character. An ended input is the key ``q``."""
    typed = os.read(descriptor, 1024)
    if not typed:
        return ["q"]
    keys = []
    while typed:
        escape = typed[:3]
        if escape in _ESCAPES:
            keys.append(_ESCAPES[escape])
            typed = typed[3:]
        else:
            keys.append(_LETTERS.get(typed[:1], typed[:1].decode("ascii", "replace")))
            typed = typed[1:]
    return keys
