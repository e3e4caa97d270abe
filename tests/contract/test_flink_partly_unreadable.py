"""A response that cannot be read costs what it describes: a row, a detail or a job, but never the rest of the poll.

A proxy in front of Flink answers some requests itself. These are sent again, and each attempt counts.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from backend.domain.checkpoint import Checkpoint
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, JobState, Observation
from backend.domain.verdict import VerdictKind
from collectors import diagnose
from collectors.base import FlinkTransport
from collectors.diagnosis_print import Answer, DiagnosisFormat, printed
from collectors.flink.client import open_transport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from tests.support.observations import SteppingClock
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, serve_app, served
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

Change = Callable[[Any], Any]


class Changed:
    """A recorded Flink that changes the responses at some paths."""

    def __init__(self) -> None:
        self.flink = RecordedFlink(RECORDINGS / "B2")
        self.flink.at_s = 40.0
        self.url = self.flink.url
        self.changes: dict[str, Change] = {}

    async def get(self, path: str) -> bytes:
        body = await self.flink.get(path)
        for part, change in self.changes.items():
            if part in path:
                document = orjson.loads(body)
                return orjson.dumps(change(document))
        return body

    def collector(self) -> FlinkCollector:
        return FlinkCollector(self, target_id=TargetId("t"), monotonic_s=self.flink.monotonic_s)

    async def read(self) -> JobObservation:
        (job,) = (await self.collector().collect(self.flink.now)).jobs
        return job


def terminal(job: JobObservation) -> dict[int, Checkpoint]:
    return {c.header.checkpoint_id: c for c in job.checkpoints if c.header.status.is_terminal}


async def test_an_entry_of_the_history_that_cannot_be_read_costs_only_this_checkpoint() -> None:
    changed = Changed()
    whole = terminal(await changed.read())
    broken = sorted(whole)[2]

    def spoil(document: Any) -> Any:
        for entry in document["history"]:
            if entry["id"] == broken:
                del entry["num_subtasks"]
        return document

    changed.changes["/checkpoints"] = lambda d: spoil(d) if isinstance(d, dict) and "history" in d else d
    collector = changed.collector()
    (job,) = (await collector.collect(changed.flink.now)).jobs
    changed.flink.at_s += 2.0
    (next_job,) = (await collector.collect(changed.flink.now)).jobs

    assert terminal(job) == {n: c for n, c in whole.items() if n != broken}
    assert any("has no 'num_subtasks'" in p for p in job.problems)
    assert next_job.pressure


async def test_a_history_of_which_no_entry_can_be_read_is_an_unreadable_job() -> None:
    changed = Changed()
    changed.changes["/checkpoints"] = lambda d: (
        d | {"history": [{} for _ in d["history"]]} if isinstance(d, dict) and "history" in d else d
    )

    with pytest.raises(TargetProtocolError, match="has no 'status'"):
        await changed.read()


async def test_the_detail_of_one_vertex_that_cannot_be_read_costs_the_detail_of_this_checkpoint() -> None:
    changed = Changed()
    whole = terminal(await changed.read())
    broken = sorted(whole)[1]
    changed.changes[f"/details/{broken}/subtasks/"] = lambda d: d | {"num_subtasks": "four"}
    collector = changed.collector()
    observations = [await collector.collect(changed.flink.now) for _ in range(3)]
    (first,), (second,), (third,) = (o.jobs for o in observations)

    expected = {n: c if n != broken else Checkpoint(c.header) for n, c in whole.items()}
    assert terminal(first) == expected
    assert any(f"checkpoint {broken} was not read" in p for p in first.problems)
    assert any(f"checkpoint {broken} cannot be read" in p for p in second.problems)
    assert second.shed.detail_count == 1
    assert terminal(second) == terminal(third) == {}
    assert third.problems == ()


async def test_an_exception_that_cannot_be_read_costs_only_this_exception() -> None:
    changed = Changed()
    good = {"timestamp": 1_795_218_627_942, "exceptionName": "E", "stacktrace": "E: it broke"}
    changed.changes["/exceptions"] = lambda _: {"exceptionHistory": {"entries": [{"timestamp": "now"}, good]}}
    job = await changed.read()

    assert [text for _, text in job.exceptions] == ["E: it broke"]
    assert any("is the text 'now'" in p for p in job.problems)


async def test_the_placement_of_one_vertex_that_cannot_be_read_costs_only_this_placement() -> None:
    changed = Changed()
    whole = await changed.read()
    broken = whole.placements[1].vertex_id
    changed.changes[f"/vertices/{broken}"] = lambda d: d if isinstance(d, list) else d | {"subtasks": 4}
    job = await changed.read()

    assert job.placements == tuple(p for p in whole.placements if p.vertex_id != broken)


async def test_a_graph_that_can_no_longer_be_read_leaves_the_one_that_was_read_before() -> None:
    changed = Changed()
    collector = changed.collector()
    await collector.collect(changed.flink.now)
    changed.changes["/jobs/overview"] = lambda d: {"jobs": [r | {"last-modification": 1} for r in d["jobs"]]}
    changed.changes[f"/jobs/{changed.flink.recording.job_id}"] = lambda d: (
        d | {"vertices": 7} if isinstance(d, dict) and "vertices" in d else d
    )
    changed.flink.at_s += 10.0
    (job,) = (await collector.collect(changed.flink.now)).jobs

    assert any("vertices is 7" in p for p in job.problems)
    assert terminal(job)
    assert job.pressure


async def test_many_problems_are_counted_and_not_all_listed() -> None:
    changed = Changed()
    rows = [{"timestamp": f"{n}"} for n in range(500)]
    changed.changes["/exceptions"] = lambda _: {"exceptionHistory": {"entries": rows}}
    job = await changed.read()

    assert len(job.problems) == 21
    assert job.problems[-1] == "and 480 more"


# --- a proxy in front of the target -------------------------------------------------------------------------------


class Naps:
    """A pause that passes at once and is counted. It moves ``clock``."""

    def __init__(self, clock: SteppingClock | None = None) -> None:
        self.taken_s: list[float] = []
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        self.taken_s.append(seconds)
        if self._clock is not None:
            self._clock.at += timedelta(seconds=seconds)


def bad_gateway() -> web.Response:
    return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")


def to_login() -> web.Response:
    return web.Response(status=302, headers={"Location": "https://user:pw@sso.example/login?token=secret"})


def login_page() -> web.Response:
    return web.Response(text="<html><form>Password</form></html>", content_type="text/html")


def cut_body() -> web.Response:
    return web.Response(body=b'{"jobs": [{"jid": "43', content_type="application/json")


def broken_gzip() -> web.Response:
    body = gzip.compress(b"{}" * 100)[:-9]
    return web.Response(body=body, headers={"Content-Encoding": "gzip"}, content_type="application/json")


BAD_ANSWERS = {
    "502": (bad_gateway, "HTTP 502 of a proxy, which does not reach Flink (3 attempts)"),
    "redirect": (to_login, "answers by a redirect to https://sso.example/login (a login page)"),
    "login page": (login_page, "answers HTML, not Flink's JSON (3 attempts)"),
    "cut body": (cut_body, "the answer is not JSON"),
    "broken gzip": (broken_gzip, "the compressed answer is broken (3 attempts)"),
}


class Proxy:
    """An application that plays back a recording, but answers the first ``count`` requests for a part itself."""

    def __init__(self, part: str, answer: Callable[[], web.Response], count: int) -> None:
        self.flink = RecordedFlink(RECORDINGS / "B2")
        self.flink.at_s = 40.0
        self.part, self.answer, self.left = part, answer, count
        self.asked_count = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        self.asked_count += 1
        if self.part in request.path_qs and self.left > 0:
            self.left -= 1
            return self.answer()
        status, body = self.flink.answer(request.path_qs)
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


async def polled(proxy: Proxy, naps: Naps, **options: float) -> Observation:
    async with serve_app(proxy.app()) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        return await collector_of(transport, proxy, naps, **options).collect(proxy.flink.now)


def collector_of(transport: FlinkTransport, proxy: Proxy, naps: Naps, **options: float) -> FlinkCollector:
    return FlinkCollector(
        transport,
        target_id=TargetId("t"),
        monotonic_s=proxy.flink.monotonic_s,
        sleep=naps.sleep,
        options=CollectorOptions(**options),
    )


@pytest.mark.parametrize("part", ["/config", "/jobs/overview", "/checkpoints", "/subtasks/", "/exceptions"])
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_of_a_proxy_is_requested_again(name: str, part: str) -> None:
    whole = await polled(Proxy("no such path", bad_gateway, 0), Naps())
    naps, proxy = Naps(), Proxy(part, BAD_ANSWERS[name][0], 2)
    observation = await polled(proxy, naps)

    assert [j.problems for j in observation.jobs] == [()]
    assert observation.jobs == whole.jobs
    assert observation.cost.request_count == whole.cost.request_count + 2 == proxy.asked_count
    assert naps.taken_s == [0.2, 0.6]


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_answer_that_stays_bad_is_named_and_the_rest_is_read(name: str) -> None:
    answer, words = BAD_ANSWERS[name]
    observation = await polled(Proxy("/exceptions", answer, 99), Naps())
    (job,) = observation.jobs

    assert len([p for p in job.problems if words in p and "/exceptions" in p]) == 1
    assert "secret" not in str(job.problems)
    assert "pw" not in str(job.problems)
    assert len(terminal(job)) >= 6


async def test_details_behind_a_bad_proxy_wait_for_the_next_poll_and_are_not_given_up() -> None:
    naps, proxy = Naps(), Proxy("/subtasks/", bad_gateway, 10**9)
    async with serve_app(proxy.app()) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        collector = collector_of(transport, proxy, naps)
        for _ in range(4):
            (job,) = (await collector.collect(proxy.flink.now)).jobs
        assert any("was not read" in p for p in job.problems)
        proxy.left = 0
        (job,) = (await collector.collect(proxy.flink.now)).jobs

    assert len([c for c in terminal(job).values() if c.details]) >= 6


async def test_repeated_requests_are_bounded_in_a_poll() -> None:
    whole = await polled(Proxy("no such path", bad_gateway, 0), Naps())
    naps = Naps()
    proxy = Proxy("/vertices/", bad_gateway, 10**9)
    observation = await polled(proxy, naps)

    assert len(naps.taken_s) <= 12
    assert observation.cost.request_count <= whole.cost.request_count + 12


async def test_nothing_is_repeated_beyond_the_budget_of_requests_or_time() -> None:
    for options in ({"budget_count": 1}, {"deadline_s": 0.1}):
        naps = Naps()
        with pytest.raises(TargetProtocolError, match="HTTP 502"):
            await polled(Proxy("/config", bad_gateway, 99), naps, **options)
        assert naps.taken_s == []


@pytest.mark.parametrize("status", [404, 500, 503])
async def test_an_error_of_flink_itself_is_not_requested_again(status: int) -> None:
    def refuse() -> web.Response:
        return web.Response(status=status, body=b'{"errors": ["no"]}', content_type="application/json")

    naps, proxy = Naps(), Proxy("/exceptions", refuse, 99)
    await polled(proxy, naps)

    assert naps.taken_s == []


@pytest.mark.parametrize("part", ["/config", "/jobs/overview"])
async def test_diagnose_goes_on_after_a_reading_that_a_proxy_answered(part: str) -> None:
    proxy = Proxy(part, bad_gateway, 3 if part == "/config" else 2)
    clock = SteppingClock(proxy.flink.now)
    async with serve_app(proxy.app()) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        answer = await diagnose.answer_of(
            transport, job=None, show_step=lambda _: None, clock=clock, sleep=Naps(clock).sleep
        )

    assert [j.name for j in answer.jobs] == ["B2"]
    assert len([p for p in answer.problems if "HTTP 502" in p]) == (1 if part == "/config" else 0)


# --- jobs that start, and jobs that cannot be read, beside others -------------------------------------------------

OTHER = "f" * 32


def with_other(changed: Changed, state: str) -> None:
    """Add another job to the list of jobs. The recording knows nothing about it, so each request for it gets a 404."""

    def listed(document: Any) -> Any:
        other = document["jobs"][0] | {"jid": OTHER, "name": "other", "state": state}
        return {"jobs": [*document["jobs"], other]}

    changed.changes["/jobs/overview"] = listed


async def test_a_job_that_starts_is_observed_without_a_request_and_without_a_problem() -> None:
    changed = Changed()
    with_other(changed, "INITIALIZING")
    jobs = (await changed.collector().collect(changed.flink.now)).jobs
    other = next(j for j in jobs if j.name == "other")

    assert (other.state, other.engine_state, other.problems) == (JobState.STARTING, "INITIALIZING", ())
    assert not [path for path in changed.flink.asked if OTHER in path]


async def test_a_job_is_read_as_a_new_one_once_it_runs() -> None:
    changed = Changed()
    collector = changed.collector()
    changed.changes["/jobs/overview"] = lambda d: {"jobs": [r | {"state": "CREATED"} for r in d["jobs"]]}
    starting = (await collector.collect(changed.flink.now)).jobs[0]
    changed.changes.clear()
    running = (await collector.collect(changed.flink.now)).jobs[0]

    assert starting.topology is None
    assert running.topology is not None
    assert len(terminal(running)) >= 6


async def diagnosed(changed: Changed) -> Answer:
    clock = SteppingClock(changed.flink.now)
    return await diagnose.answer_of(changed, job=None, show_step=lambda _: None, clock=clock, sleep=Naps(clock).sleep)


@pytest.mark.parametrize(
    ("state", "words", "is_read"),
    [
        ("RECONCILING", "The job is starting (RECONCILING): it takes no checkpoints yet.", True),
        ("RUNNING", "What the engine reports about this job cannot be read", False),
    ],
)
async def test_diagnose_names_a_job_without_a_graph_beside_the_others(state: str, words: str, is_read: bool) -> None:
    changed = Changed()
    with_other(changed, state)
    answer = await diagnosed(changed)
    by_name = {job.name: job for job in answer.jobs}

    assert words in by_name["other"].diagnosis.verdict.sentence
    assert by_name["other"].is_read is is_read
    assert by_name["B2"].diagnosis.verdict.kind is VerdictKind.CAPACITY
    for output_format in DiagnosisFormat:
        assert "other" in printed(answer, output_format, is_verbose=True)


@pytest.mark.usefixtures("diagnose_without_pauses")
def test_diagnose_of_a_cluster_on_which_every_job_starts_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    flink = RecordedFlink(RECORDINGS / "B2", 40.0)

    class Starting(RecordedFlink):
        def answer(self, path: str) -> tuple[int, Any]:
            status, body = super().answer(path)
            if path == "/jobs/overview":
                body = {"jobs": [row | {"state": "INITIALIZING"} for row in body["jobs"]]}
            return status, body

    starting = Starting(flink.recording.folder, 40.0)
    with served(starting) as url:
        assert diagnose.run(url, job=None, output_format="text") == 0

    assert "The job is starting" in capsys.readouterr().out
