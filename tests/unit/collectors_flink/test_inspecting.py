"""Thread dumps and flame graphs as Flink 1.20 and 2.3 sent them, and answers that Flink never sends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.domain.errors import ConflictError, TargetProtocolError
from backend.domain.inspection import ReadThreads
from collectors.flink import inspecting
from collectors.flink.document import read
from collectors.flink.inspecting import stacks_in, threads_in

_RECORDED = Path(__file__).parents[2] / "contract" / "recordings_inspection"
_SLOW = ReadThreads("127.0.0.1:44533-18484d", "slow-stage-2 -> sink: Writer", 1, 4)


def _recorded(name):
    return read((_RECORDED / name).read_bytes(), url="http://flink")


def _document(value):
    return read(json.dumps(value).encode(), url="http://flink")


@pytest.mark.parametrize("version", ["1.20", "2.3"])
def test_the_threads_of_the_subtask_are_found_by_their_names(version):
    dump = threads_in(_recorded(f"thread_dump_{version}.json"), _SLOW)

    own = [t.name for t in dump.threads if t.is_of_subtask]
    assert own[0] == "slow-stage-2 -> sink: Writer (2/4)#0"
    assert set(own) == {own[0], f"System Time Trigger for {own[0]}"}
    others = {t.name for t in dump.threads if not t.is_of_subtask}
    assert {"main", "slow-stage-2 -> sink: Writer (1/4)#0", "stage-1 (2/4)#0"} <= others
    stack = next(t.stack for t in dump.threads if t.name == own[0])
    assert "CheckpointLab$Slow.processElement" in stack
    assert stack.startswith('"slow-stage-2')
    assert "\n\tat " in stack


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("map (2/4)#0", True),
        ("map (2/4)#17", True),
        ("Legacy Source Thread - map (2/4)#0", True),
        ("OutputFlusher for map (2/4)#0", True),
        ("Channel state writer map (2/4)#0", True),
        ("Source: map (2/4)#0", False),
        ("map (1/4)#0", False),
        ("map (2/40)#0", False),
        ("map (2/4)", False),
    ],
)
def test_a_name_that_only_ends_like_the_subtask_is_not_its_thread(name, is_own):
    answer = {"threadInfos": [{"threadName": name, "stringifiedThreadInfo": "x"}]}
    (thread,) = threads_in(_document(answer), ReadThreads("tm", "map", 1, 4)).threads
    assert thread.is_of_subtask is is_own


@pytest.mark.parametrize("version", ["1.20", "2.3"])
def test_the_tree_of_samples_is_read_with_callers_first(version):
    graph = stacks_in(_recorded(f"flame_graph_full_{version}.json"))

    assert graph.sampled_at is not None
    assert (graph.frames[0].name, graph.frames[0].sample_count, graph.frames[0].parent) == ("root", 100, None)
    for number, frame in enumerate(graph.frames[1:], start=1):
        assert frame.parent is not None
        assert frame.parent < number
        assert frame.sample_count <= graph.frames[frame.parent].sample_count
    assert any("CheckpointLab$Slow.processElement" in f.name for f in graph.frames)


def test_a_subtask_that_never_ran_in_a_sample_has_the_root_only():
    graph = stacks_in(_recorded("flame_graph_on_cpu_2.3.json"))
    assert [(f.name, f.sample_count) for f in graph.frames] == [("root", 0)]


def test_why_there_is_no_flame_graph_is_told():
    assert stacks_in(_document({"endTimestamp": -3})).sampled_at is None
    with pytest.raises(ConflictError, match=r"set rest\.flamegraph\.enabled: true") as off:
        stacks_in(_document({"endTimestamp": -2}))
    assert off.value.kind == "flame-graphs-disabled"
    with pytest.raises(ConflictError, match="has ended"):
        stacks_in(_document({"endTimestamp": -1}))


def test_a_very_large_tree_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(inspecting, "FRAMES_MAX", 5)
    children = [{"name": f"f{n}", "value": 1, "children": []} for n in range(9)]
    graph = stacks_in(_document({"endTimestamp": 1, "data": {"name": "root", "value": 9, "children": children}}))
    assert (len(graph.frames), graph.left_out_count) == (5, 5)


def test_frames_below_one_that_is_left_out_are_counted(monkeypatch):
    monkeypatch.setattr(inspecting, "FRAMES_MAX", 3)
    graph = stacks_in(read(_nested(9, b'{"name":"leaf","value":1}'), url="http://flink"))
    assert (len(graph.frames), graph.left_out_count) == (3, 7)


def test_a_wrong_value_in_a_very_deep_tree_is_refused():
    with pytest.raises(TargetProtocolError, match="is 3, text is needed"):
        stacks_in(read(_nested(500, b'{"name":3,"value":1}'), url="http://flink"))


def _nested(depth, leaf):
    head = b'{"name":"a","value":1,"children":['
    return b'{"endTimestamp":1,"data":' + head * depth + leaf + b"]}" * depth + b"}"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"endTimestamp": "soon"},
        {"endTimestamp": 1, "data": {"name": "root"}},
        {"endTimestamp": 1, "data": {"name": "root", "value": -1}},
        {"endTimestamp": 1, "data": {"name": "root", "value": 1, "children": [7]}},
        {"endTimestamp": -9, "data": {"name": "root", "value": 1}},
    ],
)
def test_an_answer_that_flink_never_sends_is_refused(answer):
    with pytest.raises(TargetProtocolError):
        stacks_in(_document(answer))


@pytest.mark.parametrize("answer", [{}, {"threadInfos": [{"threadName": "x"}]}, {"threadInfos": [{"threadName": 1}]}])
def test_a_dump_that_flink_never_sends_is_refused(answer):
    with pytest.raises(TargetProtocolError):
        threads_in(_document(answer), _SLOW)
