"""What the roles wrote to their logs since the last look, for ``up --verbose``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_READ_MAX_BYTES = 256 * 1024


class LogTail:
    """Follows every ``*.log`` of a folder from where it ends now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = {path: path.stat().st_size for path in self._logs()}

    def new_lines(self) -> Iterator[str]:
        """Whole lines that were added since the last call, each after the name of its role."""
        for path in self._logs():
            end, size = self._ends.get(path, 0), path.stat().st_size
            if size < end:
                # Emptied in place, since it had grown too long.
                end = 0
            with path.open("rb") as log:
                log.seek(end)
                text = log.read(_READ_MAX_BYTES)
            whole = text[: text.rfind(b"\n") + 1] or (text if len(text) == _READ_MAX_BYTES else b"")
            self._ends[path] = end + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield f"{path.stem:>10}  {line}"

    def _logs(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))
