"""Sorted immutable files of changed rows (runtime.md 5.4).

Between checkpoints, the backend records the keys that change. Each checkpoint adds one file with the rows of these
keys, and uses the older files again. If there are too many files, some of them are merged into one (IN-14). This
happens between checkpoints, as in RocksDB, so the next checkpoint writes the merged file beside its own. The files that
a merged one replaces are no longer part of later checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends.base import ChainBackend, Piece
from backend.runtime.operators.changes import Change, ChangedRows, Op, decoded

_LEVEL_BYTES = 256 * 1024 * 1024
"""As long as all files together are at most this large, every merge includes all of them.

RocksDB merges new files with the whole first level, whose size is limited by ``max_bytes_for_level_base``.
"""
_GROWTH = 2
"""Beyond that, a file is merged with the newer ones if it is at most this many times as large as all of them."""


class SstBackend(ChainBackend):
    """The chain is the sorted files, oldest first. A newer file hides the rows of an older one."""

    kind = StateBackend.SST
    log: ChangedRows

    def __init__(self, name: str, config: RuntimeConfig) -> None:
        super().__init__(name, config)
        self.log = ChangedRows()
        self._chain: list[Piece] | None = None
        self._taken: dict[int, tuple[Piece, ...]] = {}
        self._new_count = 0
        """The number of files that were added since the last merge."""

    def extended(self, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        """Return the chain with a file for the rows that changed since the last snapshot (IN-13)."""
        changed = self.log.take()
        if self._chain is None or is_base:
            self.log.start()
            self._chain = [self.whole()]
            self._new_count = 1
            self.sync_bytes = self._chain[0].size_bytes
        elif changed:
            if self._new_count >= self._config.sst_runs_max and len(self._chain) > 1:
                self._merge()
            self._new_count += 1
            self._chain.append(self.piece(self._row(part, key) for part, key in changed))
            self.sync_bytes = self._chain[-1].size_bytes
        else:
            self.sync_bytes = 0
        self._taken[checkpoint_id] = tuple(self._chain)
        return self._chain

    def _row(self, part: int, key: int) -> Change:
        numbers = self.states.row_of(part, key)
        return Change(part, Op.DELETE, key) if numbers is None else Change(part, Op.PUT, key, numbers)

    def _merge(self) -> None:
        """Merge all files into one, or if they are large, the newest ones of similar size (IN-14)."""
        assert self._chain is not None
        sizes = [piece.size_bytes for piece in self._chain]
        first = 0
        if sum(sizes) > _LEVEL_BYTES:
            similar = (n for n, size in enumerate(sizes[:-1]) if size <= _GROWTH * sum(sizes[n + 1 :]))
            first = next(similar, len(sizes) - 2)
        newest: dict[tuple[int, int], Change] = {}
        for piece in self._chain[first:]:
            for data in piece.groups.values():
                newest |= {(change.part, change.key): change for change in decoded(data)}
        # A deletion only hides rows of older files. If there are no older files, deletions are dropped.
        kept = [change for _, change in sorted(newest.items()) if first or change.op is Op.PUT]
        self._chain = [*self._chain[:first], self.piece(kept)]
        self._new_count = 0

    def reset(self) -> None:
        """Forget all files. No changes are recorded until the next chain begins with the whole state."""
        self.log.stop()
        self._chain = None
        self._taken.clear()

    def resume(self, checkpoint_id: int, pieces: Sequence[Piece]) -> None:
        """Continue with the files of a restored checkpoint."""
        self.log.start()
        self._chain = list(pieces)
        self._new_count = len(pieces)

    def confirm(self, checkpoint_id: int) -> None:
        """Forget the chains of this checkpoint and of older ones."""
        for older in [k for k in self._taken if k <= checkpoint_id]:
            del self._taken[older]

    def abort(self, checkpoint_id: int) -> None:
        """Forget the chain of this checkpoint. The next one contains its changes."""
        self._taken.pop(checkpoint_id, None)

    @property
    def live(self) -> Iterable[Piece]:
        """The files of the newest chain and of the pending checkpoints."""
        return [*(self._chain or ()), *(piece for pieces in self._taken.values() for piece in pieces)]
