"""Protocols that Flink does not have: from the live runtime over its REST to the words on the pages."""

from __future__ import annotations

from dataclasses import asdict, replace

import orjson
import pytest

from backend.analysis.measures.phases import checkpoint_phases
from backend.contracts.api import CheckpointConfigOut
from backend.domain.barriers import BarrierEventKind
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.checkpoint_mode import mode_of, mode_of_checkpoint
from backend.domain.ids import JobId, RunId, VertexId
from backend.domain.protocols import Protocol
from backend.domain.stored_form import config_from
from backend.live import checkpoint_json
from backend.live.engine import build_live_engine
from backend.services.presenting import checkpoint_out
from backend.services.simulations.measured import checkpoint_of, config_of
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.schema.documents import config_document
from collectors.flink import parse
from collectors.flink.document import Document
from dashboard.components import status
from dashboard.pages.job import parts
from tests.support.dash_calls import texts
from tests.support.runtime_jobs import small_job

_CONTINUOUS = {"runtime.spilling": "continuous"}
_UNEVEN = {"cost_us": 500, "slow_subtasks": {"1": 20.0}}
_CASES = {
    "chandy-lamport": (Protocol.CHANDY_LAMPORT, "Chandy-Lamport"),
    "last-barrier": (Protocol.UNALIGNED_LAST_BARRIER, "unaligned, last barrier"),
}


def _read(value):
    return Document(orjson.loads(orjson.dumps(value)), "http://runtime")


@pytest.fixture(scope="module", params=[*_CASES, "unaligned"])
def seen(request):
    """Return the name of the case, the live engine, its newest checkpoint and its settings as the collector reads them.

    One map is slow, so that the barriers of the keyed stage arrive at different times.
    """
    live = build_live_engine(small_job(request.param, records=None, config=_CONTINUOUS, mapped=_UNEVEN))
    live.run_until(2_500_000)
    view = live.view(job_id="f" * 32, origin_epoch_ms=1_760_000_000_000, lag_ms=0)
    newest = view.latest_completed
    header = parse.header(_read(checkpoint_json.checkpoint_details(view, newest)))
    details = tuple(
        parse.subtasks(_read(checkpoint_json.checkpoint_subtasks(view, newest, v)), VertexId(v)).detail
        for v in newest.acks
    )
    config = parse.checkpoint_config(_read(checkpoint_json.checkpoint_config(view)))
    return request.param, live, Checkpoint(header, details), config


def test_the_protocol_reaches_the_collector_with_the_settings_and_with_each_checkpoint(seen):
    name, live, read, config = seen
    protocol, _ = _CASES.get(name, (None, ""))

    assert config.protocol is read.header.protocol is protocol
    assert (config.is_unaligned_enabled, config.aligned_timeout_ms, config.spilling) == (True, 0, "continuous")
    assert config_from(orjson.loads(orjson.dumps(config_document(config)))) == config
    simulated = config_of(live._engine.config)
    assert (simulated.protocol, simulated.spilling) == (protocol, "continuous")
    record = live._engine.coordinator.latest_completed
    assert checkpoint_of(record).header.protocol is protocol


def test_a_name_that_the_store_does_not_know_is_left_out():
    assert config_from({"protocol": "later", "interval_ms": 5}) == CheckpointConfig(interval_ms=5)


def test_pages_name_the_protocol_and_the_way_to_write_in_flight_data(seen):
    name, _, read, config = seen
    protocol, words = _CASES.get(name, (None, "unaligned"))

    assert mode_of(config) == mode_of_checkpoint(read.header) == (protocol or "unaligned")
    header, at = read.header, read.header.triggered_at
    record = CheckpointRecord(JobId("j"), RunId("r"), at.date(), header, None, None, None, None, at)
    shown = checkpoint_out(record, is_lost=False)
    assert texts(status.mode(shown.mode)) == words
    rows = dict(parts._alignment(CheckpointConfigOut.model_validate(asdict(config))))
    assert rows["In-flight data is written"] == "when it is sent"
    assert rows.get("Protocol") == (words if protocol else None)
    assert ("Unaligned" in rows) == (protocol is None)
    assert words in texts(parts.timeline_legend(None, [shown]))


def test_the_snapshot_is_placed_where_the_task_took_it(seen):
    name, live, read, config = seen
    id_ = read.header.checkpoint_id
    taken = {
        (e.vertex_id, e.subtask): e.at_us for e in live.barriers(id_) if e.kind is BarrierEventKind.SNAPSHOT_SYNC_START
    }
    phases = checkpoint_phases(read, config)

    waits = []
    for detail in read.details:
        for p in phases[detail.vertex_id]:
            at_us = taken[detail.vertex_id, p.subtask]
            assert abs(p.snapshot_at_ms - at_us / 1000) <= 2, (name, detail.vertex_id, p.subtask)
            waits.append(p.alignment_duration_ms)
    assert max(waits) > 2, "the barriers of no task arrived apart, so this shows nothing"
    if name == "last-barrier":
        unknown = checkpoint_phases(replace(read, header=replace(read.header, protocol=None)), config)
        assert any(p.is_alignment_overlaid for rows in unknown.values() for p in rows)
