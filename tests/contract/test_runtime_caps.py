"""Whether a cap had an effect on a checkpoint, from the live runtime over its REST to the words on the pages."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from backend.domain.checkpoint_mode import course_of_checkpoint
from backend.domain.ids import JobId, RunId
from backend.live import checkpoint_json
from backend.live.engine import build_live_engine
from backend.runtime.job import graph
from backend.services.presenting import checkpoint_out
from backend.services.simulations.measured import checkpoint_of
from backend.store.checkpoints.reader import CheckpointRecord
from collectors.flink import parse
from collectors.flink.document import Document
from tests.support.runtime_jobs import small_job


def _read(value):
    return Document(orjson.loads(orjson.dumps(value)), "http://runtime")


def _seen(cap, rate=None):
    """Return the newest checkpoint of the engine, and its header and settings as the collector reads them.

    ``rate``: records per second of a source. By default the slow keyed stage is under backpressure.
    """
    config = {"runtime.inflight-cap.bytes": cap, "execution.buffer-timeout.interval": "1 ms"}
    spec = small_job("capped", records=None, config=config)
    vertices = [replace(v, rate=rate or v.rate) if v.id == "source" else v for v in spec.graph.vertices]
    live = build_live_engine(replace(spec, graph=graph.ordered(vertices, list(spec.graph.edges))))
    live.run_until(4_000_000)
    view = live.view(job_id="f" * 32, origin_epoch_ms=1_760_000_000_000, lag_ms=0)
    newest = view.latest_completed
    assert newest is not None
    answer = checkpoint_json.checkpoint_details(view, newest)
    read = parse.header(_read(answer)), parse.checkpoint_config(_read(checkpoint_json.checkpoint_config(view)))
    return live._engine.coordinator.latest_completed, *read, answer


@pytest.mark.parametrize(
    ("cap", "rate", "words"),
    [
        ("0 b", None, "aligned, capped"),
        ("4 kb", None, "unaligned, capped"),
        ("64 mb", None, "unaligned"),
        # Nothing is in flight.
        ("4 kb", 1, "aligned"),
    ],
)
def test_a_cap_is_named_only_if_it_had_an_effect_in_the_runtime_the_store_and_the_pages(cap, rate, words):
    record, header, config, _ = _seen(cap, rate)

    assert record.course == words
    assert (header.cap_bound_count > 0) == ("capped" in words)
    assert header.cap_bound_count == record.cap_bound_count == checkpoint_of(record).header.cap_bound_count
    assert course_of_checkpoint(header, config) == words
    at = header.triggered_at
    stored = CheckpointRecord(JobId("j"), RunId("r"), at.date(), header, None, None, None, None, at)
    shown = checkpoint_out(stored, is_lost=False, config=config)
    assert (shown.course, shown.cap_bound_count) == (words, header.cap_bound_count)


def test_a_checkpoint_without_a_cap_does_not_report_it():
    _, header, _, answer = _seen("unlimited")

    assert header.cap_bound_count is None
    assert "cap-bound-subtasks" not in answer
