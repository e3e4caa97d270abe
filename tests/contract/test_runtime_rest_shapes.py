"""The live runtime's REST API answers like the recorded Flink 1.20: keys, types, sentinels and units of every path.

Goal: a client of Flink can read the runtime, and a client of the runtime can read Flink. Method: the shape of
every path is learned from six recordings. Three small jobs (aligned with failures and restarts, unaligned, and
with a cap on in-flight data) then answer the same requests at several moments. ``_SURPLUS`` lists the fields
that only the runtime has. Any other additional field is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import httpx
import pytest

from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine, job_run_id
from backend.live.rest import PREFIX, create_runtime_app
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.json_shape import Shape, type_of
from tests.support.recorded_flink import NAMES, RECORDINGS, recording
from tests.support.runtime_jobs import small_job
from tests.support.waiting import PATIENCE_S

_ORIGIN_MS = 1_760_000_000_000
_CAPPED = "<completed>.cap-bound-subtasks"
_SURPLUS: dict[str, frozenset[str]] = {
    "/jobs/<id>/checkpoints": frozenset({f"$.history[]{_CAPPED}", f"$.latest.completed{_CAPPED}"}),
    "/jobs/<id>/checkpoints/details/<n>": frozenset({f"${_CAPPED}"}),
    "/config": frozenset({"$.barrierscope-runtime", "$.lag-ms"}),
    "/jobs/<id>": frozenset({"$.lag-ms"}),
    "/jobs/<id>/checkpoints/config": frozenset(
        {"$.inflight-cap-bytes", "$.debloat-target-ms", "$.protocol", "$.spilling"}
    ),
}
# No recording has a failure of the whole job. These two shapes follow the declarations in Flink 1.20's
# JobExceptionsInfoWithHistory and CheckpointingStatistics.RestoredCheckpointStatistics.
_ENTRY: dict[str, object] = {
    "exceptionName": "",
    "stacktrace": "",
    "timestamp": 0,
    "failureLabels": {},
    "concurrentExceptions": [],
}
_DECLARED: dict[str, dict[str, object]] = {
    "/jobs/<id>/exceptions": {
        "root-exception": "",
        "timestamp": 0,
        "all-exceptions": [],
        "truncated": False,
        "exceptionHistory": {"entries": [_ENTRY, _ENTRY | {"taskName": ""}], "truncated": False},
    },
}
_RESTORED: dict[str, object] = {"id": 0, "restore_timestamp": 0, "is_savepoint": False, "external_path": ""}


def _pattern(path: str) -> str:
    path = re.sub(r"[0-9a-f]{32}", "<id>", path)
    path = re.sub(r"/details/\d+", "/details/<n>", path)
    bare, _, query = path.partition("?")
    return bare + ("?get" if "get=" in query else "") + ("&agg" if "agg=" in query else "")


@cache
def _recorded() -> dict[str, Shape]:
    shapes: defaultdict[str, Shape] = defaultdict(Shape)
    for name in NAMES:
        for path, answers in recording(RECORDINGS / name).answers.items():
            shapes[_pattern(path)].learn_all(body for status, body in answers if status == 200)
    for pattern, document in _DECLARED.items():
        shapes[pattern].learn(document)
    return dict(shapes)


@cache
def _recorded_metrics() -> dict[str, dict[str, set[str]]]:
    """Return the recorded metric names of each path, and for each name the forms of its values."""
    found: dict[str, dict[str, set[str]]] = {}
    for name in NAMES:
        for path, answers in recording(RECORDINGS / name).answers.items():
            if "metrics" not in path:
                continue
            offered = found.setdefault(_pattern(path).partition("?")[0], {})
            for _, body in answers:
                for row in body if isinstance(body, list) else []:
                    # In ``3.busyTimeMsPerSecond``, 3 is the index of the subtask and not part of the metric's name.
                    offered.setdefault(row["id"].partition(".")[2] if row["id"][0].isdigit() else row["id"], set())
                    if "value" in row:
                        offered[_bare(row["id"])].add(_looks(row["value"]))
    return found


def _bare(metric_id: str) -> str:
    return metric_id.partition(".")[2] if metric_id[0].isdigit() else metric_id


def _looks(text: str) -> str:
    for kind, pattern in (("int", r"-?\d+"), ("float", r"-?\d+\.\d+(E-?\d+)?"), ("bool", "true|false")):
        if re.fullmatch(pattern, text):
            return kind
    return "text"


class _Clock:
    """A wall clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Runtime:
    """Live jobs whose clock the test advances, and a client of their REST API."""

    def __init__(self, *specs: JobSpec) -> None:
        self.clock = _Clock()
        self.jobs = [
            LiveJob(job_run_id(spec.name, _ORIGIN_MS + n), build_live_engine(spec), _ORIGIN_MS, 0.0)
            for n, spec in enumerate(specs)
        ]
        self._driver = RuntimeDriver(self.jobs, self.clock)
        app = create_runtime_app(self._driver, version="0.1.0")
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1:8081{PREFIX}", timeout=PATIENCE_S
        )

    def advance_to(self, at_s: float) -> None:
        self.clock.now_s = at_s
        for job in self.jobs:
            while self._driver.advance(job):
                pass

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        assert answer.headers["content-type"] == "application/json"
        return answer.json()


