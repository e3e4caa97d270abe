"""The reported backpressure and buffer usage equal what an observer of the subtasks counts (ME-19, ME-20, ME-21)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.live.engine import RuntimeEngine, build_live_engine
from backend.live.job_json import backpressure
from backend.live.metrics import vertex_metrics
from backend.live.view import JobView
from backend.runtime.measure.measures import TimeAccount, Usage
from tests.support.runtime_jobs import small_job


def _view(live: RuntimeEngine) -> JobView:
    return live.view(job_id="j", origin_epoch_ms=0, lag_ms=0)


def test_the_longest_wait_of_a_period_is_reported_even_if_it_still_lasts() -> None:
    account = TimeAccount(0, samples=12)
    for at_us, usage in (
        (1_000, Usage.SOFT),
        (4_000, Usage.BUSY),
        (5_000, Usage.HARD),
        (5_500, Usage.BUSY),
        (6_000, Usage.SOFT),
        (8_000, Usage.BUSY),
        (9_000, Usage.SOFT),
    ):
        account.turn(usage, at_us)
    account.settle(9_500)
    account.sample(10_000)
    assert account.longest_us == (3_000, 500)
    account.turn(Usage.BUSY, 29_000)
    account.sample(30_000)
    assert account.longest_us == (20_000, 0), "counted from its beginning in the previous period"
    account.sample(40_000)
    assert account.longest_us == (0, 0)


@pytest.mark.parametrize(
    ("ms_per_s", "level"), [(0, "ok"), (100, "ok"), (101, "low"), (500, "low"), (501, "high"), (1000, "high")]
)
def test_backpressure_levels_are_flinks_and_a_vertex_has_that_of_its_worst_subtask(ms_per_s: int, level: str) -> None:
    view = _view(build_live_engine(small_job("aligned")))
    first, *rest = view.vertices[0].subtasks
    still = replace(first, soft_backpressured_ms_per_s=0, hard_backpressured_ms_per_s=0)
    pressed = replace(first, soft_backpressured_ms_per_s=ms_per_s // 2, hard_backpressured_ms_per_s=-(-ms_per_s // 2))
    assert rest
    told = backpressure(view, replace(view.vertices[0], subtasks=(still, pressed)))
    assert told["backpressureLevel"] == told["backpressure-level"] == level
    rows = told["subtasks"]
    assert isinstance(rows, list)
    assert [row["backpressureLevel"] for row in rows if isinstance(row, dict)] == ["ok", level]


def test_output_usage_is_the_share_of_used_buffers_and_exceeds_one_with_overdraft() -> None:
    # A record spans several segments. A step that has begun may therefore use more buffers than the pool has (BUF-4).
    live = build_live_engine(small_job("aligned", records=None, record_bytes=3_000, task_managers=2))
    most = 0.0
    for at_us in range(0, 1_500_000, 10_000):
        live.run_until(at_us)
        shown = [subtask for vertex in _view(live).vertices for subtask in vertex.subtasks]
        for subtask, task in zip(shown, live._engine.tasks, strict=True):
            size = sum(output.pool.size for output in task.outputs)
            held = sum(queue.in_use for output in task.outputs for queue in output.pool.subpartitions)
            assert subtask.out_pool_usage_ratio == (held / size if size else 0.0), task.name
            most = max(most, subtask.out_pool_usage_ratio)
    assert most > 1
    live.run_until(5_100_000)
    source = _view(live).vertices[0]
    names = ("0.maxSoftBackPressureTimeMs", "0.maxHardBackPressureTimeMs")
    longest = (source.subtasks[0].longest_soft_us, source.subtasks[0].longest_hard_us)
    assert 0 < longest[0] <= 5_000_000
    told = [{"id": name, "value": str(us // 1000)} for name, us in zip(names, longest, strict=True)]
    assert vertex_metrics(source, names) == told
