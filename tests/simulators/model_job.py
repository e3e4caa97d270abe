"""A model of a small job (T-8): one state of the job, and the steps that can follow it.

The job has two sources, a join and a sink, and triggers two checkpoints. Its input handlers are the runtime's own. A
record is just a number.

All other parts work as in the runtime. Each channel has a queue at the sender and a queue at the receiver, both with
a part for priority events. A channel can be blocked. Barriers are announced and converted, and data that arrives
before a barrier is copied. When a checkpoint is old, its timers may fire at any moment. Aborts may arrive at any
moment. A task that waits at its cap checks again whether its in-flight data fits when data leaves, and gives up after
a stall.

The invariants are in ``model_invariants.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from backend.runtime.core.elements import Alignment, Barrier, CancelMarker, blocks_upstream
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols import base as commands
from backend.runtime.protocols.base import COORDINATOR, Keeper
from backend.runtime.protocols.mode import InFlight, TaskView
from backend.runtime.protocols.registry import commands_at_source, keeper_of
from tests.simulators.model_handlers import Meter, ModelError, asked_of, copied, key_of
from tests.simulators.model_invariants import CHANNELS, INPUTS, OUTPUTS, TASKS, check_cut, check_end

TIMEOUT_US = 10
_OLD_US = 11
_JOIN = 2
_TO_SINK = 2


class World:
    """One state of the job. ``steps`` lists the steps that are possible in this state."""

    def __init__(
        self,
        alignment: Alignment,
        timeout_us: int | None,
        records: int,
        *,
        most_pending: int = 1,
        checkpoints: int = 2,
        expires: bool = True,
        cap: int | None = None,
        on_cap: str = "wait",
        stalls: bool = False,
        triggers_all: bool = False,
    ) -> None:
        """Build the initial state. ``cap`` is the number of in-flight records that a task may persist.

        With ``triggers_all``, the coordinator triggers checkpoints at every task, not only at the sources (CL-7).

        With ``stalls``, a task whose in-flight data does not fit the cap may give up waiting.
        """
        self.alignment, self.timeout_us = alignment, timeout_us
        self.records, self.most_pending = records, most_pending
        self.checkpoints, self.expires = checkpoints, expires
        self.cap, self.on_cap, self.stalls = cap, on_cap, stalls
        self.triggers_all = triggers_all
        self.meter = Meter()
        self.names: tuple[str, ...] = tuple(vars(self))
        self.emitted = [0, 0, 0]
        self.consumed = [0, 0, 0]
        self.sending: list[tuple[Any, ...]] = [(), (), ()]
        self.priority_out: list[tuple[Any, ...]] = [(), (), ()]
        self.blocked = [False] * 3
        self.queue: list[tuple[Any, ...]] = [(), (), ()]
        self.priority: list[tuple[Any, ...]] = [(), (), ()]
        self.arrived = [0, 0, 0]
        """For each channel: the newest checkpoint whose barrier has arrived."""
        self.front = [0, 0, 0]
        """For each channel: the number of items in its queue that arrived before that barrier."""
        self.copying = [0, 0, 0]
        """For each channel: the checkpoint for which arriving records are copied, or 0."""
        self.closed = [False] * 3
        """For each channel: whether only the items before the cut are read (CAP-3)."""
        is_exact = self.alignment is not Alignment.AT_LEAST_ONCE
        view = TaskView(cap=asked_of(self.meter, cap, on_cap), has_front=lambda: self.meter.now.input_bytes > 0)
        self.keepers = [keeper_of(len(inputs), RuntimeConfig(is_exactly_once=is_exact), view) for inputs in INPUTS]
        self.waits_for_room = frozenset[tuple[int, int]]()
        """(task, checkpoint) pairs: the task waits for its last barrier, and then until its in-flight data fits its
        cap.
        """
        self.is_recheck_due = False
        """Whether some output of the join has left.

        The join then gets a mail to check again whether its in-flight data fits the cap.
        """
        self.last = [0] * 4
        self.told_aborted: list[frozenset[int]] = [frozenset()] * 4
        self.open_inputs: frozenset[tuple[int, int]] = frozenset()
        """(task, checkpoint) pairs: the task has taken its state, but has not received all barriers."""
        self.waiting_outputs: frozenset[tuple[int, int, int]] = frozenset()
        """(task, checkpoint, channel) triples: the barrier is in the output queue, and may still overtake data there.
        """
        self.room: dict[tuple[int, int], int] = {}
        """How many records of output may be in front of the waiting barrier when it overtakes (CAP-3), by (task,
        checkpoint). Contains only barriers that wait for room.
        """
        self.timers: frozenset[tuple[int, int]] = frozenset()
        self.old: frozenset[int] = frozenset()
        self.triggers: frozenset[tuple[int, int]] = frozenset()
        self.aborts: frozenset[tuple[int, int]] = frozenset()
        self.pending: dict[int, frozenset[int]] = {}
        self.ended: dict[int, str] = {}
        self.sent: dict[tuple[int, int, int], int] = {}
        self.done: dict[tuple[int, int, int], int] = {}
        self.passed: dict[tuple[int, int, int], int] = {}
        """Number of records that the task had read from the channel when it read the barrier, by (task, checkpoint,
        channel). ``sent`` and ``done`` have the same keys. All three contain pending checkpoints only.
        """
        self.persisted: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self.next_id = 1
        # ``names`` lists the attributes that can change from state to state. The attributes set before ``names``
        # never change.
        self.names = tuple(name for name in vars(self) if name not in (*self.names, "names", "keepers"))
        self.keys = [key_of(keeper) for keeper in self.keepers]

    def _asked(self, task: int, ask: Callable[[Keeper], list[commands.Command]]) -> list[commands.Command]:
        """Call the task's handler in this state, and return its commands.

        The handler is copied, because earlier states share it.
        """
        keeper = self.keepers[task] = copied(self.keepers[task])
        if self.cap is not None:
            in_front = sum(isinstance(item, int) for c in INPUTS[task] for item in self.queue[c][: self.front[c]])
            self.meter.now = InFlight(in_front, self._output(task))
        given = ask(keeper)
        self.keys[task] = key_of(keeper)
        return given

    def _output(self, task: int) -> int:
        return sum(isinstance(item, int) for c in OUTPUTS[task] for item in self.sending[c])

    def copied(self) -> World:
        """Return a copy of this state, to which the next step is then applied."""
        new = copy(self)
        for name, held in vars(self).items():
            if isinstance(held, list | dict):
                setattr(new, name, held.copy())
        return new

    def key(self) -> tuple[Any, ...]:
        """Return a hashable key. Equal states have equal keys."""
        own = vars(self)
        held = [own[name] for name in self.names]
        return (
            *self.keys,
            *(
                tuple(each) if isinstance(each, list) else frozenset(each.items()) if isinstance(each, dict) else each
                for each in held
            ),
        )

    def check_end(self) -> None:
        """Check a state without a next step.

        Raises:
            ModelError: something is left.
        """
        check_end(self)

    # --- next steps -----------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        """Yield (name, function) for each step that is possible now."""
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
        for task, k in sorted({w[:2] for w in self.waiting_outputs if w[1] in self.old and w[:2] not in self.room}):
            yield f"output{task}/{k}", lambda w, t=task, k=k: w._let_overtake(t, k)
        for task, k in sorted(self.room):
            if self._is_in_room(task, k):
                yield f"room{task}/{k}", lambda w, t=task, k=k: w._let_overtake(t, k)
        for task, k in sorted(self.waits_for_room) if self.stalls else ():
            yield f"stall{task}/{k}", lambda w, t=task, k=k: w._stall(t, k)
        for c in range(3):
            if self.priority_out[c] or (self.sending[c] and not self.blocked[c]):
                yield f"deliver{c}", lambda w, c=c: w._deliver(c)
        # Priority events are read first. A mail runs before any other item is read (MB-1).
        first = [c for c in INPUTS[_JOIN] if self.priority[c]]
        if self.is_recheck_due:
            yield "recheck", World._recheck_by_mail
        for c in first or [c for c in INPUTS[_JOIN] if self._has_more(c) and not self.is_recheck_due]:
            yield f"read{c}", lambda w, c=c, p=bool(first): w._read(c, is_priority=p)

    def settle(self) -> None:
        """Apply the steps whose order does not matter: the sink's reads, and the aborts at all tasks but the join.

        Raises:
            ModelError: a read takes nothing out of the sink's queue (INV-9).
        """
        for task, k in sorted(self.aborts):
            if task != _JOIN:
                self._abort(task, k)
        # Nothing arrives at the sink meanwhile, so it reads each item once.
        left = len(self.priority[_TO_SINK]) + len(self.queue[_TO_SINK])
        while self.priority[_TO_SINK] or self._has_more(_TO_SINK):
            if not left:
                raise ModelError(
                    f"INV-9: the sink reads channel {_TO_SINK} and its queue gets no shorter: each read must take one"
                    " item out of it, see the commands that the input handler returned",
                    (),
                )
            left -= 1
            self._read(_TO_SINK, is_priority=bool(self.priority[_TO_SINK]))

    def _has_more(self, c: int) -> bool:
        return bool(self.queue[c]) and (not self.closed[c] or self.front[c] > 0)

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        k, self.next_id = self.next_id, self.next_id + 1
        self.pending[k] = frozenset(TASKS)
        self.triggers |= {(task, k) for task in (TASKS if self.triggers_all else (0, 1))}

    def _acknowledge(self, task: int, k: int) -> None:
        if k not in self.pending:
            return
        self.pending[k] -= {task}
        if not self.pending[k]:
            del self.pending[k]
            self.ended[k] = "completed"
            check_cut(self, k)
            self._forget(k)
            for older in [o for o in self.pending if o < k]:
                self._give_up(older)

    def _give_up(self, k: int) -> None:
        if self.pending.pop(k, None) is not None:
            self.ended[k] = "failed"
            self._forget(k)
            self.aborts |= {(task, k) for task in TASKS}

    def _forget(self, k: int) -> None:
        for books in (self.sent, self.done, self.passed):
            for key in [key for key in books if key[1] == k]:
                del books[key]
        for where in [where for where in self.persisted if where[0] == k]:
            del self.persisted[where]

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _emit(self, task: int) -> None:
        for c in OUTPUTS[task]:
            self.sending[c] += (self.emitted[c],)
            self.emitted[c] += 1

    def _trigger(self, source: int, k: int) -> None:
        self.triggers -= {(source, k)}
        if k <= self.last[source]:
            return
        if k in self.told_aborted[source]:
            self._cancel(source, k)
            return
        barrier = Barrier(k, 0, self.alignment, self.timeout_us, is_capped=self.cap is not None)
        if INPUTS[source]:
            self._execute(source, self._asked(source, lambda keeper: keeper.barrier(COORDINATOR, barrier, 0)), k)
            return
        given = self._asked_at_source(source, barrier)
        if isinstance(given, commands.GiveUp):
            self._cancel(source, k)
            self._give_up(k)
            return
        assert isinstance(given, commands.Snapshot)
        self._snapshot(source, given)
        self._advance(source, k)

    def _asked_at_source(self, source: int, barrier: Barrier) -> commands.Command:
        self.meter.now = InFlight(0, self._output(source))
        (given,) = commands_at_source(barrier, TaskView(cap=asked_of(self.meter, self.cap, self.on_cap)))
        return given

    def _age(self, k: int) -> None:
        self.old |= {k}

    def _abort(self, task: int, k: int) -> None:
        self.aborts -= {(task, k)}
        self.told_aborted[task] |= {k}
        given = self._asked(task, lambda keeper: keeper.aborted(k)) if INPUTS[task] else []
        self._execute(task, given, k)
        if given:
            self._cancel(task, k)
        self._drop(task, k)

    def _timer(self, task: int, k: int) -> None:
        self.timers -= {(task, k)}
        self._execute(task, self._asked(task, lambda keeper: keeper.timer(k, _OLD_US)), k)

    def _stall(self, task: int, k: int) -> None:
        self._execute(task, self._asked(task, lambda keeper: keeper.timer(k, 0)), k)

    def _recheck_by_mail(self) -> None:
        self.is_recheck_due = False
        self._recheck(_JOIN)

    def _recheck(self, task: int) -> None:
        for of_task, k in self.waits_for_room:
            if of_task == task:
                self._execute(task, self._asked(task, lambda keeper: keeper.recheck(0)), k)

    def _let_overtake(self, task: int, k: int) -> None:
        for of_task, of_k, c in sorted(self.waiting_outputs):
            if (of_task, of_k) == (task, k):
                at = next(i for i, item in enumerate(self.sending[c]) if _is_barrier(item, k))
                self._persist(k, c, "out", [item for item in self.sending[c][:at] if isinstance(item, int)])
                self.priority_out[c] += (self.sending[c][at].as_unaligned(),)
                self.sending[c] = self.sending[c][:at] + self.sending[c][at + 1 :]
                self.waiting_outputs -= {(task, k, c)}
        self.room.pop((task, k), None)
        self._advance(task, k)

    def _is_in_room(self, task: int, k: int) -> bool:
        front = 0
        for c in OUTPUTS[task]:
            at = next((i for i, item in enumerate(self.sending[c]) if _is_barrier(item, k)), 0)
            front += sum(isinstance(item, int) for item in self.sending[c][:at])
        return front <= self.room[task, k]

    def _deliver(self, c: int) -> None:
        if self.priority_out[c]:
            item, self.priority_out[c] = self.priority_out[c][0], self.priority_out[c][1:]
        else:
            item, self.sending[c] = self.sending[c][0], self.sending[c][1:]
        sender = CHANNELS[c][0]
        if isinstance(item, int):
            if any(task == sender for task, _ in self.waits_for_room):
                self.is_recheck_due = True
            if self.copying[c]:
                self._persist(self.copying[c], c, "in", [item])
            self.queue[c] += (item,)
            return
        if isinstance(item, Barrier):
            k = item.checkpoint_id
            self.arrived[c], self.front[c] = k, len(self.queue[c])
            if k >= self.copying[c]:
                self.copying[c] = 0
            if (sender, k, c) in self.waiting_outputs:
                self.waiting_outputs -= {(sender, k, c)}
                self.room.pop((sender, k), None)
                self._advance(sender, k)
            if item.is_priority:
                self.priority[c] += (item,)
                return
            if item.is_announced:
                self.priority[c] += (("announced", item),)
        self.blocked[c] = self.blocked[c] or blocks_upstream(item)
        self.queue[c] += (item,)

    def _read(self, c: int, *, is_priority: bool) -> None:
        _, task, channel = CHANNELS[c]
        source = self.priority if is_priority else self.queue
        item, source[c] = source[c][0], source[c][1:]
        if not is_priority:
            self.front[c] = max(0, self.front[c] - 1)
        if isinstance(item, int):
            if item != self.consumed[c]:
                raise ModelError(f"INV-1: channel {c}: record {item} after {self.consumed[c]} others", ())
            self.consumed[c] += 1
            self._emit(task)
            self._recheck(task)
            return
        if isinstance(item, CancelMarker):
            k, before = item.checkpoint_id, self.keepers[task].pending_id
            self._execute(task, self._asked(task, lambda keeper: keeper.cancel(k, channel)), k)
            if before is not None and before < k:
                self._drop(task, before)
            return
        is_announced = isinstance(item, tuple)
        barrier = item[1] if is_announced else item
        now_us = _OLD_US if barrier.checkpoint_id in self.old else 0
        if barrier.alignment is Alignment.AT_LEAST_ONCE and barrier.checkpoint_id in self.pending:
            self.passed[task, barrier.checkpoint_id, c] = self.consumed[c]

        def ask(keeper: Keeper) -> list[commands.Command]:
            return (keeper.announcement if is_announced else keeper.barrier)(channel, barrier, now_us)

        self._execute(task, self._asked(task, ask), barrier.checkpoint_id)

    def _execute(self, task: int, given: list[commands.Command], k: int) -> None:
        for command in given:
            match command:
                case commands.Resume(channel=channel):
                    self.blocked[INPUTS[task][channel]] = False
                case commands.Convert(channel=channel):
                    self._convert(INPUTS[task][channel], k)
                case commands.Close(channel=channel):
                    self.closed[INPUTS[task][channel]] = True
                case commands.Reopen(channel=channel):
                    self.closed[INPUTS[task][channel]] = False
                case commands.SetTimer():
                    self.timers |= {(task, k)}
                case commands.SetStallTimer():
                    self.waits_for_room |= {(task, k)}
                case commands.Persist():
                    self._start_copies(task, k)
                case commands.Snapshot():
                    self._snapshot(task, command)
                    self.open_inputs |= {(task, k)}
                case commands.Ended():
                    self._ended(task)
                case commands.Forget(checkpoint_id=lost):
                    self._drop(task, lost)
                case commands.GiveUp(checkpoint_id=lost):
                    self._drop(task, lost)
                    self._cancel(task, lost)
                    self._give_up(lost)
        if self.keepers[task].pending_id != k and (task, k) in self.open_inputs:
            # An aligned checkpoint receives its last barrier before the task takes its state, so its input is
            # complete.
            self.open_inputs -= {(task, k)}
            self._advance(task, k)

    def _convert(self, c: int, k: int) -> None:
        for at, item in enumerate(self.queue[c]):
            if _is_barrier(item, k):
                self.queue[c] = self.queue[c][:at] + self.queue[c][at + 1 :]
                self.priority[c] += (item,)
                return

    def _start_copies(self, task: int, k: int) -> None:
        for c in INPUTS[task]:
            has_arrived = self.arrived[c] == k
            in_front = self.queue[c][: self.front[c]] if has_arrived else self.queue[c]
            self._persist(k, c, "in", [item for item in in_front if isinstance(item, int)])
            self.copying[c] = 0 if has_arrived else k

    def _snapshot(self, task: int, given: commands.Snapshot) -> None:
        barrier = given.barrier
        k = barrier.checkpoint_id
        self._stop_waiting(task)
        self.last[task] = k
        for older in {(t, o) for t, o, _ in self.waiting_outputs if t == task and o < k}:
            self._drop(*older)
            self._cancel(*older)
            self._give_up(older[1])
        is_pending = k in self.pending
        for c in INPUTS[task] if is_pending else ():
            self.done[task, k, c] = self.consumed[c]
        for c in OUTPUTS[task]:
            if is_pending:
                self.sent[task, k, c] = self.emitted[c]
            if barrier.is_priority and not given.overtakes_later:
                self._overtake(c, barrier, given.output_bytes_max)
                continue
            self.sending[c] += (barrier,)
            if barrier.is_timeoutable or given.overtakes_later:
                self.waiting_outputs |= {(task, k, c)}
            if given.overtakes_later:
                assert given.output_bytes_max is not None
                self.room[task, k] = given.output_bytes_max

    def _overtake(self, c: int, barrier: Barrier, most: int | None) -> None:
        data = [item for item in self.sending[c] if isinstance(item, int)]
        if most is None or len(data) <= most:
            self._persist(barrier.checkpoint_id, c, "out", data)
            self.priority_out[c] += (barrier,)
            return
        # Insert the barrier at the position from which it overtakes only as many records as the cap allows (CAP-5).
        at = len(self.sending[c])
        while at and not (isinstance(self.sending[c][at - 1], int) and most == 0):
            at -= 1
            most -= isinstance(self.sending[c][at], int)
        self._persist(barrier.checkpoint_id, c, "out", [item for item in self.sending[c][at:] if isinstance(item, int)])
        self.sending[c] = (*self.sending[c][:at], barrier, *self.sending[c][at:])

    def _ended(self, task: int) -> None:
        for c in INPUTS[task]:
            self.copying[c], self.closed[c] = 0, False
        self._stop_waiting(task)

    def _stop_waiting(self, task: int) -> None:
        self.waits_for_room = frozenset(waiting for waiting in self.waits_for_room if waiting[0] != task)

    def _advance(self, task: int, k: int) -> None:
        is_waiting = (task, k) in self.open_inputs or any((t, o) == (task, k) for t, o, _ in self.waiting_outputs)
        if not is_waiting and self.last[task] == k and k not in self.told_aborted[task]:
            self._acknowledge(task, k)

    def _drop(self, task: int, k: int) -> None:
        self.open_inputs -= {(task, k)}
        self.waiting_outputs = frozenset(w for w in self.waiting_outputs if w[:2] != (task, k))
        self.room.pop((task, k), None)

    def _cancel(self, task: int, k: int) -> None:
        self.last[task] = max(self.last[task], k)
        for c in OUTPUTS[task]:
            self.sending[c] += (CancelMarker(k),)

    def _persist(self, k: int, c: int, side: str, records: list[int]) -> None:
        if records and k in self.pending:
            self.persisted[k, c, side] = self.persisted.get((k, c, side), ()) + tuple(records)


def _is_barrier(item: Any, k: int) -> bool:
    return isinstance(item, Barrier) and item.checkpoint_id == k
