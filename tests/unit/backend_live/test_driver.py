"""A fault of one engine ends its own job as FAILED. The other jobs and the REST go on."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest

from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine
from backend.live.rest import create_runtime_app
from backend.live.starting import start, wanted_start
from backend.runtime.core.scheduler import EventClass
from tests.support.runtime_jobs import small_job

pytestmark = pytest.mark.anyio

_BROKEN, _WHOLE = "a" * 32, "b" * 32


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _boom(_: object) -> None:
    raise ZeroDivisionError("the books do not balance")


def _driver(clock, *, fails_at_us=1_500_000):
    specs = {name: replace(small_job("aligned", records=None), name=name) for name in (_BROKEN, _WHOLE)}
    jobs = [LiveJob(name, build_live_engine(spec), 1_760_000_000_000, 0.0) for name, spec in specs.items()]
    jobs[0].engine._engine.scheduler.after(fails_at_us, EventClass.TIMER, _boom, None)
    return RuntimeDriver(jobs, clock)


def _until(driver, clock, at_s):
    clock.now_s = at_s
    for name in (_BROKEN, _WHOLE):
        while driver.advance(driver.job(name)):
            pass


async def test_an_engine_that_raises_ends_its_job_as_failed_with_the_exception_and_the_other_job_goes_on():
    clock = _Clock()
    driver = _driver(clock)
    _until(driver, clock, 3.0)

    broken, whole = driver.view(_BROKEN), driver.view(_WHOLE)
    assert (broken.state.value, whole.state.value) == ("FAILED", "RUNNING")
    assert broken.ended_at_us == broken.now_us == 1_500_000
    assert whole.now_us == 3_000_000
    assert [e.name for e in broken.exceptions] == ["ZeroDivisionError"]
    assert broken.exceptions[0].message.startswith("the books do not balance (a fault of the runtime")
    assert driver.lag_max_ms() == 0
    _until(driver, clock, 4.0)
    assert (driver.view(_BROKEN).now_us, driver.view(_WHOLE).now_us) == (1_500_000, 4_000_000)
    assert len(driver.view(_BROKEN).exceptions) == 1


async def test_the_rest_answers_for_both_jobs_and_its_log_has_the_place(capsys):
    clock = _Clock()
    driver = _driver(clock)
    _until(driver, clock, 3.0)
    transport = httpx.ASGITransport(create_runtime_app(driver, version="1"))

    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as rest:
        overview = (await rest.get("/runtime/v1/jobs/overview")).json()
        assert {j["jid"]: j["state"] for j in overview["jobs"]} == {_BROKEN: "FAILED", _WHOLE: "RUNNING"}
        found = (await rest.get(f"/runtime/v1/jobs/{_BROKEN}/exceptions")).json()
        assert "ZeroDivisionError" in found["root-exception"]
        for path in ("", "/checkpoints", "/metrics", "/plan", "/config"):
            assert (await rest.get(f"/runtime/v1/jobs/{_BROKEN}{path}")).status_code == 200, path
        # What changes a job that has ended is refused or has no effect, as for every other ended job.
        for method, path, body in (
            ("PATCH", "", None),
            ("POST", "/savepoints", {}),
            ("POST", "/checkpoints", {}),
            ("POST", "/stop", {}),
        ):
            answer = await rest.request(method, f"/runtime/v1/jobs/{_BROKEN}{path}", json=body)
            assert answer.status_code < 500, (path, answer.text)
        state = (await rest.get(f"/runtime/v1/jobs/{_BROKEN}")).json()["state"]
        assert state == "FAILED"
    assert "_boom" in capsys.readouterr().out


async def test_a_job_whose_engine_failed_can_be_continued_from_its_last_checkpoint():
    clock = _Clock()
    driver = _driver(clock)
    _until(driver, clock, 3.0)

    latest = driver.view(_BROKEN).latest_completed
    assert latest is not None
    job = start(driver, wanted_start(json.dumps({"savepointPath": f"runtime:/{_BROKEN}/chk-{latest.id}"}).encode()))

    assert job.engine.name == driver.job(_BROKEN).engine.name
    assert driver.view(job.id).state.value == "RUNNING"
