"""Goal: each kind of source and sink follows its rule, under backpressure and after a crash (SRC-2, SRC-4, SNK-6).

Method: small jobs have a slow last vertex. A legacy source differs in the accounting of its time, and in how
long a trigger waits for it. The guarantee of a sink is checked by the final content of the external system.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from backend.domain.errors import PlanError
from backend.live.engine import build_live_engine
from backend.live.job_json import backpressure, vertex
from backend.live.metrics import aggregated_metrics, vertex_metrics
from backend.runtime.core.elements import Record
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.graph import FaultSpec, Graph
from backend.runtime.operators.sources import Source
from backend.runtime.operators.storage import SnapshotStore
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, small_job

_RECORDS = 300


def _with(spec: JobSpec, vertex_id: str, **changes: Any) -> JobSpec:
    """Return the job with changed fields in one vertex."""
    vertices = tuple(replace(v, **changes) if v.id == vertex_id else v for v in spec.graph.vertices)
    return replace(spec, graph=Graph(vertices, spec.graph.edges))


# --- legacy sources ---------------------------------------------------------------------------------------------------


def _source_figures(*, legacy: bool, hook: bool) -> tuple[int, int, int]:
    """Return the source's time under soft and under hard backpressure, and its longest start delay, in microseconds."""
    # A record spans several segments, so an emission without enough buffers stops in the middle.
    spec = small_job("unaligned", seed=3, records=None, record_bytes=3000, parallelism=1, keyed={"cost_us": 30_000})
    engine = JobEngine(_with(spec, "source", is_legacy=legacy, has_nonblocking_hook=hook))
    engine.run_until(3_000_000)
    _, _, soft_us, hard_us = engine.tasks[0].account.settle(engine.now_us)
    delays = [r.acks[0, 0].measured.start_delay_us for r in engine.coordinator.all_completed]
    assert delays
    return soft_us, hard_us, max(delays)


def test_a_legacy_source_blocks_within_an_emission_and_its_trigger_waits() -> None:
    soft_us, hard_us, delay_us = _source_figures(legacy=True, hook=False)
    # A legacy source does not check first whether a buffer is free. It waits only inside an emission, and holds the
    # lock there.
    assert soft_us == 0
    assert hard_us > 2_000_000
    assert delay_us > 15_000
    soft_us, hard_us, hooked_us = _source_figures(legacy=True, hook=True)
    assert soft_us > 2_000_000
    assert hooked_us < delay_us / 2
    assert (soft_us, hard_us, hooked_us) == _source_figures(legacy=False, hook=False)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_legacy_sources_lose_and_repeat_nothing(protocol: str) -> None:
    for seed in range(3):
        plan = (FaultSpec("task.in-sync", hit=9 + seed), FaultSpec("source.after-emit", hit=150))
        spec = small_job(protocol, seed=seed, task_managers=2, fuzz=seed, plan=plan, record_bytes=700)
        engine = run_to_the_end(_with(spec, "source", is_legacy=True), records=RECORDS)
        assert engine.restart_count == 2, f"seed {seed}"


def test_the_busy_time_of_a_legacy_source_is_not_a_number() -> None:
    spec = _with(small_job("aligned", records=None), "source", is_legacy=True)
    engine = build_live_engine(spec)
    engine.run_until(2_000_000)
    view = engine.view(job_id="x", origin_epoch_ms=0, lag_ms=0)
    sources, maps = view.vertices[0], view.vertices[1]
    assert vertex_metrics(sources, ["0.busyTimeMsPerSecond"]) == [{"id": "0.busyTimeMsPerSecond", "value": "NaN"}]
    assert aggregated_metrics(sources, ["busyTimeMsPerSecond"], []) == []
    assert len(aggregated_metrics(maps, ["busyTimeMsPerSecond"], [])) == 1
    shown = json.loads(json.dumps(backpressure(view, sources), allow_nan=False))
    assert [row["busyRatio"] for row in shown["subtasks"]] == ["NaN", "NaN"]
    shown = json.loads(json.dumps(vertex(view, sources, "tm"), allow_nan=False))
    assert [row["metrics"]["accumulated-busy-time"] for row in shown["subtasks"]] == ["NaN", "NaN"]
    document = simulate(spec, duration_us=500_000).to_json()
    assert document["vertices"][0]["busy_ratio"] == [None, None]
    assert all(ratio > 0 for ratio in document["vertices"][1]["busy_ratio"])


# --- rate, bursts and backlog of sources ------------------------------------------------------------------------------


def _due_times(**fields: Any) -> list[int]:
    vertices = [{"id": "s", "kind": "source", "limit": 100} | fields, {"id": "k", "kind": "sink"}]
    document = {"name": "due", "vertex": vertices, "edge": [{"from": "s", "to": "k", "partitioner": "rebalance"}]}
    source = Source(load_job_document(document).graph.vertex("s"), 0, seed=1)
    times = []
    while (at_us := source.due_us()) is not None:
        times.append(at_us)
        source.poll()
    return times


