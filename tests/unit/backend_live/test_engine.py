"""Tests that the views of the live engine (``backend/live/engine.py``) agree with the job engine inside it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backend.domain import losses
from backend.domain.errors import InvalidInputError, PlanError
from backend.live import job_json, metrics
from backend.live.engine import RuntimeEngine, build_live_engine, job_run_id
from backend.live.view import JobView
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from tests.support.runtime_jobs import small_job

START = datetime(2026, 1, 1, tzinfo=UTC)
_ORIGIN_MS = 1_760_000_000_000


def _view(engine: RuntimeEngine) -> JobView:
    return engine.view(job_id="f" * 32, origin_epoch_ms=_ORIGIN_MS, lag_ms=7)


def _live(protocol: str = "unaligned", *, until_us: int = 2_000_000, **more: object) -> tuple[RuntimeEngine, JobEngine]:
    """Run a live engine until ``until_us``, and return it with the job engine inside it."""
    live = build_live_engine(small_job(protocol, records=None, **more))  # type: ignore[arg-type]
    live.run_until(until_us)
    return live, live._engine


def test_a_run_id_is_32_hexadecimal_digits_and_differs_for_another_start() -> None:
    ids = {job_run_id(name, origin) for name in ("a", "b") for origin in (1, 2)}
    assert len(ids) == 4
    assert all(len(i) == 32 and set(i) <= set("0123456789abcdef") for i in ids)
    assert job_run_id("a", 1) == job_run_id("a", 1)


def test_a_job_that_has_not_started_yet_shows_every_subtask() -> None:
    view = _view(build_live_engine(small_job("aligned")))
    assert view.now_us == 0
    assert [(v.name, v.parallelism, len(v.subtasks)) for v in view.vertices] == [
        ("source", 2, 2),
        ("map", 2, 2),
        ("keyed", 2, 2),
    ]
    assert view.history == ()
    assert (view.latest_completed, view.latest_failed, view.restored_id) == (None, None, None)


def test_the_same_job_has_the_same_vertex_ids_and_another_name_has_others() -> None:
    def ids(protocol: str) -> list[str]:
        return [v.id for v in _view(build_live_engine(small_job(protocol))).vertices]

    assert ids("aligned") == ids("aligned")
    assert not set(ids("aligned")) & set(ids("unaligned"))
    assert all(len(i) == 32 for i in ids("aligned"))


def test_inputs_name_the_upstream_vertex_and_the_partitioning() -> None:
    source, mapped, keyed = _view(build_live_engine(small_job("aligned"))).vertices
    assert source.inputs == ()
    assert [(i.source_id, i.ship_strategy) for i in mapped.inputs] == [(source.id, "REBALANCE")]
    assert [(i.source_id, i.ship_strategy) for i in keyed.inputs] == [(mapped.id, "HASH")]


def test_values_of_subtasks_equal_those_of_the_tasks() -> None:
    live, engine = _live(task_managers=2)
    view = _view(live)
    shown = [s for v in view.vertices for s in v.subtasks]
    assert len(shown) == len(engine.tasks)
    for subtask, task in zip(shown, engine.tasks, strict=True):
        assert (subtask.records_in, subtask.records_out) == (task.records_in, task.records_out)
        assert subtask.busy_us + subtask.idle_us + subtask.backpressured_us == engine.now_us
        assert subtask.status == "RUNNING"
        assert 0 <= subtask.in_exclusive_usage_ratio <= 1
        assert 0 <= subtask.in_floating_usage_ratio <= 1
    queued = sum(s.in_queue_bytes + s.out_queue_bytes for s in shown)
    assert queued == engine.queued_bytes > 0


def test_a_checkpoint_is_unaligned_if_it_persisted_data_and_both_sizes_include_that() -> None:
    live, engine = _live()
    completed = [c for c in _view(live).history if c.state == "COMPLETED"]
    assert completed
    for shown in completed:
        record = next(r for r in engine.coordinator.history if r.id == shown.id)
        assert shown.is_unaligned == (record.persisted_bytes > 0)
        acks = [a for row in shown.acks.values() for a in row if a is not None]
        assert sum(a.persisted_bytes for a in acks) == record.persisted_bytes
        assert sum(a.checkpointed_bytes for a in acks) == record.state_bytes + record.persisted_bytes
        assert all(a.state_bytes == a.checkpointed_bytes for a in acks)
    aligned = [c for c in _view(_live("aligned")[0]).history if c.state == "COMPLETED"]
    assert aligned
    assert not any(c.is_unaligned for c in aligned)


def test_a_pending_checkpoint_shows_none_for_subtasks_without_acknowledgement() -> None:
    live, engine = _live("aligned", until_us=300_000)
    while not engine.coordinator.in_progress_count:
        live.run_until(live.now_us + 1_000)
    live.run_until(live.now_us + 30_000)
    newest = _view(live).history[0]
    assert newest.state == "IN_PROGRESS"
    acks = [a for row in newest.acks.values() for a in row]
    assert None in acks
    assert [a for a in acks if a is not None]


def test_the_history_has_the_configured_length_newest_first() -> None:
    for length in (10, 3):
        config: dict[str, object] = {} if length == 10 else {"web.checkpoints.history": length}
        live, _ = _live(config=config)
        ids = [c.id for c in _view(live).history]
        assert len(ids) == length
        assert ids == sorted(ids, reverse=True)
        assert live.barriers(ids[0])
        assert live.barriers(ids[-1] - 1) is None


def test_a_failure_shows_its_reason_the_restart_and_the_restored_checkpoint() -> None:
    live, engine = _live("aligned", plan=(FaultSpec("task.in-sync", hit=25),), until_us=100_000)
    while not engine.exceptions:
        live.run_until(live.now_us + 5_000)
    failing = _view(live)
    assert failing.state == "RESTARTING"
    assert {s.status for v in failing.vertices for s in v.subtasks} == {"CANCELED"}
    assert failing.exceptions[0].message == "induced failure at task.in-sync"
    assert failing.exceptions[0].task is not None
    live.run_until(live.now_us + 500_000)
    view = _view(live)
    assert (view.state, view.restarts, view.counts.restored) == ("RUNNING", 1, 1)
    assert view.restored_id == engine.restored_id
    assert {s.attempt for v in view.vertices for s in v.subtasks} == {1}


def test_summary_values_are_whole_milliseconds_and_agree_with_the_instants() -> None:
    live, engine = _live()
    figures = _view(live).completed
    records = list(engine.coordinator.all_completed)
    assert len(figures) == len(records) > 5
    for shown, record in zip(figures, records, strict=True):
        latest_us = record.latest_ack_us
        assert latest_us is not None
        assert shown.end_to_end_ms == latest_us // 1000 - record.triggered_at_us // 1000
        assert shown.persisted_bytes == record.persisted_bytes


def test_barrier_events_have_the_vertex_ids_of_the_view() -> None:
    live, engine = _live()
    view = _view(live)
    ids = {v.id for v in view.vertices}
    newest = engine.coordinator.latest_completed
    assert newest is not None
    events = live.barriers(newest.id)
    assert events
    assert {e.vertex_id for e in events} == ids
    assert {end for e in events if e.channel for end in (e.channel.source, e.channel.target)} == ids
    assert live.barriers(999_999) is None


def test_settings_change_all_or_none_and_appear_in_the_configuration() -> None:
    live, engine = _live("aligned")
    before = dict(live.settings())
    live.change_settings({"execution.checkpointing.interval": "2 s", "runtime.inflight-cap.bytes": "1 kb"})
    shown = _view(live).config
    assert (shown.interval_ms, shown.inflight_cap_bytes) == (2_000, 1024)
    changed = dict(live.settings())
    assert changed == before | {
        "execution.checkpointing.interval": "2000 ms",
        "runtime.inflight-cap.bytes": "1024",
    }
    for wrong in (
        {"execution.checkpointing.interval": "1 s", "execution.checkpointing.timeout": "never"},
        {"execution.checkpointing.interval": "1 s", "runtime.task-managers": "2"},
        {"execution.checkpointing.interval": "1 s", "what": "ever"},
    ):
        with pytest.raises(InvalidInputError):
            live.change_settings(wrong)
        assert dict(live.settings()) == changed
    concurrent, _ = _live("aligned", config={"execution.checkpointing.max-concurrent-checkpoints": 2})
    with pytest.raises(PlanError):
        concurrent.change_settings({"execution.checkpointing.unaligned.enabled": "true"})
    assert not _view(concurrent).config.is_unaligned
    assert live.now_us == engine.now_us


def test_unlimited_failures_and_no_cap_are_shown_as_by_flink() -> None:
    config = _view(build_live_engine(small_job("aligned"))).config
    assert config.tolerable_failures == 2**31 - 1
    assert config.inflight_cap_bytes is None
    assert config.debloat_target_ms is None
    assert config.is_exactly_once


def test_lost_transactions_are_exceptions_after_which_the_job_goes_on_and_metrics_count_their_rows() -> None:
    live, engine = _live(config={"runtime.transaction-timeout": "100ms"})
    view = _view(live)

    assert (view.state, view.restarts, view.exceptions) == ("RUNNING", 0, ())
    assert view.lost_rows == engine.ledger.lost_count > 0
    entries = job_json.exceptions(view)["exceptionHistory"]["entries"]  # type: ignore[index,call-overload]
    found = [losses.read(START, f"{e['taskName']}: {e['stacktrace']}") for e in entries]  # type: ignore[index,call-overload,union-attr]
    assert sum(x.row_count for x in found if x is not None) == view.lost_rows
    assert {x.timeout_ms for x in found if x is not None} == {100}
    (row,) = job_json.jobs_overview([view])["jobs"]  # type: ignore[misc]
    assert row["last-modification"] == max(e["timestamp"] for e in entries)  # type: ignore[index,call-overload]
    *_, sink = view.vertices
    names = ["numRecordsLost", "failedCommittables"]
    sums = {m["id"]: m["sum"] for m in metrics.aggregated_metrics(sink, names, ["sum"])}  # type: ignore[index,call-overload]
    assert sums == {"numRecordsLost": view.lost_rows, "failedCommittables": len(engine.ledger.losses)}
    assert metrics.aggregated_metrics(view.vertices[0], names, ["sum"]) == []
    assert {"id": "numRecordsLost", "value": str(view.lost_rows)} in metrics.job_metrics(view, ["numRecordsLost"])
