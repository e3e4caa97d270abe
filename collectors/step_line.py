"""Shows what a command does at the moment, in one line of standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable

ShowStep = Callable[[str], None]


class StepLine:
    """Shows the current step in one line of standard error, and erases the line at the end.

    If standard error is not a terminal, nothing is shown.
    """

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> ShowStep:
        return self._show_step

    def __exit__(self, *_: object) -> None:
        self._write("")

    def _show_step(self, text: str) -> None:
        self._write(f"{text} …")

    def _write(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
