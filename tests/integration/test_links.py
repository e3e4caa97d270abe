"""The links out of Barrierscope, thread dumps and flame graphs through the API, over a real store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from backend.contracts.api import JobOut, Page, Problem, TargetOut
from backend.contracts.inspection import FlameGraphOut, ThreadDumpOut
from backend.contracts.links import LinksOut
from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.engines import FLINK, RUNTIME, SPARK, flink
from backend.domain.errors import ConflictError
from backend.domain.inspection import FlameGraph, Frame, ReadThreads, SampleStacks, StackType, Thread, ThreadDump
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.domain.topology import Placement
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, SINK, SOURCE, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_MANAGER = "10.0.0.7:44533-18484d"
_RUN = "a" * 32
_PLACED = Placement(
    SINK, ("worker-1", "worker-2", None), (None, _MANAGER, None), (0, 4, None), ("RUNNING", "RUNNING", None)
)
_GRAFANA = {"name": "Grafana", "url": "https://grafana.example/d/tm?var-tm={taskmanager}&from={from}&to={to}"}


class Cluster:
    """A watched cluster with one job, and the requests for threads and stacks that reached it."""

    def __init__(self, engine, writer, clock):
        self.engine, self.writer, self.clock = engine, writer, clock
        self.asked = []
        self.answer = None

    async def inspect(self, url, run, request, timeout_s, *, kind, reach):
        self.asked.append((url, run, request, kind, reach.rules))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def report(self, url="http://my-flink:8081", of=FLINK, state=JobState.RUNNING, origin=TargetOrigin.API):
        self.clock.at = NOW
        new = NewTarget(url=url, name="prod", origin=origin, labels={"team": "a/b"})
        self.target = (await TargetRepository(self.engine).get_or_add(new, at=NOW)).id
        seen = replace(job([completed(4)]), placements=(_PLACED,), state=state)
        await self.writer.write(replace(observation(self.target, seen), engine=of, engine_version=None))


@pytest.fixture
async def cluster(engine, writer, clock):
    return Cluster(engine, writer, clock)


@pytest.fixture
async def client(engine, clock, cluster):
    async with asking(api_over(engine, clock, inspect=cluster.inspect)) as opened:
        yield opened


async def _get(client, path, model, *, status=200):
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return model.model_validate_json(answer.content)


async def _root(client):
    (row,) = (await _get(client, "/api/v1/jobs", Page[JobOut])).items
    return f"/api/v1/jobs/{row.id}"


async def _patch(client, cluster, body, *, status=200):
    answer = await client.patch(f"/api/v1/targets/{cluster.target}", json=body)
    assert answer.status_code == status, answer.text
    return (TargetOut if status == 200 else Problem).model_validate_json(answer.content)


async def _urls(client, query=""):
    found = await _get(client, f"{await _root(client)}/links{query}", LinksOut)
    return {link.name: link.url or link.reason for link in found.items}


# --- links --------------------------------------------------------------------------------------------------------


async def test_the_pages_of_flink_are_offered_without_a_template(client, cluster):
    await cluster.report()
    of_job = await _urls(client)
    of_subtask = await _urls(client, f"?vertex={SINK}&subtask=1")

    root = f"http://my-flink:8081/#/job/running/{_RUN}"
    assert of_job["Flink: job"] == f"{root}/overview"
    assert of_job["Flink: checkpoints"] == f"{root}/checkpoints"
    assert of_job["Flink: subtasks"] == "no value for {vertex_id}: no vertex is chosen"
    assert of_subtask["Flink: subtasks"] == f"{root}/overview/{SINK}/subtasks"
    assert of_subtask["Flink: back pressure"] == f"{root}/overview/{SINK}/backpressure"
    manager = "http://my-flink:8081/#/task-manager/10.0.0.7%3A44533-18484d/logs"
    assert of_subtask["Flink: TaskManager log"] == manager


async def test_a_run_that_ended_has_other_pages_and_no_process(client, cluster):
    await cluster.report(state=JobState.ENDED)
    found = await _urls(client, f"?vertex={SINK}&subtask=1")

    assert found["Flink: job"] == f"http://my-flink:8081/#/job/completed/{_RUN}/overview"
    assert found["Flink: TaskManager log"] == "the run has ended"


async def test_an_old_flink_has_its_own_paths(client, cluster):
    await cluster.report(of=flink("1.14.6"))
    assert (await _urls(client))["Flink: job"] == f"http://my-flink:8081/#/job/{_RUN}/overview"


async def test_an_engine_without_a_web_ui_has_no_pages(client, cluster):
    await cluster.report(of=RUNTIME)
    assert await _urls(client) == {}


async def test_a_password_in_the_address_of_a_target_is_in_no_link(client, cluster):
    await cluster.report("http://user:hunter2@my-flink:8081/x", origin=TargetOrigin.CONFIGURATION)
    links = await client.get(f"{await _root(client)}/links?vertex={SINK}&subtask=1")

    assert "hunter2" not in links.text
    assert (await _urls(client))["Flink: job"] == f"http://my-flink:8081/x/#/job/running/{_RUN}/overview"


async def test_the_templates_of_the_target_are_filled(client, cluster):
    await cluster.report()
    logs = {"name": "Logs", "url": "http://{host}:8042/{label:team}/{vertex}/{subtask}/{attempt}?job={job}&r={run}"}
    owner = {"name": "Owner", "url": "https://a.example/{label:owner}"}
    changed = await _patch(client, cluster, {"links": [_GRAFANA, logs, owner], "ui_url": "https://flink.example/ui/"})
    assert [link.model_dump() for link in changed.links] == [_GRAFANA, logs, owner]
    assert changed.ui_url == "https://flink.example/ui"

    found = await _urls(client, f"?vertex={SINK}&subtask=1")
    expected = f"http://worker-2:8042/a%2Fb/Sink%3A%20ledger/1/4?job=orders&r={_RUN}"
    assert found["Logs"] == expected
    assert found["Owner"] == "no value for {label:owner}: the target does not have this label"
    assert found["Flink: job"].startswith("https://flink.example/ui/#/job/")
    assert "no value for {taskmanager}" in (await _urls(client, f"?vertex={SINK}&subtask=0"))["Grafana"]
    assert "no value for {host}" in (await _urls(client, f"?vertex={SOURCE}&subtask=0"))["Logs"]

    # Two editors read the same links. The second one does not overwrite what the first one stored.
    read = {"links_version": changed.links_version}
    first = await _patch(client, cluster, {"links": [_GRAFANA]} | read)
    refused = await _patch(client, cluster, {"links": [owner], "ui_url": ""} | read, status=409)
    assert "changed meanwhile" in refused.detail
    assert refused.type.endswith("version-conflict")
    again = await _patch(client, cluster, {"is_enabled": True, "links_version": first.links_version})
    assert ([link.name for link in again.links], again.ui_url) == (["Grafana"], "https://flink.example/ui")

    cleared = await _patch(client, cluster, {"links": [], "ui_url": ""})
    assert (cleared.links, cleared.ui_url) == ([], None)
    assert (await _urls(client))["Flink: job"].startswith("http://my-flink:8081/#/")


async def test_the_time_range_is_that_of_the_checkpoint_the_request_or_an_hour(client, cluster):
    await cluster.report()
    root = await _root(client)
    hour = await _get(client, f"{root}/links", LinksOut)
    assert hour.until - hour.since == timedelta(hours=1)
    (row,) = (await _get(client, "/api/v1/jobs", Page[JobOut])).items
    listed = await client.get(f"{root}/checkpoints")
    triggered_at = listed.json()["items"][0]["triggered_at"]
    of_checkpoint = await _get(client, f"{root}/links?checkpoint=4&run={row.run_id}", LinksOut)
    assert (of_checkpoint.since + timedelta(minutes=1)).isoformat().replace("+00:00", "Z") == triggered_at
    assert of_checkpoint.since < of_checkpoint.until <= of_checkpoint.since + timedelta(minutes=3)
    asked = await _get(client, f"{root}/links?from=2026-11-21T10:00:00Z&to=2026-11-21T11:00:00Z", LinksOut)
    assert (asked.since.hour, asked.until.hour) == (10, 11)


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("?subtask=1", 422, "invalid-input"),
        ("?vertex=nobody", 404, "unknown-vertex"),
        (f"?vertex={SINK}&subtask=3", 404, "unknown-subtask"),
        ("?checkpoint=99", 404, "unknown-checkpoint"),
        ("?run=r0", 404, "unknown-run"),
        ("?from=2026-11-21T11:00:00Z&to=2026-11-21T10:00:00Z", 422, "invalid-input"),
    ],
)
async def test_what_does_not_exist_has_no_links(client, cluster, query, status, kind):
    await cluster.report()
    problem = await _get(client, f"{await _root(client)}/links{query}", Problem, status=status)
    assert problem.type.endswith(kind)


@pytest.mark.parametrize(
    ("links", "pointer", "said"),
    [
        ([{"name": "x", "url": "javascript:alert(1)"}], "#/links/0/url", "does not begin with http:// or https://"),
        ([_GRAFANA, {"name": "x", "url": "http://a.example/{nobody}"}], "#/links/1/url", "placeholder {nobody}"),
        ([{"name": "x", "url": "http://u:hunter2@a.example/"}], "#/links/0/url", "credentials"),
        ([{"name": "x\n", "url": "http://a.example/"}], "#/links/0/name", "control character"),
        ([_GRAFANA, _GRAFANA], "#/links", "'Grafana' is used twice"),
        ([{"name": str(n), "url": "http://a.example/"} for n in range(21)], "#/links", "at most 20"),
    ],
)
async def test_a_template_that_no_page_may_offer_is_refused(client, cluster, links, pointer, said):
    await cluster.report()
    problem = await _patch(client, cluster, {"links": links}, status=422)

    (field,) = problem.errors
    assert (field.pointer, said in field.detail) == (pointer, True), problem
    assert "hunter2" not in problem.model_dump_json()
    assert (await _get(client, f"/api/v1/targets/{cluster.target}", TargetOut)).links == []


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://u:hunter2@a.example", "http://a.example/?x=1"])
async def test_an_address_of_a_web_ui_is_checked_like_that_of_a_target(client, cluster, url):
    await cluster.report()
    problem = await _patch(client, cluster, {"ui_url": url}, status=422)

    assert problem.errors[0].pointer.endswith("ui_url")
    assert "hunter2" not in problem.model_dump_json()


async def test_a_removed_target_keeps_its_links_and_one_that_is_added_again_begins_without(client, cluster):
    await cluster.report()
    await _patch(client, cluster, {"links": [_GRAFANA]})
    root = await _root(client)
    assert (await client.delete(f"/api/v1/targets/{cluster.target}")).status_code == 204
    kept = await _get(client, f"{root}/links", LinksOut)
    assert "Grafana" in [link.name for link in kept.items]
    await client.post("/api/v1/targets", json={"url": "http://my-flink:8081"})
    assert "Grafana" not in await _urls(client)


# --- thread dumps and flame graphs --------------------------------------------------------------------------------

_DUMP = ThreadDump((Thread("main", "main\n\tat a.B", False), Thread("Sink: ledger (2/3)#4", "x\n\tat c.D", True)))


async def test_the_threads_of_the_subtask_are_read_from_its_task_manager(client, cluster):
    await cluster.report()
    cluster.answer = _DUMP
    path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/thread-dump"
    own = await _get(client, path, ThreadDumpOut)
    every = await _get(client, f"{path}?all=true", ThreadDumpOut)

    request = ReadThreads(_MANAGER, "Sink: ledger", 1, 3)
    assert cluster.asked == [("http://my-flink:8081", _RUN, request, "flink", EVERYWHERE)] * 2
    assert (own.host, own.task_manager, own.thread_count) == ("worker-2", _MANAGER, 2)
    assert [t.name for t in own.threads] == ["Sink: ledger (2/3)#4"]
    assert len(every.threads) == 2


async def test_the_flame_graph_of_the_subtask_is_read_and_while_it_is_sampled_there_are_no_frames(client, cluster):
    await cluster.report()
    path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/flame-graph"
    cluster.answer = FlameGraph(None)
    waiting = await _get(client, f"{path}?type=on_cpu", FlameGraphOut)
    cluster.answer = FlameGraph(NOW, (Frame("root", 9, None), Frame("a.B.c:1", 9, 0)), 2)
    found = await _get(client, path, FlameGraphOut)

    assert [request for _, _, request, _, _ in cluster.asked] == [
        SampleStacks(SINK, 1, StackType.ON_CPU),
        SampleStacks(SINK, 1, StackType.FULL),
    ]
    assert (waiting.is_sampling, waiting.frames) == (True, [])
    assert (found.is_sampling, found.sample_count, found.left_out_count) == (False, 9, 2)
    assert [(f.name, f.parent) for f in found.frames] == [("root", None), ("a.B.c:1", 0)]
    assert (await client.get(f"{path}?type=other")).status_code == 422


@pytest.mark.parametrize("what", ["thread-dump", "flame-graph"])
@pytest.mark.parametrize("of", [RUNTIME, SPARK])
async def test_an_engine_that_does_not_offer_it_is_not_asked(client, cluster, what, of):
    await cluster.report(of=of)
    path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/{what}"
    problem = await _get(client, path, Problem, status=409)

    assert problem.type.endswith("inspection-not-available")
    assert problem.detail.startswith(of.name)
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        (f"{SINK}/subtasks/0/thread-dump", 409, "place-not-known"),
        (f"{SINK}/subtasks/3/thread-dump", 404, "unknown-subtask"),
        ("nobody/subtasks/0/flame-graph", 404, "unknown-vertex"),
    ],
)
async def test_a_subtask_whose_place_is_not_known_is_not_asked_for(client, cluster, path, status, kind):
    await cluster.report()
    problem = await _get(client, f"{await _root(client)}/vertices/{path}", Problem, status=status)
    assert problem.type.endswith(kind)
    assert cluster.asked == []


async def test_a_job_that_ended_has_no_threads(client, cluster):
    await cluster.report(state=JobState.ENDED)
    path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/thread-dump"
    assert (await _get(client, path, Problem, status=409)).type.endswith("job-ended")


async def test_what_the_engine_refuses_is_told_in_its_words(client, cluster):
    await cluster.report()
    cluster.answer = ConflictError("flame graphs are switched off", kind="flame-graphs-disabled")
    path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/flame-graph"
    problem = await _get(client, path, Problem, status=409)
    assert (problem.type.endswith("flame-graphs-disabled"), problem.detail) == (True, "flame graphs are switched off")


async def test_a_target_whose_address_is_no_longer_allowed_is_not_asked(engine, clock, cluster):
    await cluster.report()
    rules = AddressRules(is_everything_allowed=False, allowed=("other.example",))
    async with asking(api_over(engine, clock, rules=rules, inspect=cluster.inspect)) as client:
        path = f"{await _root(client)}/vertices/{SINK}/subtasks/1/thread-dump"
        problem = await _get(client, path, Problem, status=422)
        assert "'my-flink' is not allowed here" in problem.errors[0].detail
        # A link is followed by the viewer's browser, which the rules of this service do not concern.
        assert urlsplit((await _urls(client))["Flink: job"]).hostname == "my-flink"
    assert cluster.asked == []
