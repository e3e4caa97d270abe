"""Keyed state by key group, operator state by mode, and a checkpoint as bytes (ST-1, ST-2, PT-4, CK-1 to CK-4)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from backend.domain.errors import PlanError, ProtocolViolationError
from backend.runtime.core.hashing import groups_of, key_group
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec, Graph, VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot
from backend.runtime.measure.requested import SavepointFormat
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.redistribution import redistribute, restored_operator
from backend.runtime.operators.state import KeyedStates, OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.metadata import (
    ReadCheckpoint,
    StoredCheckpoint,
    VertexState,
    files_of,
    fingerprint,
    read_checkpoint,
)
from backend.runtime.snapshot.restoring import assign, restored_graph, without_channel_state
from tests.support.inside_jobs import take_over
from tests.support.runtime_jobs import exactly_once_violations, small_job, two_subtasks_job

_M = 128
_RECORDS = 700


class _Kept:
    """One of each kind of keyed state."""

    def __init__(self, subtask: int = 0, parallelism: int = 1) -> None:
        self.states = KeyedStates(subtask=subtask, parallelism=parallelism, max_parallelism=_M)
        self.value, self.list = self.states.value(), self.states.list()
        self.map, self.reducing = self.states.map(), self.states.reducing(max)
        self.timers = self.states.timers()

    def fill(self, keys: range) -> None:
        for key in keys:
            self.value.set(key, 10 * key)
            if key % 2:
                self.list.extend(key, range(key % 5))
            self.map.set(key, 7, -key)
            self.reducing.add(key, 1, key)
            self.reducing.add(key, 1, 3)
            self.timers.register(1_000 - key, key)

    def content(self) -> tuple[object, ...]:
        fired = []
        while self.timers.is_due(10_000):
            fired.append(self.timers.pop())
        lists = {key: numbers for key, numbers in self.list.held.items() if numbers}
        return dict(self.value.held), lists, self.map.held, self.reducing.held, fired


def test_each_kind_of_keyed_state_and_the_timers_come_back_as_they_were() -> None:
    kept, again = _Kept(), _Kept()
    kept.fill(range(-20, 60))
    again.states.restore(kept.states.snapshot())
    content = kept.content()
    assert again.content() == content
    assert content[3] == {key: {1: max(key, 3)} for key in range(-20, 60)}
    fired = content[4]
    assert isinstance(fired, list)
    assert fired == sorted(fired)
    assert len(fired) == 80


def test_state_lies_with_its_key_group_and_can_be_handed_on_group_by_group() -> None:
    kept = _Kept()
    kept.fill(range(200))
    keyed = kept.states.snapshot()
    assert set(keyed) == {key_group(key, _M) for key in range(200)}
    # At another parallelism every group has one new owner, who takes it up and nothing else (RC-7).
    timers = 0
    for subtask in range(3):
        own = restored_operator([OperatorSnapshot(keyed)], subtask, parallelism=3, max_parallelism=_M)
        taken = _Kept(subtask, 3)
        taken.states.restore(own.keyed)
        keys = {key for key in range(200) if key_group(key, _M) in groups_of(subtask, 3, _M)}
        assert set(taken.value.held) == keys
        timers += len(taken.timers)
    assert timers == 200


def test_a_key_that_is_not_the_subtasks_is_refused() -> None:
    foreign = next(key for key in range(1000) if key_group(key, _M) not in groups_of(0, 2, _M))
    with pytest.raises(ProtocolViolationError, match="PT-2"):
        _Kept(0, 2).value.set(foreign, 1)


def test_what_is_gone_is_not_in_the_snapshot() -> None:
    kept = _Kept()
    kept.map.set(1, 5, 6)
    kept.timers.register(9, 1)
    assert kept.states.snapshot()
    assert kept.map.pop(1, 5) == 6
    kept.timers.pop()
    assert kept.states.snapshot() == {}
    assert kept.states.size_bytes == 0


def test_a_timer_registered_twice_fires_once() -> None:
    kept = _Kept()
    for at_us in (50, 20, 50):
        kept.timers.register(at_us, 3)
    kept.timers.register(20, 1)
    assert not kept.timers.is_due(19)
    assert [kept.timers.pop() for _ in range(3)] == [(20, 1), (20, 3), (50, 3)]
    assert (len(kept.timers), kept.timers.is_due(1_000)) == (0, False)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 7])
def test_split_state_goes_to_one_subtask_each_and_union_state_to_all(parallelism: int) -> None:
    entries = [[b"a", b"b", b"c"], [], [b"d", b"e"]]
    everything = [b"a", b"b", b"c", b"d", b"e"]
    split = redistribute(StateMode.SPLIT, entries, parallelism)
    assert [entry for own in split for entry in own] == everything
    if parallelism == 3:
        assert [list(own) for own in split] == entries
    else:
        sizes = [len(own) for own in split]
        assert max(sizes) - min(sizes) <= 1
    assert redistribute(StateMode.UNION, entries, parallelism) == [tuple(everything)] * parallelism
    copies = [[b"x", b"y"]] * 3
    assert redistribute(StateMode.BROADCAST, copies, parallelism) == [(b"x", b"y")] * parallelism


def test_operator_states_of_one_operator_keep_their_names_and_modes() -> None:
    old = [
        OperatorSnapshot(
            states=(
                OperatorState("own", StateMode.SPLIT, (bytes([n]),)),
                OperatorState("all", StateMode.UNION, (bytes([n]),)),
                OperatorState("same", StateMode.BROADCAST, (b"s",)),
            )
        )
        for n in range(3)
    ]
    got = restored_operator(old, 1, parallelism=3, max_parallelism=_M)
    assert [(s.name, s.mode) for s in got.states] == [(s.name, s.mode) for s in old[0].states]
    assert (got.entries("own"), got.entries("all"), got.entries("same")) == ((b"\1",), (b"\0", b"\1", b"\2"), (b"s",))


# --- a checkpoint as bytes --------------------------------------------------------------------------------------------


def _stored(engine: JobEngine, **options: int) -> StoredCheckpoint:
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph, **options)


def test_a_checkpoint_says_what_it_is_of_and_where_everything_lies() -> None:
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
    # The coordinator of a source keeps which splits it dealt out; the others have none (CK-1).
    dealt = document["vertices"][0]["coordinator"]
    assert (dealt["size"], dealt["spans"]) == (16, [[0, 8], [8, 8]])
    assert [v["coordinator"] for v in document["vertices"][1:]] == [None, None]
    # What is small lies in the document, the rest in files, and every file is named by a handle (CK-2, CK-3).
    handles = [h for h in _handles(document) if h["size"]]
    inline = [h for h in handles if "inline" in h]
    assert inline
    assert all(h["size"] < 400 for h in inline)
    files = [h for h in handles if "file" in h]
    assert {h["file"]: h["size"] for h in files} == {name: len(data) for name, data in stored.files.items()}
    assert all(h["size"] >= 400 for h in files)
    # Both sides of a channel are there, by the channel's name (CK-4).
    persisted = sum(h["size"] for v in document["vertices"] for s in v["subtasks"] for h in (s["inputs"], s["outputs"]))
    assert persisted == newest.record.persisted_bytes > 0


def _handles(value: object) -> list[dict[str, object]]:
    if isinstance(value, list):
        return [h for each in value for h in _handles(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if "spans" in value else []
    return own + [h for each in value.values() for h in _handles(each)]


def test_a_source_that_does_not_read_what_was_dealt_out_is_not_restored() -> None:
    engine = JobEngine(small_job("aligned", seed=3))
    engine.run_until(450_000)
    graph = engine.env.graph
    read = read_checkpoint(_stored(engine))
    source = read.vertices["source"]
    assert source.splits == (0, 1)
    for subtasks in ((source.subtasks[0],) * 2, (source.subtasks[0],)):
        broken = replace(read, vertices={**read.vertices, "source": replace(source, subtasks=subtasks)})
        with pytest.raises(
            PlanError, match=r"CK-1 at 'source': its subtasks read the splits \[0(, 0)?\], and \[0, 1\]"
        ):
            restored_graph(broken, graph)


def test_a_savepoint_says_that_it_is_one_and_in_which_format() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=5))
    engine.run_until(120_000)
    savepoint = engine.request_savepoint(SavepointFormat.NATIVE)
    engine.run_until(200_000)
    stored = engine.savepoint(savepoint.checkpoint_id or 0)
    assert stored is not None
    document = json.loads(stored.metadata)
    assert (document["type"], document["format"]) == ("SAVEPOINT", "NATIVE")
    assert json.loads(_stored(engine).metadata)["format"] is None


@pytest.mark.parametrize("inline_below_bytes", [0, 300, 1 << 20])
def test_files_are_counted_as_they_are_written(inline_below_bytes: int) -> None:
    engine = JobEngine(small_job("unaligned", seed=3, keyed={"state_bytes": 100}))
    engine.run_until(450_000)
    newest = engine.coordinator.newest
    assert newest is not None
    stored = _stored(engine, inline_below_bytes=inline_below_bytes)
    counts = [files_of(s, inline_below_bytes=inline_below_bytes) for s in newest.snapshots.values()]
    # A stream of no bytes is no file to count, though a handle names it; the coordinator's is not a subtask's.
    own = [len(data) for name, data in stored.files.items() if not name.endswith("-coordinator")]
    assert sum(c.physical for c in counts if inline_below_bytes) == sum(size > 0 for size in own if inline_below_bytes)
    handles = [h for v in json.loads(stored.metadata)["vertices"] for h in _handles(v["subtasks"])]
    assert sum(c.logical for c in counts) == sum(bool(h["size"]) for h in handles) > 4
    assert all(ack.measured.files == files_of(newest.snapshots[key]) for key, ack in newest.record.acks.items())


@pytest.mark.parametrize(
    ("size_bytes", "counts"), [(0, (0, 0)), (1, (3, 0)), (20_479, (3, 0)), (20_480, (3, 3)), (30_000, (3, 3))]
)
def test_state_of_twenty_kibibytes_gets_a_file_and_what_is_smaller_none(
    size_bytes: int, counts: tuple[int, int]
) -> None:
    """CK-2, ME-18: each stream for itself, whatever lies in it."""
    half, rest = b"x" * (size_bytes // 2), b"y" * (size_bytes - size_bytes // 2)
    operator = OperatorSnapshot({1: half, 2: rest}, (OperatorState("all", StateMode.UNION, (half, rest)),))
    inputs = {ChannelKey(0, 0, 0): [half], ChannelKey(0, 1, 0): [rest]}
    snapshot = SubtaskSnapshot((operator,), ChannelState(inputs, {ChannelKey(1, 0, 0): []}), -1, 0, 0)
    assert files_of(snapshot) == counts


@pytest.mark.parametrize("inline_below_bytes", [0, 300, 1 << 20])
@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_job_restored_from_the_bytes_alone_goes_on_exactly_once(protocol: str, inline_below_bytes: int) -> None:
    spec = small_job(protocol, seed=4, task_managers=2, records=_RECORDS)
    # The first run had attempts of its own, the last of them after the checkpoint.
    crash = FaultSpec("task.in-sync", hit=9)
    first = JobEngine(replace(spec, faults=(crash,)), keeps_rows=True)
    first.run_until(600_000)
    assert first.restart_count == 1
    stored = _stored(first, inline_below_bytes=inline_below_bytes)
    before = first.ledger.committed_count
    second = JobEngine(spec, keeps_rows=True, restore=StoredCheckpoint(bytes(stored.metadata), dict(stored.files)))
    # The external system is one: the second run settles what the first one left open.
    take_over(second.ledger, first.ledger)
    while second.ledger.committed_count < _RECORDS and second.now_us < 20_000_000:
        second.run_until(second.now_us + 100_000)
    second.run_until(second.now_us + 500_000)
    assert 0 < before < _RECORDS
    assert not exactly_once_violations(second.ledger.rows, _RECORDS)
    assert second.restored_id == read_checkpoint(stored).id
    assert second.coordinator.newest is not None
    assert second.coordinator.newest.record.id > read_checkpoint(stored).id


def test_reading_back_gives_what_was_written() -> None:
    engine = JobEngine(small_job("unaligned", seed=3))
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
    # Restored at the same parallelism only the union state differs: everyone reads all of it.
    restored = assign(read, graph).snapshots
    assert restored[0, 1] == newest.snapshots[0, 1]
    assert restored[2, 0].operators[0] == newest.snapshots[2, 0].operators[0]
    assert len(restored[2, 0].operators[1].entries("transactions")) == 2


def _read_by_hand(*subtasks: SubtaskSnapshot) -> tuple[ReadCheckpoint, VertexSpec]:
    """One keyed vertex with a sink, and what its subtasks had."""
    vertex = VertexSpec("k", VertexKind("keyed+sink"), "k", parallelism=len(subtasks), max_parallelism=_M)
    state = VertexState(len(subtasks), _M, is_keyed=True, subtasks=subtasks)
    return ReadCheckpoint(1, 0, "aligned", fingerprint(Graph((vertex,), ())), {"k": state}), vertex


def test_the_declared_size_of_state_goes_with_its_key_groups_and_entries_count_where_they_are_read() -> None:
    """RS-1, ME-17: what a rescaled subtask loads; a store may count more bytes than there are, and none less."""

    def snapshot(keyed: dict[int, bytes], entry: bytes, state_bytes: int) -> SubtaskSnapshot:
        states = (OperatorState("transactions", StateMode.UNION, (entry,)),)
        operators = (OperatorSnapshot(keyed), OperatorSnapshot({}, states))
        return SubtaskSnapshot(operators, ChannelState(), -1, state_bytes, 0)

    # 400 declared bytes for 40 of key groups, beside 6 of entries; and fewer declared than entries are.
    one, other = snapshot({0: b"a" * 10, 40: b"b" * 30}, b"first.", 406), snapshot({100: b"c" * 5}, b"second", 3)
    read, vertex = _read_by_hand(one, other)
    for parallelism, sizes in ((4, [112, 312, 12, 12]), (1, [412]), (2, [406, 3])):
        graph = Graph((replace(vertex, parallelism=parallelism),), ())
        restored = assign(read, graph).snapshots
        assert [restored[0, n].state_bytes for n in range(parallelism)] == sizes, parallelism


def test_a_checkpoint_without_its_channel_state_is_the_same_but_for_the_bytes_that_are_told() -> None:
    """RC-8."""
    engine = JobEngine(small_job("unaligned", seed=3))
    engine.run_until(450_000)
    read = read_checkpoint(_stored(engine))
    left, lost_bytes = without_channel_state(read)
    assert lost_bytes == read.persisted_bytes > 0
    assert (left.persisted_bytes, left.has_channel_state) == (0, False)
    for name, vertex in read.vertices.items():
        bare = [replace(s, channels=ChannelState(), persisted_bytes=0) for s in vertex.subtasks]
        assert list(left.vertices[name].subtasks) == bare
    assert without_channel_state(left) == (left, 0)


def test_keyed_state_is_not_restored_under_another_explicit_maximum_parallelism() -> None:
    engine = JobEngine(small_job("aligned", seed=3))
    engine.run_until(450_000)
    read = read_checkpoint(_stored(engine))
    graph = engine.env.graph

    def with_maximum(vertex_id: str, maximum: int) -> Graph:
        vertices = tuple(replace(v, max_parallelism=maximum) if v.id == vertex_id else v for v in graph.vertices)
        return Graph(vertices, graph.edges)

    with pytest.raises(PlanError, match="PT-4 at 'keyed': max_parallelism 64, and the checkpoint has 128"):
        restored_graph(read, with_maximum("keyed", 64))
    # The same one is taken, one of a vertex without keyed state does not matter, and none takes the recorded one.
    assert restored_graph(read, with_maximum("keyed", 128)).vertex("keyed").max_parallelism == 128
    assert restored_graph(read, with_maximum("map", 64)).vertex("map").max_parallelism == 64
    assert restored_graph(read, graph).vertex("keyed").max_parallelism == 128
