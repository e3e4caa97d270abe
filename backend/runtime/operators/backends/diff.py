"""Option II: the difference to the serialized state of the last confirmed checkpoint (runtime.md 5.3).

The backend needs no support by the states, but keeps the serialized state of the base, and compares all of it at each
snapshot (IN-12). If the chain grows too long, or its differences larger than the state, the snapshot is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends.base import ChainBackend, Piece
from backend.runtime.operators.changes import Change, Op, consolidated, rows


class _Taken(NamedTuple):
    pieces: tuple[Piece, ...]
    frozen: Mapping[int, bytes]
    size_bytes: int


class DiffBackend(ChainBackend):
    """The chain is the whole state, and the differences between confirmed checkpoints since then."""

    kind = StateBackend.DIFF

    def __init__(self, name: str, config: RuntimeConfig) -> None:
        super().__init__(name, config)
        self._base: _Taken | None = None
        self._taken: dict[int, _Taken] = {}

    def extended(self, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        """Return the base's chain with the difference to it, or the whole state (IN-11)."""
        frozen, base = self.states.dump(), self._base
        size_bytes = self.states.size_bytes
        self.sync_bytes = size_bytes
        if base is None or is_base or self._is_too_long(base):
            pieces: tuple[Piece, ...] = (self.whole(frozen),)
        else:
            self.async_us = self._config.diff_ns_per_byte * (size_bytes + base.size_bytes) // 1000
            changes = list(_differences(base.frozen, frozen, self.states.part_count))
            pieces = (*base.pieces, self.piece(changes)) if changes else base.pieces
        self._taken[checkpoint_id] = _Taken(pieces, frozen, size_bytes)
        self.extra_bytes = sum(t.size_bytes for t in self._taken.values()) + (0 if base is None else base.size_bytes)
        return pieces

    def _is_too_long(self, base: _Taken) -> bool:
        whole, *differences = base.pieces
        is_large = sum(piece.size_bytes for piece in differences) > whole.size_bytes
        return is_large or len(differences) >= self._config.diff_chain_max

    def reset(self) -> None:
        """Forget the base."""
        self._base = None
        self._taken.clear()

    def resume(self, checkpoint_id: int, pieces: Sequence[Piece]) -> None:
        """Use a restored checkpoint as the base."""
        frozen = consolidated((piece.groups for piece in pieces), self.states.part_count)
        self._base = _Taken(tuple(pieces), frozen, self.states.size_bytes)

    def confirm(self, checkpoint_id: int) -> None:
        """Use the completed checkpoint as the base (IN-2)."""
        for older in [k for k in self._taken if k <= checkpoint_id]:
            taken = self._taken.pop(older)
            if older == checkpoint_id:
                self._base = taken

    def abort(self, checkpoint_id: int) -> None:
        """Forget the difference of this checkpoint. The next one has the same base."""
        self._taken.pop(checkpoint_id, None)

    @property
    def live(self) -> Iterable[Piece]:
        """The files of the base and of the pending checkpoints."""
        chains = [*self._taken.values()] if self._base is None else [self._base, *self._taken.values()]
        return [piece for taken in chains for piece in taken.pieces]


def _differences(before: Mapping[int, bytes], now: Mapping[int, bytes], part_count: int) -> Iterator[Change]:
    """Yield the changes that lead from one serialized state to another, by key group, part and key."""
    for group in sorted({*before, *now}):
        old, new = before.get(group), now.get(group)
        if old == new:
            continue
        of_old = {} if old is None else {(part, key): numbers for part, key, numbers in rows(old, part_count)}
        of_new = {} if new is None else {(part, key): numbers for part, key, numbers in rows(new, part_count)}
        for part, key in sorted({*of_old, *of_new}):
            numbers = of_new.get((part, key))
            if numbers is None:
                yield Change(part, Op.DELETE, key)
            elif numbers != of_old.get((part, key)):
                yield Change(part, Op.PUT, key, numbers)
