"""What can be read from the process of a running subtask: its threads now, and their stacks over some seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias


class StackType(StrEnum):
    """Which samples of a thread count: those in which it ran, those in which it waited, or all."""

    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ReadThreads:
    """A request for the threads of the TaskManager that runs a subtask, with their stacks.

    The names of the vertex and the parallelism identify the subtask's own threads.
    """

    task_manager: str
    vertex: str
    subtask: int
    parallelism: int


@dataclass(frozen=True, slots=True)
class SampleStacks:
    """A request for the stacks of a subtask, sampled over some seconds."""

    vertex_id: str
    subtask: int
    type: StackType


InspectionRequest: TypeAlias = ReadThreads | SampleStacks


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread: its name, its state and stack as the engine prints them, and whether it works for the subtask."""

    name: str
    stack: str
    is_of_subtask: bool


@dataclass(frozen=True, slots=True)
class ThreadDump:
    """The threads of one process at one instant, in the engine's order."""

    threads: tuple[Thread, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """One method in a tree of sampled stacks.

    ``parent`` is the index of the caller in ``FlameGraph.frames``, and None for the root. ``sample_count`` is the
    number of samples in which the method was on the stack at this place.
    """

    name: str
    sample_count: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """Sampled stacks of a subtask, merged into a tree. A caller comes before the methods that it calls.

    If ``sampled_at`` is None, the engine is still sampling, and a request after some seconds gets the frames.
    ``left_out_count`` is the number of frames beyond the limit.
    """

    sampled_at: datetime | None
    frames: tuple[Frame, ...] = ()
    left_out_count: int = 0


Inspected: TypeAlias = ThreadDump | FlameGraph
