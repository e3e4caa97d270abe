"""Tests of ``barrierscope start``: a live runtime starts what a user names, and refusals are one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import httpx
import pytest

from backend.cli.app import run
from backend.cli.running import announced
from backend.live.driver import RuntimeDriver
from backend.live.rest import create_runtime_app
from backend.settings import load_settings

_JOB = """
name = "orders"
seed = 5
[config]
execution.checkpointing.interval = "100 ms"
[[vertex]]
id = "{source}"
kind = "source"
rate = 1200
[[vertex]]
id = "work"
kind = "map+sink"
[[edge]]
from = "{source}"
to = "work"
partitioner = "rebalance"
{more}
"""


class _Runtime:
    """A live runtime without a job, to which every request of the command line goes."""

    def __init__(self) -> None:
        self.driver = RuntimeDriver([], lambda: 100.0)
        self.app = create_runtime_app(self.driver, version="0.1.0")

    def restored(self) -> list[tuple[str, str | None]]:
        """Return the name of each job and the location of the checkpoint from which it began."""
        return [(v.name, None if v.begun_from is None else v.begun_from.location) for v in self.driver.views()]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> _Runtime:
    found = _Runtime()
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=httpx.ASGITransport(found.app)))
    return found


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., str]:
    def write(name: str = "job", *, source: str = "source", more: str = "") -> str:
        path = tmp_path / f"{name}.toml"
        path.write_text(_JOB.format(source=source, more=more))
        return str(path)

    return write


@pytest.fixture
def saved(job: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "orders.ckpt")
    assert run(["simulate", job(), "--duration", "1s", "--save-checkpoint", path]) == 0
    capsys.readouterr()
    return path


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_job_starts_without_a_checkpoint(runtime, job, capsys):
    assert run(["start", job(), "--format", "json"]) == 0
    (view,) = runtime.driver.views()
    assert json.loads(capsys.readouterr().out) == {"job_id": view.id, "from": None}
    assert runtime.restored() == [("orders", None)]


def test_a_job_starts_from_a_file_of_simulate_which_stays(runtime, job, saved, capsys):
    assert run(["start", job(), "--from", saved]) == 0
    ((name, location),) = runtime.restored()
    assert name == "orders"
    assert location is not None
    assert location.startswith("runtime:/uploaded/")
    told = capsys.readouterr().out
    assert told == f"orders runs as {runtime.driver.views()[0].id}, from {saved}\n"
    assert Path(saved).exists()


def test_the_restore_table_of_the_job_file_counts_and_is_relative_to_that_file(runtime, job, saved):
    assert run(["start", job("other", more='[restore]\nfrom = "orders.ckpt"\nclaim = true')]) == 0
    ((_, location),) = runtime.restored()
    assert location is not None
    assert runtime.driver.uploads._kept == {}, "the job owns the upload, so no other can begin from it"


def test_the_same_job_starts_again_from_a_location_of_the_runtime(runtime, job, capsys):
    assert run(["start", job()]) == 0
    (before,) = runtime.driver.views()
    started = runtime.driver.job(before.id)
    started.engine.run_until(started.engine.now_us + 1_000_000)
    runtime.driver.cancel(before.id)
    started.view = None
    newest = runtime.driver.view(before.id).latest_completed
    assert newest is not None
    location = newest.external_path
    assert location is not None
    capsys.readouterr()
    assert run(["start", "--from", location]) == 0
    assert ("orders", location) in runtime.restored()
    assert "the job runs as " in capsys.readouterr().out


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Return the bodies that are sent to a runtime that starts every job."""
    bodies: list[dict[str, object]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("uploads"):
            return httpx.Response(200, stream=httpx.ByteStream(b'{"location": "runtime:/uploaded/1"}'))
        bodies.append(json.loads(request.content))
        return httpx.Response(200, stream=httpx.ByteStream(b'{"jobid": "a"}'))

    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=httpx.MockTransport(handle)))
    return bodies


@pytest.mark.parametrize(
    ("more", "arguments", "wanted"),
    [
        ("", ["--from", "runtime:/a/chk-7"], ("runtime:/a/chk-7", False, False, "NO_CLAIM")),
        ("", ["--from", "runtime:/a/chk-7", "--claim"], ("runtime:/a/chk-7", False, False, "CLAIM")),
        ("", ["--from", "runtime:/a/chk-7", "--no-claim"], ("runtime:/a/chk-7", False, False, "NO_CLAIM")),
        ("", ["--from", "runtime:/a/chk-7", "--allow-non-restored"], ("runtime:/a/chk-7", True, False, "NO_CLAIM")),
        ("", ["--from", "runtime:/a/chk-7", "--at-own-risk"], ("runtime:/a/chk-7", False, True, "NO_CLAIM")),
        ('from = "runtime:/b/chk-2"\nclaim = true', [], ("runtime:/b/chk-2", False, False, "CLAIM")),
        ('from = "runtime:/b/chk-2"', ["--from", "runtime:/a/chk-7"], ("runtime:/a/chk-7", False, False, "NO_CLAIM")),
        ('from = "orders.ckpt"', [], ("runtime:/uploaded/1", False, False, "NO_CLAIM")),
        ('from = "runtime:/b/chk-2"', ["--from", "{saved}"], ("runtime:/uploaded/1", False, False, "NO_CLAIM")),
    ],
)
def test_where_a_job_begins_and_each_option_reach_the_runtime(sent, job, saved, more, arguments, wanted):
    path = job("other", more=f"[restore]\n{more}" if more else "")
    assert run(["start", path, *(word.replace("{saved}", saved) for word in arguments)]) == 0

    (body,) = sent
    assert body["job"]["name"] == "orders"
    assert (body["savepointPath"], body["allowNonRestoredState"], body["atOwnRisk"], body["claimMode"]) == wanted


