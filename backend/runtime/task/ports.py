"""The interface of a task for its parts. A part that needs more of the task extends this port in its own module.

The parts do not import the task, and the task imports all of them.
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
    """One attempt of one subtask as its parts see it."""

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
    """Cost of the current step in virtual microseconds; a part may add to it."""
    lamport: int

    @property
    def outputs(self) -> list[Output]:
        """The output edges."""
        ...

    def mail(self, action: Callable[[Any], None], argument: Any = None) -> None:
        """Run ``action(argument)`` on this subtask between two elements (MB-1)."""
        ...

    def flush(self) -> None:
        """Emit the records that operators hold back and do not keep as state (TE-2)."""
        ...