def _jobs() -> Runtime:
    """Return three jobs: aligned with a crash and an expiry, unaligned with in-flight data, and one with a cap."""
    slow = {"execution.checkpointing.timeout": "400 ms", "execution.checkpointing.interval": "100 ms"}
    plan = (FaultSpec("task.in-sync", hit=25), FaultSpec("rpc.ack", hit=20, action=FaultAction.DROP))
    begun = small_job("capped", records=None)
    return Runtime(
        small_job("aligned", records=None, plan=plan, task_managers=2, config=dict(slow)),
        small_job("unaligned", records=None, seed=2),
        begun,
    )


async def _paths(runtime: Runtime) -> list[str]:
    """Return every path of the REST API for the current jobs, vertices and checkpoints."""
    paths = ["/config", "/overview", "/jobs", "/jobs/overview", "/taskmanagers"]
    for job in runtime.jobs:
        root = f"/jobs/{job.id}"
        paths += [root, *(f"{root}/{rest}" for rest in ("plan", "config", "exceptions", "metrics"))]
        paths += [f"{root}/checkpoints", f"{root}/checkpoints/config"]
        names = ",".join(row["id"] for row in await runtime.get(f"{root}/metrics"))
        paths.append(f"{root}/metrics?get={names}")
        vertices = [v["id"] for v in (await runtime.get(root))["vertices"]]
        for entry in (await runtime.get(f"{root}/checkpoints"))["history"]:
            detail = f"{root}/checkpoints/details/{entry['id']}"
            paths += [detail, *(f"{detail}/subtasks/{v}" for v in vertices)]
        for vertex in (f"{root}/vertices/{v}" for v in vertices):
            paths += [vertex, *(f"{vertex}/{rest}" for rest in ("backpressure", "metrics", "subtasks/metrics"))]
            names = ",".join(row["id"] for row in await runtime.get(f"{vertex}/metrics"))
            shared = ",".join(row["id"] for row in await runtime.get(f"{vertex}/subtasks/metrics"))
            paths += [f"{vertex}/metrics?get={names}", f"{vertex}/subtasks/metrics?get={shared}"]
    return paths


_MOMENTS_S = (0.0, 0.35, 1.48, 3.0)


async def _each_answer(runtime: Runtime, check: Callable[[str, Any], None]) -> None:
    for at_s in _MOMENTS_S:
        runtime.advance_to(at_s)
        for path in await _paths(runtime):
            check(f"{path} at {at_s} s", await runtime.get(path))


