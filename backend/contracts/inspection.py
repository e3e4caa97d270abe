"""The JSON of what can be read from the process of a running subtask: its threads, and sampled stacks."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.inspection import StackType


class ThreadOut(Model):
    """One thread, with its state and its stack as the engine prints them."""

    name: str
    stack: str
    is_of_subtask: bool
    """Whether the thread works for the subtask. The others belong to the process or to other subtasks."""


class ThreadDumpOut(Model):
    """The threads of the TaskManager that runs a subtask, at one instant (measured). It is not stored."""

    vertex: str
    subtask: int
    host: str | None
    task_manager: str
    threads: list[ThreadOut]
    thread_count: int
    """Number of threads of the whole process. Without ``all`` only those of the subtask are listed."""
    as_of: datetime


class FrameOut(Model):
    """One method in the tree of sampled stacks. ``parent`` is the index of its caller."""

    name: str
    sample_count: int
    parent: int | None


class FlameGraphOut(Model):
    """Sampled stacks of a subtask as a tree (measured by sampling). A caller comes before the methods it calls."""

    vertex: str
    subtask: int
    type: StackType
    is_sampling: bool
    """Whether the engine is still sampling. Request the flame graph again after some seconds."""
    sampled_at: datetime | None
    """When the sampling ended, on the engine's clock."""
    sample_count: int
    frames: list[FrameOut]
    left_out_count: int
    """Number of frames that were left out, because the tree is very large."""
    as_of: datetime
