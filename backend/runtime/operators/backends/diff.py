"""Option II: the difference to the serialized state of the last confirmed checkpoint (runtime.md 5.3).

The states need not record their changes. The backend keeps the serialized state of the base instead, and compares the
whole state with it at each snapshot (IN-12). If the chain grows too long, or the differences together become larger
than the state, the snapshot is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends.base import ChainBackend, Piece
from backend.runtime.operators.changes import Change, Op, consolidated, rows


class _Base(NamedTuple):
    """A chain, and the serialized state that it gives."""

    pieces: tuple[Piece, ...]
    frozen: Mapping[int, bytes]
    size_bytes: int


class _Taken(NamedTuple):
    """A pending checkpoint, and the base that it was compared with."""

    result: _Base
    base: _Base | None


class DiffBackend(ChainBackend):
    """The chain is the whole state, and the differences between confirmed checkpoints since then."""

    kind = StateBackend.DIFF

    def __init__(self, name: str, config: RuntimeConfig) -> None:
        super().__init__(name, config)
        self._base: _Base | None = None
        self._taken: dict[int, _Taken] = {}

    def extended(self, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        """Return the base's chain with the difference to it, or the whole state (IN-11)."""
        frozen, base = self.states.dump(), self._usable_base()
        size_bytes = self.states.size_bytes
        self.sync_bytes = size_bytes
        if base is None or is_base or self._is_too_long(base):
            pieces: tuple[Piece, ...] = (self.whole(frozen),)
        else:
            self.async_us = self._config.diff_ns_per_byte * (size_bytes + base.size_bytes) // 1000
            changes = list(_differences(base.frozen, frozen, self.states.part_count))
            pieces = (*base.pieces, self.piece(changes)) if changes else base.pieces
        self._taken[checkpoint_id] = _Taken(_Base(pieces, frozen, size_bytes), base)
        held = sum(taken.result.size_bytes for taken in self._taken.values())
        self.extra_bytes = held + (0 if base is None else base.size_bytes)
        return pieces

    def _usable_base(self) -> _Base | None:
        """Return the base for the next snapshot, or None if the snapshot must contain the whole state.

        A pending checkpoint may complete before the next snapshot is acknowledged. The files that it does not use are
        then deleted. Therefore, the next snapshot may only have a base whose files all pending checkpoints use.
        """
        pending = list(self._taken.values())
        base = pending[0].base if pending else self._base
        if base is None or all(set(base.pieces) <= set(taken.result.pieces) for taken in pending):
            return base
        return None

    def _is_too_long(self, base: _Base) -> bool:
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
        self._base = _Base(tuple(pieces), frozen, self.states.size_bytes)

    def confirm(self, checkpoint_id: int) -> None:
        """Use the completed checkpoint as the base (IN-2)."""
        for older in [k for k in self._taken if k <= checkpoint_id]:
            taken = self._taken.pop(older)
            if older == checkpoint_id:
                self._base = taken.result

    def abort(self, checkpoint_id: int) -> None:
        """Forget the difference of this checkpoint. The next one has the same base."""
        self._taken.pop(checkpoint_id, None)

    @property
    def live(self) -> Iterable[Piece]:
        """The files of the base and of the pending checkpoints."""
        bases = [self._base, *(base for taken in self._taken.values() for base in taken)]
        return [piece for base in bases if base is not None for piece in base.pieces]


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
