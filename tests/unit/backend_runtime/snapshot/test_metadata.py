"""Tests of a checkpoint as bytes: its metadata, the location of each part, and reading it back (CK-1 to CK-4)."""

from __future__ import annotations

import json

import pytest

from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot
from backend.runtime.measure.requested import RequestedFormat
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.capabilities import SnapshotKind
from backend.runtime.snapshot.metadata import (
    StoredCheckpoint,
    files_of,
    read_checkpoint,
)
from backend.runtime.snapshot.restoring import assign
from tests.support.runtime_jobs import STAYS, small_job, two_subtasks_job

# --- a checkpoint as bytes --------------------------------------------------------------------------------------------


def _stored(engine: JobEngine, **options: int) -> StoredCheckpoint:
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph, **options)


def test_the_metadata_describes_the_checkpoint_and_the_location_of_each_part() -> None:
    engine = JobEngine(small_job("unaligned", seed=3, keyed={"state_bytes": 100}))
    engine.run_until(450_000)
    newest = engine.coordinator.newest
    assert newest is not None
    stored = _stored(engine, inline_below_bytes=400)
    document = json.loads(stored.metadata)
    assert (document["id"], document["type"]) == (newest.record.id, "CHECKPOINT")
    assert document["triggered_at_us"] == newest.record.triggered_at_us
    assert [v["id"] for v in document["vertices"]] == ["source", "map", "keyed"]
    assert document["graph"]["edges"][1]["partitioner"] == "hash"
    keyed = document["vertices"][2]
    assert (keyed["parallelism"], keyed["max_parallelism"], keyed["is_fully_finished"]) == (2, 128, False)
    groups = [subtask["operators"][0]["key_groups"] for subtask in keyed["subtasks"]]
    assert groups == [[0, 63], [64, 127]]
    sink = keyed["subtasks"][0]["operators"][1]
    assert (sink["id"], sink["states"][0]["mode"]) == ("keyed:sink", "union")
    assert document["vertices"][0]["subtasks"][1]["operators"][0]["states"][0]["mode"] == "split"
    # A source's coordinator stores the splits that it assigned. Other vertices have no coordinator state (CK-1).
    dealt = document["vertices"][0]["coordinator"]
    assert (dealt["size"], dealt["spans"]) == (16, [[0, 8], [8, 8]])
    assert [v["coordinator"] for v in document["vertices"][1:]] == [None, None]
    # Small parts are inline in the metadata. All other parts are in files, each named by a handle (CK-2, CK-3).
    handles = [h for h in _handles(document) if h["size"]]
    inline = [h for h in handles if "inline" in h]
    assert inline
    assert all(h["size"] < 400 for h in inline)
    files = [h for h in handles if "file" in h]
    assert {h["file"]: h["size"] for h in files} == {name: len(data) for name, data in stored.files.items()}
    assert all(h["size"] >= 400 for h in files)
    # The bytes that a channel's sender and receiver persisted are both stored under the channel's name (CK-4).
    persisted = sum(h["size"] for v in document["vertices"] for s in v["subtasks"] for h in (s["inputs"], s["outputs"]))
    assert persisted == newest.record.persisted_bytes > 0


def _handles(value: object) -> list[dict[str, object]]:
    if isinstance(value, list):
        return [h for each in value for h in _handles(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if "spans" in value else []
    return own + [h for each in value.values() for h in _handles(each)]


def test_the_metadata_of_a_savepoint_has_its_type_and_format() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=5))
    engine.run_until(120_000)
    savepoint = engine.request_savepoint(RequestedFormat.NATIVE)
    engine.run_until(200_000)
    stored = engine.savepoint(savepoint.checkpoint_id or 0)
    assert stored is not None
    document = json.loads(stored.metadata)
    assert (document["type"], document["format"]) == ("SAVEPOINT", "NATIVE")
    assert json.loads(_stored(engine).metadata)["format"] is None


