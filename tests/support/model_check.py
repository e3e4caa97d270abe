"""Every interleaving of a small job, over the real input handlers (T-8): two sources, a join, a sink, two checkpoints.

Records are numbers on channels; everything else is as the runtime does it: two queues a channel with a blocking sender
and a priority part, announcements, conversions, copies of what is in front of a barrier, timers that fire at any moment
once a checkpoint is old, aborts that arrive whenever. States seen before are not gone into again. In each one that a
checkpoint completes in, INV-1 to INV-3 must hold; in each that nothing follows, nothing may be left (INV-9).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from backend.runtime.elements import Alignment, Barrier, CancelMarker, blocks_upstream
from backend.runtime.protocols import base as commands
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.aligned_timeout import AlignedTimeout
from backend.runtime.protocols.base import CheckpointProtocol, Gatekeeper
from backend.runtime.protocols.unaligned import Unaligned

_TIMEOUT_US = 10
_OLD_US = 11
_JOIN, _SINK = 2, 3
# Channel: (sender, receiver, place among the receiver's inputs).
_CHANNELS = ((0, _JOIN, 0), (1, _JOIN, 1), (_JOIN, _SINK, 0))
_INPUTS: tuple[tuple[int, ...], ...] = ((), (), (0, 1), (2,))
_OUTPUTS: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), ())
_TASKS = range(4)
_TO_SINK = 2


class ModelError(AssertionError):
    """A state that must not be; ``path`` leads there."""

    def __init__(self, problem: str, path: tuple[str, ...]) -> None:
        self.path = path
        super().__init__(f"{problem}; by {' '.join(path)}")


class TooManyStatesError(Exception):
    """There are more than were to be gone through; none of those seen breaks an invariant."""


def make_protocol(barrier: Barrier, open_channels: frozenset[int]) -> CheckpointProtocol:
    """As a task makes it."""
    if barrier.alignment is Alignment.UNALIGNED:
        return Unaligned(open_channels)
    return AlignedTimeout(barrier, open_channels) if barrier.is_timeoutable else Aligned(open_channels)


def _copied(value: Any) -> Any:
    """A handler with sets and a nested handler of its own."""
    if value is None:
        return None
    new = copy(value)
    for name, held in vars(value).items():
        if isinstance(held, set | dict):
            setattr(new, name, held.copy())
        elif isinstance(held, Unaligned | Aligned | AlignedTimeout):
            setattr(new, name, _copied(held))
    return new


def _key(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, dict):
        return tuple(value)
    if isinstance(value, Gatekeeper | Unaligned | Aligned | AlignedTimeout):
        return tuple(_key(held) for name, held in sorted(vars(value).items()) if name != "_make")
    return value


class World:
    """One state of the job."""

    def __init__(
        self,
        alignment: Alignment,
        timeout_us: int | None,
        records: int,
        *,
        most_pending: int = 1,
        checkpoints: int = 2,
        expires: bool = True,
    ) -> None:
        self.alignment, self.timeout_us = alignment, timeout_us
        self.records, self.most_pending = records, most_pending
        self.checkpoints, self.expires = checkpoints, expires
        self.emitted = [0, 0, 0]
        self.consumed = [0, 0, 0]
        self.sending: list[tuple[Any, ...]] = [(), (), ()]
        self.priority_out: list[tuple[Any, ...]] = [(), (), ()]
        self.blocked = [False] * 3
        self.queue: list[tuple[Any, ...]] = [(), (), ()]
        self.priority: list[tuple[Any, ...]] = [(), (), ()]
        self.arrived = [0, 0, 0]
        """The newest barrier that arrived, by channel."""
        self.front = [0, 0, 0]
        """How much of a channel's queue came before that barrier."""
        self.copying = [0, 0, 0]
        """For which checkpoint a channel copies what arrives; 0: for none."""
        self.keepers = [Gatekeeper(len(inputs), make_protocol) for inputs in _INPUTS]
        self.last = [0] * 4
        self.told_aborted: list[frozenset[int]] = [frozenset()] * 4
        self.open_inputs: frozenset[tuple[int, int]] = frozenset()
        """(task, checkpoint): has taken its state, and its input is not complete."""
        self.waiting_outputs: frozenset[tuple[int, int, int]] = frozenset()
        """(task, checkpoint, channel): a barrier that may yet overtake."""
        self.timers: frozenset[tuple[int, int]] = frozenset()
        self.old: frozenset[int] = frozenset()
        self.triggers: frozenset[tuple[int, int]] = frozenset()
        self.aborts: frozenset[tuple[int, int]] = frozenset()
        self.pending: dict[int, frozenset[int]] = {}
        self.ended: dict[int, str] = {}
        self.sent: dict[tuple[int, int, int], int] = {}
        self.done: dict[tuple[int, int, int], int] = {}
        """By (task, checkpoint, channel), of checkpoints that are pending."""
        self.persisted: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self.next_id = 1

    def copied(self) -> World:
        """A state to go on from."""
        new = copy(self)
        for name, held in vars(self).items():
            if isinstance(held, list | dict):
                setattr(new, name, held.copy())
        new.keepers = [_copied(keeper) for keeper in self.keepers]
        return new

    def key(self) -> tuple[Any, ...]:
        """Equal for equal states."""
        return tuple(
            tuple(map(_key, held))
            if isinstance(held, list)
            else frozenset(held.items())
            if isinstance(held, dict)
            else held
            for held in vars(self).values()
        )

    # --- what may happen next -------------------------------------------------------------------------------------

    def steps(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        """Every event that is possible now."""
        if self.next_id <= self.checkpoints and len(self.pending) < self.most_pending:
            yield f"begin{self.next_id}", World._begin
        for k in self.pending:
            if k == 1 and self.expires:
                yield f"expire{k}", lambda w, k=k: w._give_up(k)
        if self.timeout_us:
            for k in range(1, self.next_id):
                if k not in self.old:
                    yield f"age{k}", lambda w, k=k: w._age(k)
        for source in (0, 1):
            if self.emitted[source] < self.records:
                yield f"emit{source}", lambda w, s=source: w._emit(s)
        for source, k in sorted(self.triggers):
            yield f"trigger{source}/{k}", lambda w, s=source, k=k: w._trigger(s, k)
        for task, k in sorted(self.aborts):
            yield f"abort{task}/{k}", lambda w, t=task, k=k: w._abort(t, k)
        for task, k in sorted(self.timers):
            if k in self.old:
                yield f"timer{task}/{k}", lambda w, t=task, k=k: w._timer(t, k)
        for task, k in sorted({(t, k) for t, k, _ in self.waiting_outputs if k in self.old}):
            yield f"output{task}/{k}", lambda w, t=task, k=k: w._output_timer(t, k)
        for c in range(3):
            if self.priority_out[c] or (self.sending[c] and not self.blocked[c]):
                yield f"deliver{c}", lambda w, c=c: w._deliver(c)
        # A mail runs before any element (MB-1).
        first = [c for c in _INPUTS[_JOIN] if self.priority[c]]
        for c in first or [c for c in _INPUTS[_JOIN] if self.queue[c]]:
            yield f"read{c}", lambda w, c=c, p=bool(first): w._read(c, is_priority=p)

    def settle(self) -> None:
        """What nobody else can see the order of: the sink reads at once, and aborts reach all but the join at once."""
        for task, k in sorted(self.aborts):
            if task != _JOIN:
                self._abort(task, k)
        while self.priority[_TO_SINK] or self.queue[_TO_SINK]:
            self._read(_TO_SINK, is_priority=bool(self.priority[_TO_SINK]))

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        k, self.next_id = self.next_id, self.next_id + 1
        self.pending[k] = frozenset(_TASKS)
        self.triggers |= {(0, k), (1, k)}

    def _acknowledge(self, task: int, k: int) -> None:
        if k not in self.pending:
            return
        self.pending[k] -= {task}
        if not self.pending[k]:
            del self.pending[k]
            self.ended[k] = "completed"
            self._check(k)
            self._forget(k)
            for older in [o for o in self.pending if o < k]:
                self._give_up(older)

    def _give_up(self, k: int) -> None:
        if self.pending.pop(k, None) is not None:
            self.ended[k] = "failed"
            self._forget(k)
            self.aborts |= {(task, k) for task in _TASKS}

    def _forget(self, k: int) -> None:
        for books in (self.sent, self.done, self.persisted):
            for key in [key for key in books if k == key[1 if books is not self.persisted else 0]]:
                del books[key]

    def _check(self, k: int) -> None:
        for c, (sender, receiver, _) in enumerate(_CHANNELS):
            sent, done = self.sent[sender, k, c], self.done[receiver, k, c]
            between = tuple(range(done, sent))
            found = self.persisted.get((k, c, "in"), ()) + self.persisted.get((k, c, "out"), ())
            if done > sent:
                raise ModelError(f"INV-3: checkpoint {k}, channel {c}: {done} read, {sent} sent", ())
            if found != between:
                raise ModelError(f"INV-2: checkpoint {k}, channel {c}: persisted {found}, not {between}", ())

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _emit(self, task: int) -> None:
        for c in _OUTPUTS[task]:
            self.sending[c] += (self.emitted[c],)
            self.emitted[c] += 1

    def _trigger(self, source: int, k: int) -> None:
        self.triggers -= {(source, k)}
        if k <= self.last[source]:
            return
        if k in self.told_aborted[source]:
            self._cancel(source, k)
            return
        self._snapshot(source, Barrier(k, 0, self.alignment, self.timeout_us))
        self._advance(source, k)

    def _age(self, k: int) -> None:
        self.old |= {k}

    def _abort(self, task: int, k: int) -> None:
        self.aborts -= {(task, k)}
        self.told_aborted[task] |= {k}
        if _INPUTS[task]:
            self._execute(task, self.keepers[task].aborted(k), k)
        self._drop(task, k)

    def _timer(self, task: int, k: int) -> None:
        self.timers -= {(task, k)}
        self._execute(task, self.keepers[task].timer(k, _OLD_US), k)

    def _output_timer(self, task: int, k: int) -> None:
        for of_task, of_k, c in sorted(self.waiting_outputs):
            if (of_task, of_k) == (task, k):
                at = next(i for i, item in enumerate(self.sending[c]) if _is_barrier(item, k))
                self._persist(k, c, "out", [item for item in self.sending[c][:at] if isinstance(item, int)])
                self.priority_out[c] += (self.sending[c][at].as_unaligned(),)
                self.sending[c] = self.sending[c][:at] + self.sending[c][at + 1 :]
                self.waiting_outputs -= {(task, k, c)}
        self._advance(task, k)

    def _deliver(self, c: int) -> None:
        if self.priority_out[c]:
            item, self.priority_out[c] = self.priority_out[c][0], self.priority_out[c][1:]
        else:
            item, self.sending[c] = self.sending[c][0], self.sending[c][1:]
        sender = _CHANNELS[c][0]
        if isinstance(item, int):
            if self.copying[c]:
                self._persist(self.copying[c], c, "in", [item])
            self.queue[c] += (item,)
            return
        if isinstance(item, Barrier):
            k = item.checkpoint_id
            self.arrived[c], self.front[c] = k, len(self.queue[c])
            if k >= self.copying[c]:
                self.copying[c] = 0
            if not item.is_blocking:
                self.priority[c] += (item,)
                return
            if (sender, k, c) in self.waiting_outputs:
                self.waiting_outputs -= {(sender, k, c)}
                self._advance(sender, k)
            if item.is_timeoutable:
                self.priority[c] += (("announced", item),)
        self.blocked[c] = self.blocked[c] or blocks_upstream(item)
        self.queue[c] += (item,)

    def _read(self, c: int, *, is_priority: bool) -> None:
        _, task, channel = _CHANNELS[c]
        source = self.priority if is_priority else self.queue
        item, source[c] = source[c][0], source[c][1:]
        if not is_priority:
            self.front[c] = max(0, self.front[c] - 1)
        if isinstance(item, int):
            if item != self.consumed[c]:
                raise ModelError(f"INV-1: channel {c}: record {item} after {self.consumed[c]} others", ())
            self.consumed[c] += 1
            self._emit(task)
            return
        keeper = self.keepers[task]
        if isinstance(item, CancelMarker):
            k, before = item.checkpoint_id, keeper.pending_id
            self._execute(task, keeper.cancel(k, channel), k)
            if before is not None and before < k:
                self._drop(task, before)
            return
        is_announced = isinstance(item, tuple)
        barrier = item[1] if is_announced else item
        now_us = _OLD_US if barrier.checkpoint_id in self.old else 0
        handle = keeper.announcement if is_announced else keeper.barrier
        self._execute(task, handle(channel, barrier, now_us), barrier.checkpoint_id)

    def _execute(self, task: int, given: list[commands.Command], k: int) -> None:
        for command in given:
            match command:
                case commands.Resume(channel=channel):
                    self.blocked[_INPUTS[task][channel]] = False
                case commands.Convert(channel=channel):
                    self._convert(_INPUTS[task][channel], k)
                case commands.SetTimer():
                    self.timers |= {(task, k)}
                case commands.Persist():
                    self._start_copies(task, k)
                case commands.Snapshot(barrier=barrier):
                    self._snapshot(task, barrier)
                    self.open_inputs |= {(task, k)}
                case commands.Ended():
                    self._ended(task, k)
                case commands.GiveUp(checkpoint_id=lost):
                    self._drop(task, lost)
                    self._cancel(task, lost)
                    self._give_up(lost)
        pending = self.keepers[task].pending_id
        if pending is None and (task, k) in self.open_inputs:
            # The aligned ones end before they take their state.
            self.open_inputs -= {(task, k)}
            self._advance(task, k)

    def _convert(self, c: int, k: int) -> None:
        for at, item in enumerate(self.queue[c]):
            if _is_barrier(item, k):
                self.queue[c] = self.queue[c][:at] + self.queue[c][at + 1 :]
                self.priority[c] += (item,)
                return

    def _start_copies(self, task: int, k: int) -> None:
        for c in _INPUTS[task]:
            has_arrived = self.arrived[c] == k
            in_front = self.queue[c][: self.front[c]] if has_arrived else self.queue[c]
            self._persist(k, c, "in", [item for item in in_front if isinstance(item, int)])
            self.copying[c] = 0 if has_arrived else k

    def _snapshot(self, task: int, barrier: Barrier) -> None:
        k = barrier.checkpoint_id
        self.last[task] = k
        for older in {(t, o) for t, o, _ in self.waiting_outputs if t == task and o < k}:
            self._drop(*older)
            self._cancel(*older)
            self._give_up(older[1])
        is_pending = k in self.pending
        for c in _INPUTS[task] if is_pending else ():
            self.done[task, k, c] = self.consumed[c]
        for c in _OUTPUTS[task]:
            if is_pending:
                self.sent[task, k, c] = self.emitted[c]
            if barrier.alignment is Alignment.UNALIGNED:
                self._persist(k, c, "out", [item for item in self.sending[c] if isinstance(item, int)])
                self.priority_out[c] += (barrier,)
                continue
            self.sending[c] += (barrier,)
            if barrier.is_timeoutable:
                self.waiting_outputs |= {(task, k, c)}

    def _ended(self, task: int, k: int) -> None:
        for c in _INPUTS[task]:
            self.copying[c] = 0

    def _advance(self, task: int, k: int) -> None:
        is_waiting = (task, k) in self.open_inputs or any((t, o) == (task, k) for t, o, _ in self.waiting_outputs)
        if not is_waiting and self.last[task] == k and k not in self.told_aborted[task]:
            self._acknowledge(task, k)

    def _drop(self, task: int, k: int) -> None:
        self.open_inputs -= {(task, k)}
        self.waiting_outputs = frozenset(w for w in self.waiting_outputs if w[:2] != (task, k))

    def _cancel(self, task: int, k: int) -> None:
        self.last[task] = max(self.last[task], k)
        for c in _OUTPUTS[task]:
            self.sending[c] += (CancelMarker(k),)

    def _persist(self, k: int, c: int, side: str, records: list[int]) -> None:
        if records and k in self.pending:
            self.persisted[k, c, side] = self.persisted.get((k, c, side), ()) + tuple(records)

    def check_end(self) -> None:
        """Nothing follows: everything was read, every checkpoint ended, and no channel waits."""
        if self.pending or any(self.blocked) or any(self.copying) or self.open_inputs or self.waiting_outputs:
            raise ModelError(f"INV-9: left {self.pending} {self.blocked} {self.copying} {self.open_inputs}", ())
        if self.consumed != [self.records, self.records, 2 * self.records]:
            raise ModelError(f"INV-5: consumed {self.consumed}", ())


def _is_barrier(item: Any, k: int) -> bool:
    return isinstance(item, Barrier) and item.checkpoint_id == k


def explore(start: World, *, most: int = 10_000_000) -> tuple[int, int, set[str]]:
    """(states, ends, how the checkpoints ended) of everything that can follow from ``start``.

    Raises:
        ModelError: a state breaks an invariant.

    """
    seen = {hash(start.key())}
    waiting: list[tuple[World, tuple[str, ...]]] = [(start, ())]
    ends, endings = 0, set[str]()
    while waiting:
        world, path = waiting.pop()
        steps = list(world.steps())
        try:
            if not steps:
                world.check_end()
                ends += 1
                endings |= {f"{k} {how}" for k, how in world.ended.items()}
            for name, step in steps:
                following = world.copied()
                try:
                    step(following)
                    following.settle()
                except ModelError as error:
                    raise ModelError(str(error).rpartition("; by")[0], (*path, name)) from None
                found = hash(following.key())
                if found not in seen:
                    seen.add(found)
                    waiting.append((following, (*path, name)))
        except ModelError as error:
            raise ModelError(str(error).rpartition("; by")[0], error.path or path) from None
        if len(seen) > most:
            raise TooManyStatesError(f"more than {most} states")
    return len(seen), ends, endings


STARTS: dict[str, Callable[[], World]] = {
    "aligned": lambda: World(Alignment.ALIGNED, None, 2, expires=False),
    "aligned, the first expires": lambda: World(Alignment.ALIGNED, None, 1),
    "aligned, two at once": lambda: World(Alignment.ALIGNED, None, 1, most_pending=2, expires=False),
    "unaligned": lambda: World(Alignment.UNALIGNED, None, 2, expires=False),
    "unaligned, the first expires": lambda: World(Alignment.UNALIGNED, None, 1),
    "aligned with timeout": lambda: World(Alignment.ALIGNED, _TIMEOUT_US, 1, expires=False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no state that was seen breaks an invariant; 1: one does, and the way there is printed."""
    parser = argparse.ArgumentParser(prog="make model-check", description="every interleaving of a small job (T-8)")
    parser.add_argument("--only", choices=[*STARTS], action="append")
    parser.add_argument("--most", type=int, default=1_000_000, help="give up beyond so many states")
    options = parser.parse_args(arguments)
    for name in options.only or STARTS:
        try:
            states, ends, endings = explore(STARTS[name](), most=options.most)
        except TooManyStatesError as error:
            print(f"{name}: {error}, none of which breaks an invariant", flush=True)
            continue
        except ModelError as error:
            print(f"{name}: {error}", flush=True)
            return 1
        print(f"{name}: {states} states, {ends} without a next one, checkpoints {sorted(endings)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