@pytest.mark.anyio
async def test_every_answer_has_the_recorded_shape() -> None:
    seen: set[str] = set()
    problems: set[str] = set()

    def check(where: str, answer: Any) -> None:
        pattern = _pattern(where.partition(" ")[0])
        seen.add(pattern)
        shape = _recorded()[pattern]
        if pattern == "/jobs/<id>/checkpoints" and answer["latest"]["restored"]:
            restored = answer["latest"].pop("restored")
            answer["latest"]["restored"] = None
            assert Shape().learn(_RESTORED).differences(restored) == []
        found = shape.differences(answer, surplus=_SURPLUS.get(pattern, frozenset()))
        problems.update(f"{pattern} {problem}" for problem in found)

    await _each_answer(_jobs(), check)
    assert not problems, "\n".join(sorted(problems))
    assert len(seen) >= 20, sorted(seen)


@pytest.mark.anyio
async def test_the_jobs_of_this_module_show_every_state_of_a_checkpoint() -> None:
    states: set[tuple[str, str]] = set()
    subtask_states: set[str] = set()
    kinds: set[str] = set()

    def check(where: str, answer: Any) -> None:
        if isinstance(answer, dict) and "checkpoint_type" in answer:
            states.add((answer["className"], answer["status"]))
            kinds.add(answer["checkpoint_type"])
        if isinstance(answer, dict) and "subtasks" in answer and "summary" in answer:
            subtask_states.update(s["className"] for s in answer["subtasks"])
        if isinstance(answer, dict) and answer.get("latest"):
            kinds.update(f"latest {kind}" for kind, entry in answer["latest"].items() if entry)

    await _each_answer(_jobs(), check)
    assert states == {("completed", "COMPLETED"), ("failed", "FAILED"), ("in_progress", "IN_PROGRESS")}
    assert subtask_states == {"completed", "pending"}
    assert kinds == {"CHECKPOINT", "UNALIGNED_CHECKPOINT", "latest completed", "latest failed", "latest restored"}


_NOT_RECORDED = {"failedCommittables", "numRecordsLost", "numRecordsPastTransactionTimeout"}
"""Flink's counter of a sink that commits, which no recorded job has, and what only the runtime tells of lost rows."""


@pytest.mark.anyio
async def test_metrics_have_recorded_names_and_value_formats() -> None:
    problems: set[str] = set()
    checked: set[str] = set()

    def check(where: str, answer: Any) -> None:
        pattern = _pattern(where.partition(" ")[0])
        if "metrics" not in pattern:
            return
        offered = _recorded_metrics()[pattern.partition("?")[0]]
        for row in answer:
            name = _bare(row["id"])
            if name in _NOT_RECORDED:
                continue
            if name not in offered:
                problems.add(f"{pattern}: {name} was never offered")
            elif "value" in row and offered[name]:
                checked.add(name)
                if _looks(row["value"]) not in offered[name]:
                    problems.add(f"{pattern}: {name} is {row['value']!r}, recorded: {sorted(offered[name])}")

    await _each_answer(_jobs(), check)
    assert not problems, "\n".join(sorted(problems))
    assert len(checked) > 15, sorted(checked)


@pytest.mark.anyio
async def test_instants_are_epoch_milliseconds_and_durations_are_their_differences() -> None:
    runtime = _jobs()
    runtime.advance_to(3.0)
    checked = 0
    for job in runtime.jobs:
        now_ms = (await runtime.get(f"/jobs/{job.id}"))["now"]
        assert now_ms == _ORIGIN_MS + 3000
        for entry in (await runtime.get(f"/jobs/{job.id}/checkpoints"))["history"]:
            trigger = entry["trigger_timestamp"]
            assert _ORIGIN_MS <= trigger <= now_ms
            if entry["status"] == "COMPLETED":
                assert entry["end_to_end_duration"] == entry["latest_ack_timestamp"] - trigger
            if entry["status"] == "FAILED":
                assert entry["end_to_end_duration"] == entry["failure_timestamp"] - trigger
            detail = await runtime.get(f"/jobs/{job.id}/checkpoints/details/{entry['id']}")
            assert entry["tasks"] == {}, "like the recorded one, an entry of the history has no tasks"
            assert {k: v for k, v in detail.items() if k != "tasks"} == {k: v for k, v in entry.items() if k != "tasks"}
            for key in ("num_acknowledged_subtasks", "num_subtasks", "persisted_data", "checkpointed_size"):
                assert detail[key] == sum(task[key] for task in detail["tasks"].values()), key
            checked += 1
    assert checked > 10