def test_a_burst_emits_the_records_of_a_period_in_its_first_part() -> None:
    even, bursty = _due_times(rate=100), _due_times(rate=100, burst_period="200 ms", burst_ratio=0.1)
    assert even == list(range(0, 1_000_000, 10_000))
    assert bursty == sorted(bursty)
    assert all(at_us % 200_000 < 20_000 for at_us in bursty)
    # Bursts do not change the rate: each period has as many records as without bursts.
    assert Counter(at_us // 200_000 for at_us in bursty) == Counter(at_us // 200_000 for at_us in even)


def test_a_part_of_the_records_of_a_period_comes_in_the_burst_and_the_rest_evenly_after_it() -> None:
    due = _due_times(rate=100, burst_period="200 ms", burst_ratio=0.25, burst_share=0.6)

    assert due == sorted(due)
    parts = Counter((at_us % 200_000 >= 50_000) for at_us in due)
    assert abs(parts[False] / len(due) - 0.6) < 0.05
    assert max(due) % 200_000 > 150_000


def test_bursts_without_a_rate_are_refused() -> None:
    with pytest.raises(PlanError, match="SRC-4 at 's': bursts need a rate"):
        _due_times(burst_period="200 ms")


def test_a_backlog_exists_from_the_start() -> None:
    assert _due_times(rate=100, backlog=40) == [0] * 40 + list(range(0, 600_000, 10_000))


def _triggers(during_backlog: str) -> tuple[list[int], list[int], int]:
    """Return the trigger times during a backlog, those after it, and the end of the backlog, all in microseconds."""
    spec = small_job(
        "aligned",
        records=None,
        parallelism=1,
        config={"execution.checkpointing.interval-during-backlog": during_backlog},
    )
    spec = _with(spec, "source", backlog=400, rate=50.0)
    engine = JobEngine(spec)
    triggered: list[int] = []
    engine.coordinator.on_terminal = lambda record: triggered.append(record.triggered_at_us)
    engine.run_until(1_000)
    source = engine.tasks[0].source
    assert source is not None
    while source.is_processing_backlog:
        engine.run_until(engine.now_us + 1_000)
    done_us = engine.now_us
    engine.run_until(done_us + 1_500_000)
    triggered.sort()
    return [t for t in triggered if t < done_us], [t for t in triggered if t > done_us + 5_000], done_us


def test_the_interval_during_a_backlog_lasts_until_the_last_source_has_caught_up() -> None:
    same, _, done_us = _triggers("same")
    assert len(same) > 4
    rare, after, done_us = _triggers("400 ms")
    # The first trigger was scheduled before the coordinator knew about the backlog.
    assert len(rare) <= 2 + done_us // 400_000
    assert {b - a for a, b in pairwise(rare[1:])} <= {400_000}
    # As soon as the backlog ends, the shorter interval takes effect.
    assert after[0] <= done_us + 105_000
    assert len(after) > 10
    none, after, done_us = _triggers("0 ms")
    assert none == []
    assert after[0] <= done_us + 105_000


def test_an_interval_during_a_backlog_below_the_other_is_refused() -> None:
    problem = "SRC-5: the interval during a backlog, 50 ms, is shorter than the interval, 100 ms"
    with pytest.raises(PlanError, match=problem):
        small_job("aligned", config={"execution.checkpointing.interval-during-backlog": "50 ms"})


# --- sinks ------------------------------------------------------------------------------------------------------------


def _crashed(sink: str) -> JobEngine:
    plan = (FaultSpec("task.in-sync", hit=9), FaultSpec("task.between-outputs", hit=30))
    spec = small_job("unaligned", seed=5, plan=plan, keyed={"sink": sink})
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(4_000_000)
    assert engine.restart_count == 2
    return engine


def test_the_plain_sink_loses_nothing_and_repeats_rows_after_the_checkpoint() -> None:
    engine = _crashed("append")
    origins = Counter(row.origin for row in engine.ledger.rows)
    assert len(origins) == 400
    assert 0 < sum(n > 1 for n in origins.values()) < 400
    # Rows that the sink repeats have the same value, because everything before the sink is exactly once.
    assert len({(row.origin, row.key, row.value) for row in engine.ledger.rows}) >= len(origins)


def test_the_idempotent_sink_ends_with_the_content_of_an_undisturbed_run() -> None:
    engine = _crashed("idempotent")
    undisturbed = JobEngine(small_job("unaligned", seed=5, keyed={"sink": "idempotent"}), keeps_rows=True)
    undisturbed.run_until(4_000_000)
    assert undisturbed.ledger.put_count == 400
    assert engine.ledger.put_count > 400
    assert engine.ledger.table == undisturbed.ledger.table
    assert sum(engine.ledger.table.values()) == 400


# --- costs ------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_record_may_come_from_a_function_and_changes_no_result() -> None:
    plain = small_job("aligned", seed=2)

    def cost_of(record: Record) -> int:
        return 4_000 if record.key == 3 else 0

    runs = [run_to_the_end(spec, records=RECORDS) for spec in (plain, _with(plain, "map", cost_of=cost_of))]
    results = [sorted((row.origin, row.key) for row in engine.ledger.rows) for engine in runs]
    assert results[0] == results[1]
    slow = sum(key == 3 for _, key in results[0])
    busy = [sum(t.account.settle(e.now_us)[0] for t in e.tasks if t.spec.id == "map") for e in runs]
    assert busy[1] - busy[0] == pytest.approx(4_000 * slow, rel=0.05)


def test_an_upload_with_its_own_limit_leaves_the_remaining_bandwidth_to_others() -> None:
    done: dict[str, int] = {}
    scheduler = Scheduler()
    store = SnapshotStore(scheduler, latency_us=0, bytes_per_s=1_000_000, upload_bytes_per_s=250_000)
    for name in ("first", "second"):
        store.write(100_000, lambda _, name=name: done.update({name: scheduler.now}))  # type: ignore[misc]
    scheduler.run_until(10_000_000)
    # The files of 100 kB occupy the shared bandwidth one after the other, for 100 ms each. With the limit per file,
    # each file takes 400 ms, so the second file is complete 100 ms after the first.
    assert done == {"first": 400_000, "second": 500_000}
