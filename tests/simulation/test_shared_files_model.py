"""Goal: no order of events lets incremental checkpoints lose, keep or delete a wrong file (IN-2, IN-18, IN-19, T-8).

Method: explore every interleaving of one subtask and the coordinator, with the real backends, registry, files and
writes of snapshots. Two checkpoints are triggered, possibly at once. Writes end or fail, messages arrive in any order
or are lost, and the coordinator may abort at any moment. With three checkpoints, each message arrives at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, SubtaskCheckpoint, SubtaskSnapshot
from backend.runtime.operators.changes import consolidated
from backend.runtime.operators.state import KeyedStates, OperatorSnapshot
from backend.runtime.snapshot.shared_files import SharedFiles, groups_in, register_late, registered
from backend.runtime.task.channel_writing import OwnFile
from backend.runtime.task.increments import Increments
from backend.runtime.task.snapshots import Run, Snapshots

_Step = Callable[["World"], None]


@dataclass
class World:
    """One state. ``running`` has the snapshots that are not acknowledged, ``sent`` the messages on their way."""

    kind: StateBackend
    checkpoints: int
    is_connected: bool = False
    """Whether each message arrives immediately after it was sent."""
    next_id: int = 1
    files: SharedFiles = field(default_factory=SharedFiles)
    running: dict[int, OperatorSnapshot] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    writing: dict[int, tuple[Callable[[object], None], Callable[[object], None]]] = field(default_factory=dict)
    """The functions that each unfinished write calls when it ends or fails, by the number of the write."""
    begun_writes: int = 0
    pending: set[int] = field(default_factory=set)
    sent: dict[tuple[str, int], SubtaskSnapshot | None] = field(default_factory=dict)
    retained: tuple[int, SubtaskSnapshot] | None = None
    whole: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = RuntimeConfig(state_backend=self.kind, is_incremental=True, diff_chain_max=1, sst_runs_max=2)
        store = SimpleNamespace(cancel=self.cancel_write)
        env: Any = SimpleNamespace(files=self.files, config=config, write=self.write, store=store)
        spec = VertexSpec(id="view", kind=VertexKind.KEYED, name="view")
        self.increments = Increments(env, spec, (0, 0), 0)
        task: Any = SimpleNamespace(env=env, increments=self.increments, spec=spec, index=0, is_dead=False)
        self.snapshots = Snapshots(task, self.give_up, OwnFile(task))
        self.states = KeyedStates(subtask=0, parallelism=1, max_parallelism=2, backend=self.increments.backend)
        self.value = self.states.value(8)

    def steps(self) -> Iterator[_Step]:
        if self.next_id <= self.checkpoints:
            yield World.trigger
        for write in self.writing:
            yield lambda world, write=write: world.writing.pop(write)[0](None)
            yield lambda world, write=write: world.writing.pop(write)[1](None)
        for k, run in self.runs.items():
            if run.uploads and run.unwritten:
                yield lambda world, k=k: world.give_up(k)
            if not run.unwritten:
                yield lambda world, k=k: world.acknowledge(k)
        for message in self.sent:
            yield lambda world, message=message: world.arrive(*message)
            yield lambda world, message=message: world.sent.pop(message) and None
        for k in self.pending:
            yield lambda world, k=k: world.fail(k)

    # --- the subtask ----------------------------------------------------------------------------------------------

    def trigger(self) -> None:
        k, self.next_id = self.next_id, self.next_id + 1
        self.pending.add(k)
        for key in (0, k):
            self.value.set(key, k)
        self.increments.prepare(Barrier(k, 0, Alignment.ALIGNED))
        self.whole[k] = self.states.dump()
        self.running[k] = OperatorSnapshot(keyed=self.states.snapshot())
        run = self.runs[k] = Run(SubtaskCheckpoint(k, 0, 0), 0, 0, 0)
        run.pieces = self.increments.taken(k, [self.running[k]])
        self.snapshots._write_state(run)

    def write(
        self, size_bytes: int, done: Callable[[object], None], failed: Callable[[object], None], factor: float
    ) -> int:
        self.begun_writes += 1
        self.writing[self.begun_writes] = done, failed
        return self.begun_writes

    def cancel_write(self, write: int) -> None:
        self.writing.pop(write, None)

    def give_up(self, k: int, reason: object = None) -> None:
        """Drop and decline a checkpoint, because one of its writes failed, or for another reason."""
        self.drop(k)
        self.fail(k)

    def drop(self, k: int) -> None:
        if k in self.runs:
            del self.running[k]
            self.snapshots.cancel(self.runs.pop(k))
        self.increments.abort(k)

    def acknowledge(self, k: int) -> None:
        self.runs.pop(k).is_over = True
        operators = self.increments.acknowledged(k, (self.running.pop(k),))
        self.sent["ack", k] = SubtaskSnapshot(operators, ChannelState(), -1, 0, 0)

    # --- the coordinator ------------------------------------------------------------------------------------------

    def arrive(self, what: str, k: int) -> None:
        snapshot = self.sent.pop((what, k))
        if what == "abort":
            self.drop(k)
        elif what == "notify":
            self.increments.confirm(k)
        else:
            assert snapshot is not None
            if k not in self.pending:
                register_late(snapshot, k, self.files)
                return
            self.retained = (k, registered(snapshot, k, self.files))
            self.pending.discard(k)
            self.files.registry.unregister_unused(k)
            for older in [p for p in self.pending if p < k]:
                self.fail(older)
            self.sent["notify", k] = None

    def fail(self, k: int) -> None:
        if k in self.pending:
            self.pending.discard(k)
            self.sent["abort", k] = None

    def deliver(self) -> None:
        """If ``is_connected``, deliver all sent messages. Otherwise, do nothing."""
        while self.is_connected and self.sent:
            self.arrive(*next(iter(self.sent)))

    # --- checks ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if self.retained is None:
            return
        k, snapshot = self.retained
        increment = snapshot.operators[0].increment
        assert increment is not None
        contents = {file.path: self.files.content(file) for file in increment.files if file in self.files}
        groups = [groups_in(file, contents, place="view/0") for file in increment.files]
        assert consolidated(groups, increment.part_count) == self.whole[k]

    def check_end(self) -> None:
        needed = {piece.handle.path for piece in self.increments.owned if piece.handle is not None}
        newest = 0 if self.retained is None else self.retained[0]
        registry = self.files.registry
        if self.retained is not None:
            increment = self.retained[1].operators[0].increment
            assert increment is not None
            needed |= {file.path for file in increment.files}
        needed |= {path for path in registry.paths if registry.last_used_by(path) > newest}
        # Do what the completion of the next checkpoint would do: delete the files of late acknowledgements.
        registry.unregister_unused(newest)
        assert self.files.paths <= needed
        self.increments.close()
        registry.unregister_unused(self.next_id)
        assert not self.files.paths

    @property
    def key(self) -> object:
        """The part of the state on which the further steps depend.

        The numbers in paths are left out, because each key has at most one file at a time.
        """

        def pieces_of(pieces: Any) -> tuple[object, ...]:
            return tuple(
                (p.key, p.handle is None, p.is_durable, p.is_confirmed, p.acknowledged_id, len(p.waiting))
                for p in pieces
            )

        backend = self.increments.backend
        assert backend is not None
        return (
            self.next_id,
            tuple((k, run.unwritten, pieces_of(run.begun)) for k, run in sorted(self.runs.items())),
            len(self.writing),
            tuple(sorted(self.pending)),
            tuple(sorted(self.sent)),
            None if self.retained is None else self.retained[0],
            tuple(sorted(path.rpartition("-")[0] for path in self.files.paths)),
            tuple(sorted((key, e.last_used_by) for key, e in self.files.registry._entries.items())),
            tuple((k, pieces_of(pieces)) for k, pieces in sorted(self.increments._taken.items())),
            pieces_of(self.increments.owned),
            pieces_of(backend.live),
        )


def _explore(kind: StateBackend, checkpoints: int, *, is_connected: bool = False) -> tuple[int, int]:
    """Explore all states. Return the number of states, and the number of states without a further step."""
    start = World(kind, checkpoints, is_connected)
    seen, waiting, ends = {start.key}, [start], 0
    while waiting:
        world = waiting.pop()
        steps = len(list(world.steps()))
        if not steps:
            world.check_end()
            ends += 1
        for n in range(steps):
            following = deepcopy(world)
            list(following.steps())[n](following)
            following.deliver()
            following.check()
            if (key := following.key) not in seen:
                seen.add(key)
                waiting.append(following)
    return len(seen), ends


@pytest.mark.parametrize("kind", [StateBackend.DIFF, StateBackend.SST, StateBackend.CHANGELOG])
def test_no_order_of_events_loses_or_leaves_a_shared_file(kind: StateBackend) -> None:
    states, ends = _explore(kind, 2)
    assert states > 300
    assert ends > 3


@pytest.mark.parametrize("kind", [StateBackend.DIFF, StateBackend.SST, StateBackend.CHANGELOG])
def test_three_checkpoints_at_once_wait_for_the_same_files(kind: StateBackend) -> None:
    states, ends = _explore(kind, 3, is_connected=True)
    assert states > 70
    assert ends > 3


def test_the_exploration_finds_a_base_that_is_only_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged = Increments.acknowledged

    def hasty(self: Increments, checkpoint_id: int, operators: Any) -> Any:
        done = acknowledged(self, checkpoint_id, operators)
        for piece in self._taken.get(checkpoint_id, ()):
            piece.is_confirmed = True
        return done

    monkeypatch.setattr(Increments, "acknowledged", hasty)
    with pytest.raises(ProtocolViolationError, match="IN-15"):
        _explore(StateBackend.SST, 2)
