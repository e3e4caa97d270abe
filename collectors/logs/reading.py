"""Reads the logs that ``barrierscope diagnose --log`` names, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from backend.analysis.words import sentences as say
from collectors.file_blocks import blocks, files_of, hits, is_log
from collectors.logs.events import TEXTS, read_into
from collectors.logs.story import Story
from collectors.step_line import ShowStep, StepLine

OPTION: Final = "--log"


class Progress:
    """Counts the bytes that were read, and shows them."""

    def __init__(self, file_count: int, show_step: ShowStep) -> None:
        self.byte_count = 0
        self._file_count = file_count
        self._show_step = show_step
        self._index = 0
        self._before = 0

    def begin(self) -> None:
        """Count the next file."""
        self._index, self._before = self._index + 1, self.byte_count

    def show(self, read_bytes: int, size: int | None) -> None:
        """Show how much of the file was read."""
        self.byte_count = self._before + read_bytes
        share = f" {_bar(read_bytes / size)} {say.percent(min(1.0, read_bytes / size))}" if size else ""
        self._show_step(f"reading file {self._index} of {self._file_count}{share}, {say.size(read_bytes)}")


def _bar(share: float) -> str:
    full = round(20 * min(1.0, share))
    return f"[{'#' * full}{'.' * (20 - full)}]"


def read_logs(names: Sequence[str]) -> tuple[Story, int, int]:
    """Read the files and folders, and return what they tell, the number of files, and the bytes read.

    A line on standard error names each damaged file.

    Raises:
        InvalidInputError: a file does not exist or cannot be read, or a folder has no log.
    """
    files = files_of(names, option=OPTION, wanted=is_log)
    story = Story()
    damages: list[str] = []
    with StepLine() as show_step:
        progress = Progress(len(files), show_step)
        for name in files:
            progress.begin()
            for hit in hits(blocks(name, progress.show, damages), TEXTS):
                read_into(story, hit)
    for damage in damages:
        print(f"barrierscope: {damage}", file=sys.stderr)
    return story, len(files), progress.byte_count