@pytest.mark.anyio
async def test_values_before_the_first_acknowledgement_are_minus_one_and_empty_quantiles_are_nan() -> None:
    runtime = Runtime(small_job("aligned", records=None))
    root = f"/jobs/{runtime.jobs[0].id}"
    summary = (await runtime.get(f"{root}/checkpoints"))["summary"]
    assert summary["end_to_end_duration"] == {"min": 0, "max": 0, "avg": 0} | dict.fromkeys(
        ("p50", "p90", "p95", "p99", "p999"), "NaN"
    )
    assert (await runtime.get(f"{root}/checkpoints"))["latest"] == dict.fromkeys(
        ("completed", "savepoint", "failed", "restored")
    )
    values = {r["id"]: r["value"] for r in await runtime.get(f"{root}/metrics?get=lastCheckpointDuration,nothing")}
    assert values == {"lastCheckpointDuration": "-1"}
    while not (history := (await runtime.get(f"{root}/checkpoints"))["history"]):
        runtime.advance_to(runtime.clock.now_s + 0.0005)
        # The driver reuses a view of the job for a while. Dropping the view makes it create a new one at every step.
        runtime.jobs[0].view = None
    assert history[0]["latest_ack_timestamp"] == -1
    assert history[0]["end_to_end_duration"] == -1


_SETTINGS = {
    "execution.checkpointing.interval": "3000 ms",
    "execution.checkpointing.unaligned.enabled": "true",
    "runtime.inflight-cap.bytes": "65536",
    "taskmanager.network.memory.buffer-debloat.enabled": "true",
    "taskmanager.network.memory.buffer-debloat.target": "500 ms",
}


@pytest.mark.anyio
async def test_live_settings_change_by_patch_and_stay_in_force() -> None:
    runtime = Runtime(small_job("aligned", records=None))
    root = f"/jobs/{runtime.jobs[0].id}"
    runtime.advance_to(1.0)
    before = await runtime.get(f"{root}/settings")
    answer = await runtime.client.patch(f"{root}/settings", json={
        "execution.checkpointing.interval": "3 s",
        "execution.checkpointing.unaligned.enabled": True,
        "runtime.inflight-cap.bytes": 65536,
        "taskmanager.network.memory.buffer-debloat.enabled": True,
        "taskmanager.network.memory.buffer-debloat.target": "500 ms",
    })  # fmt: skip
    assert answer.status_code == 200
    assert answer.json() == before | _SETTINGS == await runtime.get(f"{root}/settings")
    shown = await runtime.get(f"{root}/checkpoints/config")
    assert (shown["interval"], shown["unaligned_checkpoints"], shown["inflight-cap-bytes"]) == (3000, True, 65536)
    assert shown["debloat-target-ms"] == 500
    runtime.advance_to(8.0)
    history = (await runtime.get(f"{root}/checkpoints"))["history"]
    triggers = [c["trigger_timestamp"] for c in history]
    assert triggers[0] - triggers[1] == 3000
    assert history[0]["status"] == "COMPLETED"