@pytest.mark.parametrize("inline_below_bytes", [0, 300, 1 << 20])
def test_files_are_counted_as_written(inline_below_bytes: int) -> None:
    engine = JobEngine(small_job("unaligned", seed=3, keyed={"state_bytes": 100}))
    engine.run_until(450_000)
    newest = engine.coordinator.newest
    assert newest is not None
    stored = _stored(engine, inline_below_bytes=inline_below_bytes)
    counts = [files_of(s, inline_below_bytes=inline_below_bytes) for s in newest.snapshots.values()]
    # An empty stream does not count as a file, although a handle names it. The coordinator's file belongs to no
    # subtask.
    own = [len(data) for name, data in stored.files.items() if not name.endswith("-coordinator")]
    assert sum(c.physical for c in counts if inline_below_bytes) == sum(size > 0 for size in own if inline_below_bytes)
    handles = [h for v in json.loads(stored.metadata)["vertices"] for h in _handles(v["subtasks"])]
    assert sum(c.logical for c in counts) == sum(bool(h["size"]) for h in handles) > 4
    assert all(ack.measured.files == files_of(newest.snapshots[key]) for key, ack in newest.record.acks.items())


@pytest.mark.parametrize(
    ("size_bytes", "counts"), [(0, (0, 0)), (1, (3, 0)), (20_479, (3, 0)), (20_480, (3, 3)), (30_000, (3, 3))]
)
def test_state_of_twenty_kibibytes_gets_a_file_and_smaller_state_none(size_bytes: int, counts: tuple[int, int]) -> None:
    """CK-2, ME-18: each stream is compared with the limit on its own, whatever kind of state it contains."""
    half, rest = b"x" * (size_bytes // 2), b"y" * (size_bytes - size_bytes // 2)
    operator = OperatorSnapshot({1: half, 2: rest}, (OperatorState("all", StateMode.UNION, (half, rest)),))
    inputs = {ChannelKey(0, 0, 0): [half], ChannelKey(0, 1, 0): [rest]}
    snapshot = SubtaskSnapshot((operator,), ChannelState(inputs, {ChannelKey(1, 0, 0): []}), -1, 0, 0)
    assert files_of(snapshot) == counts


def test_reading_back_gives_what_was_written() -> None:
    engine = JobEngine(small_job("unaligned", seed=3, config=STAYS))
    engine.run_until(450_000)
    newest = engine.coordinator.newest
    assert newest is not None
    read = read_checkpoint(_stored(engine))
    graph = engine.env.graph
    again = {
        (index, subtask): snapshot
        for index, vertex in enumerate(graph.vertices)
        for subtask, snapshot in enumerate(read.vertices[vertex.id].subtasks)
    }
    assert again == dict(newest.snapshots)
    assert read.has_channel_state is newest.has_channel_state is True
    # After a restore at the same parallelism, only the union state differs, because every subtask reads all of it.
    restored = assign(read, graph).snapshots
    assert restored[0, 1] == newest.snapshots[0, 1]
    assert restored[2, 0].operators[0] == newest.snapshots[2, 0].operators[0]
    assert len(restored[2, 0].operators[1].entries("transactions")) == 2


@pytest.mark.parametrize(
    ("protocol", "requested", "kind"),
    [
        ("aligned", None, SnapshotKind.ALIGNED),
        ("unaligned", None, SnapshotKind.UNALIGNED),
        ("aligned", RequestedFormat.NATIVE, SnapshotKind.NATIVE_SAVEPOINT),
        ("unaligned", RequestedFormat.CANONICAL, SnapshotKind.CANONICAL_SAVEPOINT),
    ],
)
def test_a_checkpoint_that_is_read_back_is_of_the_kind_that_was_written(protocol, requested, kind) -> None:
    """GR-4: the kind decides what a job may change that continues from here."""
    engine = JobEngine(small_job(protocol, seed=3))
    engine.run_until(330_000)
    if requested is None:
        stored = _stored(engine)
    else:
        savepoint = engine.request_savepoint(requested)
        engine.run_until(2_000_000)
        found = engine.savepoint(savepoint.checkpoint_id or 0)
        assert found is not None
        stored = found
    assert read_checkpoint(stored).kind is kind
