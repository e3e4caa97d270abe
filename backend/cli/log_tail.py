"""Reads the new lines in the log files of the roles, for ``up --verbose``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from backend.domain.text import printable

_READ_MAX_BYTES = 256 * 1024


class LogTail:
    """Follows every ``*.log`` file in a folder. Lines that were written before this object was created are skipped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = {path: path.stat().st_size for path in self._logs()}

    def new_lines(self) -> Iterator[str]:
        """Yield the complete lines that were added since the last call, each with the name of its role in front."""
        for path in self._logs():
            end, size = self._ends.get(path, 0), path.stat().st_size
            if size < end:
                # The file is shorter than before: the supervisor emptied it because it had grown too long.
                end = 0
            with path.open("rb") as log:
                log.seek(end)
                text = log.read(_READ_MAX_BYTES)
            whole = text[: text.rfind(b"\n") + 1] or (text if len(text) == _READ_MAX_BYTES else b"")
            self._ends[path] = end + len(whole)
            # Other programs, such as a JVM, write to these files too, so the lines may contain control characters.
            for line in whole.decode(errors="replace").splitlines():
                yield f"{path.stem:>10}  {printable(line)}"

    def _logs(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))