_WRONG: list[tuple[bytes, str]] = [
    (b"", "body"),
    (b"{", "body"),
    (b"[]", "body"),
    (b"{}", "body"),
    (b'"interval"', "body"),
    (b'{"execution.checkpointing.interval": "soon"}', "execution.checkpointing.interval"),
    (b'{"execution.checkpointing.interval": "1 us"}', "execution.checkpointing.interval"),
    (b'{"execution.checkpointing.interval": null}', "execution.checkpointing.interval"),
    (b'{"execution.checkpointing.interval": {"ms": 5}}', "execution.checkpointing.interval"),
    (b'{"execution.checkpointing.intervall": "5 s"}', "execution.checkpointing.intervall"),
    (b'{"taskmanager.memory.segment-size": "4 kb"}', "taskmanager.memory.segment-size"),
    (b'{"execution.checkpointing.unaligned.enabled": "perhaps"}', "execution.checkpointing.unaligned.enabled"),
    (b'{"execution.checkpointing.timeout": "5 s", "nothing": 1}', "nothing"),
    (b'{"\\ud800": 1}', "body"),
    (b'{"execution.checkpointing.interval": 1e400}', "body"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("body", "field"), _WRONG, ids=[str(b)[:50] for b, _ in _WRONG])
async def test_an_invalid_change_names_the_field_and_changes_nothing(body: bytes, field: str) -> None:
    runtime = Runtime(small_job("aligned", records=None))
    path = f"/jobs/{runtime.jobs[0].id}/settings"
    before = await runtime.get(path)
    answer = await runtime.client.patch(path, content=body)
    assert answer.status_code == 400, answer.text
    problems = answer.json()["problems"]
    assert field in [p["field"] for p in problems]
    assert all(p["problem"] and p["allowed"] for p in problems)
    assert await runtime.get(path) == before


@pytest.mark.anyio
async def test_settings_that_contradict_each_other_and_a_huge_body_are_refused() -> None:
    runtime = Runtime(
        small_job("aligned", records=None, config={"execution.checkpointing.max-concurrent-checkpoints": 2})
    )
    path = f"/jobs/{runtime.jobs[0].id}/settings"
    answer = await runtime.client.patch(path, json={"execution.checkpointing.unaligned.enabled": True})
    assert answer.status_code == 400
    assert "unaligned checkpoints run one at a time" in answer.json()["errors"][0]
    answer = await runtime.client.patch(path, content=b" " * 70_000)
    assert answer.status_code == 413
    assert (await runtime.get(path))["execution.checkpointing.unaligned.enabled"] == "false"


_NOWHERE = "0" * 32


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        (f"/jobs/{_NOWHERE}", 404),
        ("/jobs/{job}/nothing", 404),
        ("/jobs/{job}/checkpoints/details/99999", 404),
        ("/jobs/{job}/checkpoints/99999/barriers", 404),
        (f"/jobs/{{job}}/vertices/{_NOWHERE}", 404),
        (f"/jobs/{{job}}/vertices/{_NOWHERE}/backpressure", 404),
        ("/jobs/xyz", 400),
        ("/jobs/{job}/vertices/xyz/metrics", 400),
        ("/jobs/{job}/checkpoints/details/latest", 400),
        ("/jobs/{job}/checkpoints/details/-1", 400),
        ("/jobs/{job}/checkpoints/details/" + "9" * 30, 400),
        ("/jobs/{job}/checkpoints/details/%D9%A3", 400),
    ],
)
async def test_an_unknown_path_or_id_has_an_answer_in_flinks_error_format(path: str, status: int) -> None:
    runtime = Runtime(small_job("aligned", records=None))
    answer = await runtime.client.get(path.format(job=runtime.jobs[0].id))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    errors = answer.json()["errors"]
    assert len(errors) == 1
    assert isinstance(errors[0], str)
    assert "Traceback" not in answer.text


