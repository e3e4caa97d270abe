"""The new lines in the logs of the roles, for ``up --verbose``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_READ_MAX_BYTES = 256 * 1024


class LogTail:
    """Follows every ``*.log`` in a folder, from its present end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = {path: path.stat().st_size for path in self._logs()}

    def new_lines(self) -> Iterator[str]:
        """Complete lines added since the last call, each with its role's name in front."""
        for path in self._logs():
            end, size = self._ends.get(path, 0), path.stat().st_size
            if size < end:
                # The supervisor emptied the file because it had grown too long.
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
