"""A model of a small job whose sources end (T-8): ``World`` with the end of the data and of the tasks.

The handlers, the decision when a task may close (``Ending``) and the plan of a checkpoint are the runtime's own. The
sink commits what it had received when a completed checkpoint was taken.

At any moment, a source without further records may end, a receiver's report that all data is processed may arrive, a
task may learn of a completed checkpoint, a task that may close may do so, and the coordinator may learn of that. A
checkpoint that begins after all data has ended is added as soon as nothing else is under way (FN-25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from backend.runtime.coordinator.plan import CheckpointPlan, plan_of
from backend.runtime.core.elements import Alignment, Barrier, EndOfData, EndOfPartition
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.protocols import base as commands
from backend.runtime.task.ending import Ending
from tests.simulators.model_handlers import ModelError
from tests.simulators.model_invariants import CHANNELS, INPUTS, OUTPUTS, TASKS
from tests.simulators.model_job import World

_SINK = 3
_GRAPH = load_job_document(
    {
        "name": "model",
        "vertex": [
            {"id": "left", "kind": "source"},
            {"id": "right", "kind": "source"},
            {"id": "join", "kind": "map"},
            {"id": "out", "kind": "sink"},
        ],
        "edge": [
            {"from": "left", "to": "join", "partitioner": "hash"},
            {"from": "right", "to": "join", "partitioner": "hash"},
            {"from": "join", "to": "out", "partitioner": "hash"},
        ],
    }
).graph


class EndingWorld(World):
    """One state of a job whose sources end after ``records`` records each."""

    def __init__(self, alignment: Alignment, records: int, *, checkpoints: int = 1) -> None:
        super().__init__(alignment, None, records, checkpoints=checkpoints, expires=False)
        before = set(vars(self))
        self.at_end: frozenset[int] = frozenset()
        """Channels whose end of data has been read."""
        self.over: frozenset[int] = frozenset()
        """Channels whose end has been read."""
        self.processed: frozenset[int] = frozenset()
        """Channels whose receiver reports that all data is processed. The report is on its way (FN-23)."""
        self.unprocessed = [len(OUTPUTS[task]) for task in TASKS]
        self.told: frozenset[tuple[int, int]] = frozenset()
        """(task, checkpoint) pairs: the message that the checkpoint is complete is on its way to the task."""
        self.closed_tasks: frozenset[int] = frozenset()
        self.telling: frozenset[int] = frozenset()
        """Tasks that have closed. The coordinator does not know this yet (FN-5)."""
        self.finished: frozenset[int] = frozenset()
        self.prepared: dict[int, int] = {}
        """Number of records that the sink had received, by checkpoint."""
        self.committed = 0
        self.names = (*self.names, *(name for name in vars(self) if name not in before))
        self.endings = [Ending(has_input=bool(INPUTS[task]), waits_for_final=True) for task in TASKS]
        self.ending_keys = [_key(ending) for ending in self.endings]

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), *self.ending_keys)

    def _ending(self, task: int, change: Callable[[Ending], None]) -> None:
        # Earlier states share the old value.
        self.endings[task] = new = copy(self.endings[task])
        change(new)
        self.ending_keys[task] = _key(new)

    # --- next steps -----------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        for name, step in super().steps():
            if not name.startswith("begin"):
                yield name, step
        for task in TASKS:
            if not INPUTS[task] and self.emitted[task] == self.records and not self.endings[task].is_at_end:
                yield f"end{task}", _step(EndingWorld._end_data, task)
            if self._may_close(task):
                yield f"close{task}", _step(EndingWorld._close, task)
        for c in sorted(self.processed):
            yield f"processed{c}", _step(EndingWorld._on_processed, c)
        for task, k in sorted(self.told):
            yield f"complete{task}/{k}", _step(EndingWorld._complete, task, k)
        for task in sorted(self.telling):
            yield f"finished{task}", _step(EndingWorld._on_finished, task)
        if len(self.pending) < self.most_pending and len(self.finished) < len(TASKS):
            under_way = (
                self.told,
                self.telling,
                self.processed,
                self.aborts,
                self.triggers,
                *self.sending,
                *self.queue,
            )
            is_quiet = not any(under_way)
            # If the end is broken, no checkpoint may be enough. Without a limit, there would be ever more of them.
            is_final = all(e.is_at_end for e in self.endings) and is_quiet and self.next_id <= self.checkpoints + 2
            if self.next_id <= self.checkpoints or (is_final and not any(map(self._may_close, TASKS))):
                yield f"begin{self.next_id}", _step(EndingWorld._begin_planned)

    def _may_close(self, task: int) -> bool:
        is_writing = any(t == task for t, _ in self.open_inputs)
        return task not in self.closed_tasks and self.endings[task].may_close and not is_writing

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _begin_planned(self) -> None:
        plan = self._plan()
        k, self.next_id = self.next_id, self.next_id + 1
        self.pending[k] = frozenset(task for task, _ in plan.wait_for)
        self.triggers |= {(task, k) for task, _ in plan.trigger}
        for task, _ in plan.finished:
            # Nothing of a finished task is left, so its channels are cut at their ends.
            self.sent |= {(task, k, c): self.emitted[c] for c in OUTPUTS[task]}
            self.done |= {(task, k, c): self.consumed[c] for c in INPUTS[task]}

    def _plan(self) -> CheckpointPlan:
        return plan_of(_GRAPH, {(task, 0) for task in self.finished})

    def _acknowledge(self, task: int, k: int) -> None:
        super()._acknowledge(task, k)
        if self.ended.get(k) == "completed":
            self.told |= {(each, k) for each in TASKS if each not in self.finished}

    def _on_finished(self, task: int) -> None:
        self.telling -= {task}
        self.finished |= {task}

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _trigger(self, task: int, k: int) -> None:
        if task in self.closed_tasks:
            self.triggers -= {(task, k)}
            self._give_up(k)
            return
        if not INPUTS[task] or k <= self.last[task] or k in self.told_aborted[task]:
            super()._trigger(task, k)
            return
        self.triggers -= {(task, k)}
        barrier = Barrier(k, 0, self.alignment)
        opened = [c for c in INPUTS[task] if c not in self.over]
        for c in opened:
            channel = CHANNELS[c][2]
            self._execute(task, self._asked(task, lambda keeper, n=channel: keeper.barrier(n, barrier, 0)), k)
        if not opened:
            self._snapshot(task, commands.Snapshot(barrier))
            self._advance(task, k)

    def _abort(self, task: int, k: int) -> None:
        if task in self.closed_tasks:
            self.aborts -= {(task, k)}
            return
        super()._abort(task, k)

    def _snapshot(self, task: int, given: commands.Snapshot) -> None:
        k = given.barrier.checkpoint_id
        self._ending(task, lambda ending: ending.snapshotting(k))
        if task == _SINK:
            self.prepared[k] = self.consumed[INPUTS[_SINK][0]]
        super()._snapshot(task, given)

    def _complete(self, task: int, k: int) -> None:
        self.told -= {(task, k)}
        if task in self.closed_tasks:
            return
        if task == _SINK:
            self.committed = max(self.committed, self.prepared.get(k, 0))
        self._ending(task, lambda ending: ending.completed(k))

    # --- the end --------------------------------------------------------------------------------------------------

    def _end_data(self, task: int) -> None:
        self._ending(task, Ending.ended_data)
        if not OUTPUTS[task]:
            self._ending(task, Ending.processed)
        for c in OUTPUTS[task]:
            self.sending[c] += (EndOfData(),)

    def _on_processed(self, c: int) -> None:
        sender = CHANNELS[c][0]
        self.processed -= {c}
        self.unprocessed[sender] -= 1
        if not self.unprocessed[sender]:
            self._ending(sender, Ending.processed)

    def _close(self, task: int) -> None:
        self.closed_tasks |= {task}
        self.telling |= {task}
        for c in OUTPUTS[task]:
            self.sending[c] += (EndOfPartition(),)

    def _read(self, c: int, *, is_priority: bool) -> None:
        item = (self.priority if is_priority else self.queue)[c][0]
        if not isinstance(item, EndOfData | EndOfPartition):
            super()._read(c, is_priority=is_priority)
            return
        _, task, channel = CHANNELS[c]
        self.queue[c] = self.queue[c][1:]
        self.front[c] = max(0, self.front[c] - 1)
        if isinstance(item, EndOfData):
            self.at_end |= {c}
            self.processed |= {c}
            if self.at_end.issuperset(INPUTS[task]):
                self._end_data(task)
            return
        self.over |= {c}
        pending = self.keepers[task].pending_id
        commands = self._asked(task, lambda keeper: keeper.end_of_partition(channel, 0))
        if pending is not None:
            self._execute(task, commands, pending)
        if self.over.issuperset(INPUTS[task]):
            self._ending(task, Ending.ended_inputs)

    # --- invariants -----------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Check a state without a next step: every task has closed, and everything is committed (FN-28, FN-32)."""
        if len(self.finished) < len(TASKS):
            raise ModelError(f"FN-28: only {sorted(self.finished)} of the tasks have finished", ())
        super().check_end()
        if self.committed != self.consumed[INPUTS[_SINK][0]]:
            raise ModelError(f"FN-32: {self.committed} of {self.consumed[INPUTS[_SINK][0]]} records are committed", ())


def _step(method: Callable[..., None], *given: int) -> Callable[[World], None]:
    return lambda world: method(world, *given)


def _key(ending: Ending) -> tuple[Any, ...]:
    return tuple(vars(ending).values())