@pytest.mark.anyio
async def test_unsupported_methods_and_foreign_hosts_and_origins_are_refused() -> None:
    runtime = Runtime(small_job("aligned", records=None))
    path = f"/jobs/{runtime.jobs[0].id}/settings"
    for method in ("POST", "PUT", "DELETE"):
        assert (await runtime.client.request(method, path)).status_code == 405
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}):
        answer = await runtime.client.patch(path, json=_SETTINGS, headers=headers)
        assert answer.status_code == 403, headers
    for headers in ({"host": "[::1"}, {"host": "a b"}, {"origin": "http://[x]"}, {"origin": "http://a/"}):
        answer = await runtime.client.patch(path, json=_SETTINGS, headers=headers)
        assert (answer.status_code, len(answer.json()["errors"])) == (400, 1), headers
    assert (await runtime.client.get(path, headers={"origin": "http://localhost:8050"})).status_code == 200


@pytest.mark.anyio
async def test_barrier_events_cover_each_channel_with_the_vertex_ids_of_the_other_paths() -> None:
    runtime = Runtime(small_job("unaligned", records=None, task_managers=2))
    runtime.advance_to(2.0)
    root = f"/jobs/{runtime.jobs[0].id}"
    vertices = [v["id"] for v in (await runtime.get(root))["vertices"]]
    number = (await runtime.get(f"{root}/checkpoints"))["latest"]["completed"]["id"]
    events = await runtime.get(f"{root}/checkpoints/{number}/barriers")
    received = {
        (e["channel"]["source"], e["channel"]["target"], e["channel"]["source_subtask"], e["channel"]["target_subtask"])
        for e in events
        if e["kind"] == "barrier_received"
    }
    expected = {(a, b, i, j) for a, b in pairwise(vertices) for i in (0, 1) for j in (0, 1)}
    assert received == expected
    assert {e["vertex"] for e in events} == set(vertices)
    assert sorted(e["at_us"] for e in events) == [e["at_us"] for e in events]
    acked = {(e["vertex"], e["subtask"]) for e in events if e["kind"] == "acked"}
    assert acked == {(v, i) for v in vertices for i in (0, 1)}
    shape: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        for key, value in event.items():
            shape[key].add(type_of(value))
    assert shape == {
        "kind": {"str"},
        "vertex": {"str"},
        "subtask": {"int"},
        "at_us": {"int"},
        "lamport": {"int"},
        "channel": {"object"},
        "bytes": {"int"},
        "between": {"array"},
        "positions": {"array"},
    }


@pytest.mark.anyio
async def test_buffer_debloating_offers_its_gauges_for_each_gate_once_it_is_on() -> None:
    runtime = Runtime(small_job("aligned", records=None))
    root = f"/jobs/{runtime.jobs[0].id}"
    runtime.advance_to(1.0)
    source, _, keyed = [v["id"] for v in (await runtime.get(root))["vertices"]]
    # These names come from Flink's SingleInputGateFactory, because no recorded job used buffer debloating.
    names = [f"Shuffle.Netty.Input.0.{name}" for name in ("debloatedBufferSize", "estimatedTimeToConsumeBuffersMs")]

    async def offered(vertex: str) -> set[str]:
        return {row["id"] for row in await runtime.get(f"{root}/vertices/{vertex}/subtasks/metrics")}

    assert not offered_of(names, await offered(keyed))
    change = {"taskmanager.network.memory.buffer-debloat.enabled": True}
    change |= {f"taskmanager.network.memory.buffer-debloat.{k}": v for k, v in (("target", "20 ms"), ("samples", 1))}
    assert (await runtime.client.patch(f"{root}/settings", json=change)).status_code == 200
    runtime.advance_to(4.0)
    assert offered_of(names, await offered(keyed)) == set(names)
    assert not offered_of(names, await offered(source)), "a source has no input gate"
    asked = ",".join(f"1.{name}" for name in names)
    size, time_ms = [int(r["value"]) for r in await runtime.get(f"{root}/vertices/{keyed}/metrics?get={asked}")]
    assert 256 <= size < 512
    assert time_ms > 0


def offered_of(names: list[str], offered: set[str]) -> set[str]:
    """Return those ``names`` that are among the ``offered`` metrics."""
    return set(names) & offered
