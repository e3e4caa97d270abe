"""Tests of the step of a task in which something happens that had waited behind output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backend.runtime.task.task import Task


def _task(*, cost_us: int, is_dead: bool = False, finishes: bool = False) -> Any:
    """Return what the step needs of a task, with an action behind its output that costs so much."""
    task: Any = SimpleNamespace(cost_us=0, is_dead=is_dead, scheduled=[], turned=[])
    task.env = SimpleNamespace(config=SimpleNamespace(tasks_finish=finishes))
    task.account = SimpleNamespace(turn=lambda usage, now: task.turned.append(now))
    task.emission = SimpleNamespace(write_on=lambda: True, behind=lambda: lambda: setattr(task, "cost_us", cost_us))
    task._schedule = task.scheduled.append
    return task


@pytest.mark.parametrize(("cost_us", "next_us"), [(250, 1_250), (0, 1_001)])
def test_what_waited_behind_output_takes_its_time_before_the_next_step(cost_us, next_us):
    task = _task(cost_us=cost_us)

    assert Task._write_on(task, 1_000) is False
    assert (task.scheduled, task.turned) == ([next_us], [1_000])


@pytest.mark.parametrize(("is_dead", "finishes", "count"), [(True, True, 0), (True, False, 1), (False, True, 1)])
def test_a_task_that_has_finished_takes_no_further_step(is_dead, finishes, count):
    task = _task(cost_us=5, is_dead=is_dead, finishes=finishes)

    Task._write_on(task, 1_000)
    assert len(task.scheduled) == count


def test_output_that_still_waits_ends_the_step():
    task = _task(cost_us=5)
    waited: list[int] = []
    task.emission.write_on = lambda: False
    task._wait = lambda usage, now: waited.append(now)

    assert Task._write_on(task, 1_000) is False
    assert (waited, task.scheduled) == ([1_000], [])
