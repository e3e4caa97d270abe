"""The parts of all incremental backends: files, chains of files, and the interface of a backend.

A snapshot refers to a chain of files, oldest first. Applied in order, they give the state. Invariants: the content of a
file never changes. A chain that is referred to by a snapshot never changes either.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.changes import Change, Op, Recorder, consolidated, encoded, rows
from backend.runtime.operators.state import FileHandle, KeyedStates


@dataclass(slots=True, eq=False)
class Piece:
    """One immutable file of a backend, and what is known about its copy in the store."""

    key: str
    groups: Mapping[int, bytes]
    size_bytes: int
    change_count: int
    handle: FileHandle | None = None
    """The copy in the store; None if the file is neither written nor being written."""
    is_durable: bool = False
    is_confirmed: bool = False
    """Whether a checkpoint with this file is complete, as far as the subtask was notified (IN-2)."""
    first_id: int = 0
    """The id of the checkpoint for which the file is or was written, or 0 if there is none yet."""
    acknowledged_id: int = 0
    """The newest checkpoint that was acknowledged with this file, or 0."""
    waiting: list[Callable[[bool], None]] = field(default_factory=list)
    """Functions that are called when the write ends. Their argument is true if the file is durable."""

    @property
    def content(self) -> bytes:
        """The bytes of the file: the changes of all key groups, one group after the other."""
        return b"".join(self.groups.values())

    def handle_at(self, path: str) -> FileHandle:
        """Return the handle of the file's copy at this path in the store."""
        spans, at = [], 0
        for group, data in self.groups.items():
            spans.append((group, at, len(data)))
            at += len(data)
        return FileHandle(self.key, path, self.size_bytes, self.change_count, zlib.crc32(self.content), tuple(spans))


class Chain(Mapping[int, bytes]):
    """The keyed state that a chain of files gives, by key group. It is consolidated when it is first read."""

    def __init__(self, pieces: Sequence[Piece], part_count: int) -> None:
        self.pieces = tuple(pieces)
        self.part_count = part_count
        self._groups: dict[int, bytes] | None = None

    @property
    def _whole(self) -> dict[int, bytes]:
        if self._groups is None:
            self._groups = consolidated((piece.groups for piece in self.pieces), self.part_count)
        return self._groups

    def __getitem__(self, group: int) -> bytes:
        return self._whole[group]

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    def __eq__(self, other: object) -> bool:
        return self._whole == (other._whole if isinstance(other, Chain) else other)

    __hash__ = None  # type: ignore[assignment]


class Snapshot(Enum):
    """The kind of a backend's next snapshot."""

    ALONE = "alone"
    """The whole state, without files that checkpoints share. The backend does not change. Savepoints use this."""
    RESET = "reset"
    """As ``ALONE``, but the next incremental snapshot begins with the whole state."""
    BASE = "base"
    """The whole state as a file that later checkpoints may share (IN-5)."""
    INCREMENT = "increment"
    """The files that the state consists of: those of earlier checkpoints, and the changes."""


class ChainBackend:
    """The base of the incremental backends. A subclass decides what each snapshot adds to the chain.

    ``name`` begins the keys of all files of this backend. No other backend of the job has the same name.
    """

    kind: StateBackend
    log: Recorder | None = None

    def __init__(self, name: str, config: RuntimeConfig) -> None:
        self._name = name
        self._config = config
        self._made = 0
        self._states: KeyedStates | None = None
        self._next = Snapshot.ALONE
        self._id = 0
        self.sync_bytes = 0
        """The bytes that the last snapshot copied in the sync phase."""
        self.async_us = 0
        """The time that the last snapshot needs in the async phase, in addition to writing (IN-12)."""
        self.extra_bytes = 0
        """The memory that the backend needs in addition to the state (IN-12)."""

    @property
    def states(self) -> KeyedStates:
        """The keyed states of the operator."""
        assert self._states is not None
        return self._states

    def attach(self, states: KeyedStates) -> None:
        """Use these states from now on."""
        self._states = states

    def prepare(self, checkpoint_id: int, snapshot: Snapshot) -> None:
        """Set the kind of the next ``freeze``, and its checkpoint."""
        self._id, self._next = checkpoint_id, snapshot

    def freeze(self) -> Mapping[int, bytes]:
        """Return the keyed state by key group: a ``Chain`` if checkpoints share its files."""
        self.async_us = 0
        if self._next in (Snapshot.ALONE, Snapshot.RESET):
            self.sync_bytes = self.states.size_bytes
            if self._next is Snapshot.RESET:
                self.reset()
            return self.states.dump()
        pieces = self.extended(self._id, is_base=self._next is Snapshot.BASE)
        return Chain(pieces, self.states.part_count)

    # --- for subclasses -------------------------------------------------------------------------------------------

    def extended(self, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        """Return the chain of a checkpoint. With ``is_base``, it consists of the whole state."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget all files, so that the next chain begins with the whole state."""
        raise NotImplementedError

    def resume(self, checkpoint_id: int, pieces: Sequence[Piece]) -> None:
        """Continue from a restored checkpoint, whose files are confirmed."""
        raise NotImplementedError

    def confirm(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint: its chain is the base of later ones (IN-2)."""
        raise NotImplementedError

    def abort(self, checkpoint_id: int) -> None:
        """Handle the end of a checkpoint that does not complete."""
        raise NotImplementedError

    @property
    def live(self) -> Iterable[Piece]:
        """The files that this or a later snapshot may refer to."""
        raise NotImplementedError

    def piece(self, changes: Iterable[Change]) -> Piece:
        """Return a new file with these changes."""
        own = list(changes)
        self._made += 1
        states = self.states
        size_bytes = sum(map(states.change_bytes, own))
        return Piece(f"{self._name}/{self._made}", encoded(own, states.group_of), size_bytes, len(own))

    def whole(self, frozen: Mapping[int, bytes] | None = None) -> Piece:
        """Return a new file with the whole state, or with this serialized state."""
        groups = self.states.dump() if frozen is None else frozen
        count = self.states.part_count
        every = (row for data in groups.values() for row in rows(data, count))
        return self.piece(Change(part, Op.PUT, key, numbers) for part, key, numbers in every)
