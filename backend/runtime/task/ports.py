"""The interface of a task for the modules that implement parts of it.

A module that needs more of the task extends this interface for itself. These modules do not import the task, and the
task imports all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from backend.runtime.core.elements import Barrier, EndOfData
from backend.runtime.job.faults import FinishStep
from backend.runtime.job.graph import VertexSpec
from backend.runtime.measure.measures import TaskKey
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.emission import Emission, Output
from backend.runtime.network.gate import InputGate
from backend.runtime.operators.operators import Operator
from backend.runtime.task.environment import Environment


class FinishPort(Protocol):
    """The end of a subtask, as its other parts use it: ``Finishing``, or ``Stopping`` if tasks do not finish."""

    @property
    def is_at_end(self) -> bool:
        """Whether the operators have finished (FN-12)."""
        ...

    def triggered(self, barrier: Barrier) -> None:
        """If the triggered savepoint is to stop the job, end this source's data before the barrier."""
        ...

    def snapshotting(self, barrier: Barrier) -> None:
        """Remember what the snapshot that is taken now means for the end of the subtask."""
        ...

    def completed(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint, after its transactions are committed."""
        ...

    def on_checkpoint_over(self) -> None:
        """Handle the end of a checkpoint at this subtask, whatever its result."""
        ...

    def on_end_of_data(self, channel: InputChannel, event: EndOfData) -> None:
        """Handle the end of the data on one channel."""
        ...

    def on_end_of_partition(self) -> None:
        """Handle the end of a channel."""
        ...

    def end_source(self, *, is_drained: bool) -> None:
        """End the data of this source (runtime.md 6.6, step 1)."""
        ...

    def note(self, step: FinishStep, which: int | None = None) -> None:
        """Record that this subtask has taken one step of the finish protocol. A fault can strike there."""
        ...


class TaskPort(Protocol):
    """One attempt of one subtask, as the modules that implement parts of it use it."""

    env: Environment
    spec: VertexSpec
    key: TaskKey
    index: int
    name: str
    attempt: int
    is_dead: bool
    gate: InputGate
    emission: Emission
    operators: tuple[Operator, ...]
    cost_us: int
    """The cost of the current step in virtual microseconds. These modules may add to it."""
    lamport: int

    @property
    def outputs(self) -> list[Output]:
        """The outputs of the task, one per edge."""
        ...

    def mail(self, action: Callable[[Any], None], argument: Any = None) -> None:
        """Run ``action(argument)`` on this subtask between two elements (MB-1)."""
        ...

    def flush(self) -> None:
        """Emit the records that operators hold back without keeping them as state (TE-2)."""
        ...
