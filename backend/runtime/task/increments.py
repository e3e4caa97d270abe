"""Writes, confirms and deletes the files of one subtask's incremental checkpoints, and uses them again after a restart.

The backend decides which files a snapshot consists of. This module writes the files that are not in the store yet, and
deletes those that neither the backend nor a checkpoint needs. A file that an acknowledgement has handed over to the
registry is left to the registry (IN-18).

Invariant (IN-2): a checkpoint refers by a placeholder only to files of a checkpoint that is confirmed complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from backend.runtime.core.elements import Barrier
from backend.runtime.core.prng import Stream
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.graph import VertexSpec
from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.operators.backends.base import Chain, Piece, Snapshot
from backend.runtime.operators.backends.changelog import ChangelogBackend
from backend.runtime.operators.backends.choice import backend_of
from backend.runtime.operators.operators import factor_of
from backend.runtime.operators.state import Increment, OperatorSnapshot
from backend.runtime.snapshot.shared_files import groups_in
from backend.runtime.task.environment import Environment
from backend.runtime.task.ports import TaskPort


class Increments:
    """The incremental checkpoints of one attempt of one subtask. Does nothing if every checkpoint is full."""

    def __init__(self, env: Environment, spec: VertexSpec, key: TaskKey, attempt: int) -> None:
        self._env = env
        self._spec = spec
        self._key = key
        self.backend = backend_of(f"{spec.id}-{key[1]}/{attempt}", env.config) if spec.kind.is_keyed else None
        self._taken: dict[int, tuple[Piece, ...]] = {}
        self._own: dict[Piece, None] = {}
        """The files that this attempt has written or is writing, and is responsible for."""
        self._confirmed_id = 0
        self._is_closed = False

    # --- snapshots ------------------------------------------------------------------------------------------------

    def prepare(self, barrier: Barrier) -> None:
        """Set the kind of the next snapshot before the operators take it. A full checkpoint breaks the chain (IN-5)."""
        if self.backend is None:
            return
        k, config = barrier.checkpoint_id, self._env.config
        if barrier.snapshot_type.is_savepoint:
            self.backend.prepare(k, Snapshot.ALONE)
        elif not config.is_incremental:
            self.backend.prepare(k, Snapshot.RESET)
        elif barrier.is_full or (config.full_every and k % config.full_every == 0):
            self.backend.prepare(k, Snapshot.BASE)
        else:
            self.backend.prepare(k, Snapshot.INCREMENT)

    def taken(self, checkpoint_id: int, operators: Iterable[OperatorSnapshot]) -> tuple[Piece, ...] | None:
        """Return the files of the snapshot that the operators took, or None if the state is written in full.

        The state is also written in full if the operator does not support shared files.
        """
        chain = next((o.keyed for o in operators if isinstance(o.keyed, Chain)), None)
        if chain is None:
            return None
        self._taken[checkpoint_id] = chain.pieces
        for piece in chain.pieces:
            piece.first_id = piece.first_id or checkpoint_id
        return chain.pieces

    def acknowledged(self, checkpoint_id: int, operators: tuple[OperatorSnapshot, ...]) -> tuple[OperatorSnapshot, ...]:
        """Return the snapshots with the handles of their files. The acknowledgement hands the files over (IN-18)."""
        for piece in self._taken.get(checkpoint_id, ()):
            assert piece.is_durable, f"checkpoint {checkpoint_id} is acknowledged without its file {piece.key}"
            piece.acknowledged_id = max(piece.acknowledged_id, checkpoint_id)
        return tuple(
            replace(o, increment=self._increment(o.keyed)) if isinstance(o.keyed, Chain) else o for o in operators
        )

    def _increment(self, chain: Chain) -> Increment:
        assert self.backend is not None
        handles = []
        for piece in chain.pieces:
            assert piece.handle is not None
            handles.append(piece.handle.as_placeholder if piece.is_confirmed else piece.handle)
        shares = any(piece.is_confirmed for piece in chain.pieces)
        base_id = self._confirmed_id if shares else None
        return Increment(self.backend.kind, base_id, tuple(handles), chain.part_count)

    # --- writing --------------------------------------------------------------------------------------------------

    def begin(self, pieces: Iterable[Piece], checkpoint_id: int = 0) -> list[Piece]:
        """Choose a path for each file that is neither in the store nor being written.

        Return these files, for the caller to write. ``checkpoint_id`` is the checkpoint that they are written for, or 0
        if they are written between checkpoints.
        """
        files, begun = self._env.files, []
        for piece in pieces:
            if piece.handle is None:
                piece.handle = piece.handle_at(files.new_path(piece.key))
                piece.first_id = checkpoint_id
                self._own[piece] = None
                begun.append(piece)
        return begun

    def ended(self, pieces: Sequence[Piece], *, is_durable: bool) -> None:
        """Handle the end of a write. The store has only files that were written completely (TE-8)."""
        for piece in pieces:
            if self._is_closed or piece.is_durable:
                continue
            piece.is_durable = is_durable
            # If a newer checkpoint completed during the write, the file may no longer be needed. ``_sweep`` then
            # deletes it.
            if is_durable and piece in self._own:
                assert piece.handle is not None
                self._env.files.write(piece.handle.path, piece.content)
            elif not is_durable:
                self._own.pop(piece, None)
                piece.handle = None
                piece.first_id = 0
            waiting, piece.waiting = piece.waiting, []
            for told in waiting:
                told(is_durable)

    @property
    def keeps_writing(self) -> bool:
        """Whether the writes for a checkpoint go on when it is given up: a log does not depend on checkpoints."""
        return isinstance(self.backend, ChangelogBackend)

    def hand_on(self, pieces: Iterable[Piece], checkpoint_id: int) -> None:
        """Let the next checkpoint count the files of one that was given up, as written for itself (ME-8)."""
        for piece in pieces:
            later = (k for k, taken in self._taken.items() if k != checkpoint_id and piece in taken)
            piece.first_id = min(later, default=0)

    def confirm(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint (IN-2)."""
        if self.backend is None:
            return
        for piece in self._taken.get(checkpoint_id, ()):
            piece.is_confirmed = True
        if checkpoint_id in self._taken:
            self._confirmed_id = max(self._confirmed_id, checkpoint_id)
        self.backend.confirm(checkpoint_id)
        for older in [k for k in self._taken if k <= checkpoint_id]:
            del self._taken[older]
        self._sweep(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """Handle the end of a checkpoint that does not complete."""
        if self.backend is None:
            return
        self._taken.pop(checkpoint_id, None)
        self.backend.abort(checkpoint_id)
        self.sweep()

    def sweep(self) -> None:
        """Delete the files that nothing refers to, because the backend has begun a shorter chain (IN-8)."""
        self._sweep(self._confirmed_id)

    def _sweep(self, completed_id: int) -> None:
        """Delete the files that nothing refers to.

        A file of an acknowledgement that may still be on its way is kept until a later checkpoint is complete.
        """
        assert self.backend is not None
        needed = {*self.backend.live, *(piece for pieces in self._taken.values() for piece in pieces)}
        for piece in [p for p in self._own if p not in needed and p.acknowledged_id <= completed_id]:
            del self._own[piece]
            if piece.handle is not None:
                self._env.files.release(piece.handle)

    @property
    def owned(self) -> tuple[Piece, ...]:
        """The files that this attempt has written or is writing, and has not deleted."""
        return tuple(self._own)

    def close(self) -> None:
        """Delete all files of this attempt that the registry does not own, because the attempt has ended."""
        self._is_closed = True
        for piece in self._own:
            if piece.handle is not None:
                self._env.files.release(piece.handle)
        self._own.clear()

    # --- restarts -------------------------------------------------------------------------------------------------

    def resume(self, checkpoint_id: int, snapshot: SubtaskSnapshot) -> None:
        """Continue from the files of a restored checkpoint, if the subtask owns the same key groups as before."""
        increment = next((o.increment for o in snapshot.operators if o.increment is not None), None)
        if increment is None or self.backend is None or not self._env.config.is_incremental:
            return
        if increment.backend is not self.backend.kind:
            # A claimed checkpoint may be of a job with another backend, whose files this one cannot extend (GR-4).
            return
        files = self._env.files
        contents = {handle.path: files.content(handle) for handle in increment.files}
        pieces = []
        for handle in increment.files:
            groups = groups_in(handle, contents, place=f"{self._spec.id}/{self._key[1]}")
            piece = Piece(handle.key, groups, handle.size_bytes, handle.change_count, handle)
            piece.is_durable = piece.is_confirmed = True
            piece.first_id = checkpoint_id
            pieces.append(piece)
        self._confirmed_id = checkpoint_id
        self.backend.resume(checkpoint_id, pieces)


class ContinuousLog:
    """Writes the changelog of a subtask between checkpoints (IN-7), and the whole state from time to time (IN-8).

    Does nothing with the other backends.
    """

    def __init__(self, task: TaskPort, increments: Increments) -> None:
        self._task = task
        self._env = task.env
        self._increments = increments
        self._backend = increments.backend if isinstance(increments.backend, ChangelogBackend) else None

    def start(self) -> None:
        """Schedule the writes. The first write of the whole state has a random offset, different for each subtask."""
        config, task = self._env.config, self._task
        if self._backend is None:
            return
        if config.changelog_flush_us:
            self._env.scheduler.after(config.changelog_flush_us, EventClass.TIMER, self._flush_due, None)
        offset_us = Stream(self._env.seed, f"materialize/{task.name}/{task.attempt}").below(config.materialize_us)
        self._env.scheduler.after(offset_us, EventClass.TIMER, self._materialize_due, None)

    def _flush_due(self, _: object) -> None:
        if not self._task.is_dead:
            self._task.mail(self._flush)
            self._env.scheduler.after(self._env.config.changelog_flush_us, EventClass.TIMER, self._flush_due, None)

    def _materialize_due(self, _: object) -> None:
        if not self._task.is_dead:
            self._task.mail(self._materialize)
            self._env.scheduler.after(self._env.config.materialize_us, EventClass.TIMER, self._materialize_due, None)

    def _flush(self, _: Any) -> None:
        assert self._backend is not None
        if self._backend.seal() is not None:
            # Write also what was sealed for a write of the whole state, or what an earlier write failed to write.
            self._write(self._backend.live)

    def _materialize(self, _: Any) -> None:
        assert self._backend is not None
        whole = self._backend.materialize()
        if whole is not None:
            self._task.cost_us += self._env.config.sync_ns_per_byte * whole.size_bytes // 1000
            whole.waiting.append(partial(self._materialized, whole))
            self._write([whole])

    def _materialized(self, whole: Piece, is_durable: bool) -> None:
        assert self._backend is not None
        self._backend.materialized(whole, is_durable=is_durable)
        self._increments.sweep()

    def _write(self, pieces: Iterable[Piece]) -> None:
        begun = self._increments.begin(pieces)
        done = partial(self._ended, begun, True)
        failed = partial(self._ended, begun, False)
        factor = factor_of(self._task.spec.slow_upload_factors, self._task.index)
        self._env.write(sum(piece.size_bytes for piece in begun), done, failed, factor)

    def _ended(self, pieces: list[Piece], is_durable: bool, _: object) -> None:
        if not self._task.is_dead:
            self._increments.ended(pieces, is_durable=is_durable)