def test_without_a_job_file_the_options_reach_the_runtime_too(sent):
    options = ["--claim", "--allow-non-restored", "--at-own-risk"]
    assert run(["start", "--from", "runtime:/a/chk-7", *options]) == 0

    assert sent == [
        {"savepointPath": "runtime:/a/chk-7", "allowNonRestoredState": True, "atOwnRisk": True, "claimMode": "CLAIM"}
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "JOB: is missing"),
        (["--from", "orders.ckpt"], "JOB: is missing"),
        (["healthy", "--claim"], "--from: is missing"),
        (["healthy", "--from", "none.ckpt"], "cannot read none.ckpt: No such file"),
        (["nothing"], "no demo job or file has the name 'nothing'"),
        (["healthy", "--runtime", "http://[::1"], "--runtime"),
    ],
    ids=["no job", "no job for a file", "an option without a checkpoint", "no file", "no such job", "no URL"],
)
def test_a_wrong_command_is_refused_before_anything_is_sent(runtime, arguments, told, capsys):
    assert run(["start", *arguments]) == 2
    assert told in _error(capsys)
    assert runtime.driver.views() == []


def test_a_refusal_of_the_runtime_is_one_line_that_names_the_rule(runtime, job, saved, capsys):
    other = ["start", job("other", source="renamed"), "--from", saved]
    assert run(other) == 2
    assert "GR-1" in _error(capsys)
    assert runtime.driver.views() == []
    assert run([*other, "--allow-non-restored"]) == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, '{"errors": ["Authorization: a change needs the bearer token"]}'), "bearer token"),
        ((200, "<html>"), "which is not an answer of a live runtime"),
        ((200, '{"id": 1}'), "which is not an answer of a live runtime"),
        ((400, '{"errors": []}'), "returned HTTP 400, which is not an answer of a live runtime"),
        ((400, '{"errors": "of another program"}'), "returned HTTP 400, which is not an answer of a live runtime"),
        ((400, '["errors"]'), "returned HTTP 400, which is not an answer of a live runtime"),
        (None, "does not answer (refused); start it with `barrierscope up`"),
    ],
    ids=["no token", "a page", "another program", "no error", "errors of another form", "a list", "nothing"],
)
def test_what_does_not_start_the_job_is_one_line(monkeypatch, answer, told, capsys):
    def handle(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://other:1/runtime/v1/jobs"
        assert request.headers["Authorization"] == "Bearer a-token-of-the-runtime"
        if answer is None:
            raise httpx.ConnectError("refused")
        status, content = answer
        return httpx.Response(status, stream=httpx.ByteStream(content.encode()))

    monkeypatch.setenv("BARRIERSCOPE_API_TOKEN", "a-token-of-the-runtime")
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=httpx.MockTransport(handle)))
    assert run(["start", "healthy", "--runtime", "http://other:1/runtime/v1/"]) in (1, 2)
    assert told in _error(capsys)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses to which requests go. Nothing answers there."""
    addresses: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        addresses.append(str(request.url))
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=httpx.MockTransport(handle)))
    return addresses


_RUNTIME_URL = "http://127.0.0.1:19123/runtime/v1"
_USUAL_URL = "http://127.0.0.1:18050/runtime/v1"


def _running(runtime_url: str | None = _RUNTIME_URL) -> AbstractContextManager[None]:
    return announced("http://127.0.0.1:9123", Path("/some/data"), load_settings(), runtime_url=runtime_url)


def test_the_live_runtime_of_the_running_up_is_found_whatever_its_port(asked, capsys):
    with _running():
        assert run(["start", "healthy"]) == 1

    assert asked == [f"{_RUNTIME_URL}/jobs"]
    using, problem = capsys.readouterr().err.splitlines()
    assert using == f"using {_RUNTIME_URL}: `up`, data in /some/data"
    assert f"the live runtime at {_RUNTIME_URL} does not answer (refused); start it with" in problem


@pytest.mark.parametrize("with_up", [False, True], ids=["none runs", "one runs without live jobs"])
def test_without_an_up_with_live_jobs_the_usual_address_is_asked_and_the_error_says_so(asked, capsys, with_up):
    with _running(None) if with_up else nullcontext():
        assert run(["start", "healthy"]) == 1

    assert asked == [f"{_USUAL_URL}/jobs"]
    assert f"{_USUAL_URL} does not answer (refused); no `up` of this user announces live jobs; start it" in _error(
        capsys
    )


def test_an_up_that_was_killed_is_not_asked(asked, capsys, monkeypatch):
    with _running():
        monkeypatch.setattr("backend.cli.running.is_running", lambda _: False)
        assert run(["start", "healthy"]) == 1

    assert asked == [f"{_USUAL_URL}/jobs"]
    assert "no `up` of this user announces live jobs" in _error(capsys)


def test_an_address_or_port_that_is_given_wins_over_the_running_up(asked, capsys, monkeypatch):
    with _running():
        assert run(["start", "healthy", "--runtime", "http://other:1/runtime/v1"]) == 1
        assert "no `up` of this user" not in _error(capsys)
        monkeypatch.setenv("BARRIERSCOPE_RUNTIME_PORT", "18050")
        assert run(["start", "healthy"]) == 1
        assert "(refused); start it with `barrierscope runtime`, or unset BARRIERSCOPE_RUNTIME_PORT" in _error(capsys)

    assert asked == ["http://other:1/runtime/v1/jobs", f"{_USUAL_URL}/jobs"]
