"""Option I: the states record their changes, and the changes are written (runtime.md 5.2).

The changes are written in segments: continuously, and with each checkpoint. From time to time the whole state is
written too, independently of checkpoints (IN-8). Later checkpoints refer to this file and to the segments after it. The
older segments are deleted when no retained checkpoint refers to them. Checkpoints are quick, because little is left to
write. In return, the log needs more space, and a restore takes longer (IN-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends.base import ChainBackend, Piece
from backend.runtime.operators.changes import ChangeLog


class ChangelogBackend(ChainBackend):
    """The chain is the whole state as last written, and the segments of the log since then."""

    kind = StateBackend.CHANGELOG
    log: ChangeLog

    def __init__(self, name: str, config: RuntimeConfig) -> None:
        super().__init__(name, config)
        self.log = ChangeLog()
        self._chain: list[Piece] | None = None
        self._materializing: tuple[Piece, int] | None = None
        """The whole state that is being written, and the number of segments in the chain that it contains."""

    def extended(self, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        """Return the chain with a segment for the changes that no segment contains yet."""
        if self._chain is None or is_base:
            self.log.start()
            self._materializing = None
            self._chain = [self.whole()]
            self.sync_bytes = self._chain[0].size_bytes
        else:
            self.sync_bytes = 0
            self.seal()
        self.extra_bytes = 0
        return self._chain

    def seal(self) -> Piece | None:
        """Put the recorded changes into a segment. Return None if there are none, or if no chain has begun (IN-7)."""
        if self._chain is None or not self.log:
            return None
        segment = self.piece(self.states.changes_since_last())
        self._chain.append(segment)
        return segment

    def materialize(self) -> Piece | None:
        """Return a file with the whole state, to be written (IN-8). Return None if it is not time for one."""
        if self._chain is None or self._materializing is not None:
            return None
        self.seal()
        if len(self._chain) == 1:
            return None
        whole = self.whole()
        self._materializing = (whole, len(self._chain))
        return whole

    def materialized(self, whole: Piece, *, is_durable: bool) -> None:
        """Handle the end of the write of the whole state: begin the chain with this file.

        If the write failed, keep the old chain.
        """
        if self._materializing is None or self._materializing[0] is not whole:
            return
        _, contained = self._materializing
        self._materializing = None
        if is_durable and self._chain is not None:
            self._chain = [whole, *self._chain[contained:]]

    def reset(self) -> None:
        """Forget all segments. No changes are recorded until the next chain begins with the whole state."""
        self.log.stop()
        self._chain = self._materializing = None

    def resume(self, checkpoint_id: int, pieces: Sequence[Piece]) -> None:
        """Continue the log of a restored checkpoint."""
        self.log.start()
        self._chain = list(pieces)

    def confirm(self, checkpoint_id: int) -> None:
        """Do nothing, because the log does not depend on checkpoints."""

    def abort(self, checkpoint_id: int) -> None:
        """Do nothing: the next checkpoint contains the segments of this one."""

    @property
    def live(self) -> Iterable[Piece]:
        """The files of the chain, and the whole state that is being written."""
        return [*(self._chain or ()), *([] if self._materializing is None else [self._materializing[0]])]
