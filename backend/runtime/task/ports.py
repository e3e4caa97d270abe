"""The interface of a task for the modules that implement parts of it.

A module that needs more of the task extends this interface for itself. These modules do not import the task, and the
task imports all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from backend.runtime.job.graph import VertexSpec
from backend.runtime.measure.measures import TaskKey
from backend.runtime.network.emission import Emission, Output
from backend.runtime.network.gate import InputGate
from backend.runtime.operators.operators import Operator
from backend.runtime.task.environment import Environment


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
