"""``diagnose`` keeps its total time and prints what it has by then: many jobs, a slow target, a graph with a circle."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from collectors import diagnose, readings
from tests.support import observations
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served

JOBS = 30


class ManyJobs(RecordedFlink):
    """A recorded Flink whose job is there ``JOBS`` times, and which takes a while for each answer."""

    def __init__(self, clock, *, takes_s: float) -> None:
        super().__init__(RECORDINGS / "B2", 58.0)
        self.clock, self.takes_s = clock, takes_s

    def answer(self, path):
        self.clock._skipped_s += self.takes_s
        own = self.recording.job_id
        if path == "/jobs/overview":
            status, body = super().answer(path)
            row = next(r for r in body["jobs"] if r["jid"] == own)
            return status, {"jobs": [row | {"jid": f"{n:032x}", "name": f"job-{n}"} for n in range(JOBS)]}
        if not path.startswith("/jobs/"):
            return super().answer(path)
        asked = path.split("/")[2]
        status, body = super().answer(path.replace(asked, own))
        return status, json.loads(json.dumps(body).replace(own, asked))


class Circular(RecordedFlink):
    """A recorded Flink whose plan connects every vertex with every vertex."""

    def answer(self, path):
        status, body = super().answer(path)
        if path != f"/jobs/{self.recording.job_id}":
            return status, body
        ids = [node["id"] for node in body["plan"]["nodes"]]
        inputs = [{"num": n, "id": source, "ship_strategy": "HASH"} for n, source in enumerate(ids)]
        nodes = [node | {"inputs": inputs} for node in body["plan"]["nodes"]]
        return status, body | {"plan": body["plan"] | {"nodes": nodes}}


@pytest.fixture(autouse=True)
def clock(diagnose_without_pauses, monkeypatch):
    made = diagnose.WallClock()
    monkeypatch.setattr(diagnose, "WallClock", lambda: made)
    # What comes before the readings takes no time, also on a busy machine, where a test took 50 ms for it and failed.
    monkeypatch.setattr(diagnose, "time", SimpleNamespace(monotonic=lambda: 0.0))
    return made


def test_the_jobs_that_were_not_read_in_time_are_counted_and_the_others_diagnosed(clock, capsys):
    with served(ManyJobs(clock, takes_s=0.2)) as url:
        code = diagnose.run(url, job=None, output_format="json", deadline_s=60.0)

    answer = json.loads(capsys.readouterr().out)
    unread_count = JOBS - len(answer["jobs"])
    assert code == 0
    assert 0 < unread_count < JOBS
    assert {job["verdict"]["kind"] for job in answer["jobs"]} <= {"capacity", "undecided"}
    assert answer["jobs"][0]["verdict"]["kind"] == "capacity"
    assert f"{unread_count} of {JOBS} jobs were not read within the time of 1 min" in " ".join(answer["limits"])
    assert clock.monotonic_s() < 60.0


def test_with_enough_time_every_job_is_read(clock, capsys):
    with served(ManyJobs(clock, takes_s=0.0)) as url:
        assert diagnose.run(url, job=None, output_format="json", is_quick=True, deadline_s=600.0) == 0

    answer = json.loads(capsys.readouterr().out)
    assert len(answer["jobs"]) == JOBS
    assert not any("--deadline" in limit for limit in answer["limits"])


def test_a_target_of_which_nothing_is_read_in_time_is_unavailable(clock):
    with served(ManyJobs(clock, takes_s=50.0)) as url, pytest.raises(TargetUnavailableError, match="--deadline"):
        diagnose.run(url, job=None, output_format="json", deadline_s=60.0)


@pytest.mark.parametrize(
    ("refuses", "flink_takes_s", "given_s"),
    [
        (TargetUnavailableError(url="http://t", reason="no answer"), 10.0, [30.0, 20.0, 10.0]),
        (TargetProtocolError(url="http://t", reason="not Flink"), 10.0, [30.0, 20.0, 10.0]),
        (TargetUnavailableError(url="http://t", reason="no answer"), 20.0, [30.0, 20.0]),
    ],
)
def test_all_that_is_asked_of_a_slow_target_has_the_deadline_together(refuses, flink_takes_s, given_s, monkeypatch):
    """Spark, Flink and Spark again: the second time it had the whole deadline once more."""
    now, given = [0.0], []

    async def no_page(url, *, timeout_s, reach):
        del url, timeout_s, reach

    async def spark(*, deadline_s):
        given.append(deadline_s)
        now[0] += min(10.0, deadline_s)

    async def flink(*, deadline_s):
        given.append(deadline_s)
        now[0] += flink_takes_s
        raise refuses

    async def the_same(error, *args, **kwargs):
        del args, kwargs
        return error

    monkeypatch.setattr(diagnose, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(diagnose, "TIMEOUT_S", 10.0)
    monkeypatch.setattr(diagnose, "check_page", no_page)
    monkeypatch.setattr(diagnose, "better_error", the_same)
    asked = diagnose._asked(
        "http://t", flink, spark, show_step=lambda step: None, deadline_s=30.0, reach=diagnose.ANYWHERE
    )
    with pytest.raises(type(refuses)):
        asyncio.run(asked)

    assert given == given_s
    assert now[0] <= 30.0


def test_a_plan_with_a_circle_is_diagnosed_without_the_edges_that_close_it(capsys):
    with served(Circular(RECORDINGS / "B2", 58.0)) as url:
        assert diagnose.run(url, job=None, output_format="json", is_quick=True) == 0

    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["verdict"]["kind"] == "capacity"


def test_an_open_checkpoint_that_ended_meanwhile_is_not_called_open_if_its_details_were_not_read_again():
    """A job was said to have a checkpoint open for 35 s: it was open in the first poll, and the second was cut."""
    first = datetime(2026, 11, 29, 12, tzinfo=UTC)
    opened, ended = observations.in_progress(7, with_details=True), replace(observations.completed(7), details=())
    gathered = readings.Gathered(observations.job([opened]))
    gathered.add(observations.job([opened]), first, timedelta(0))
    assert opened.details

    gathered.add(observations.job([ended]), first + timedelta(seconds=35), timedelta(0))

    (checkpoint,) = gathered.evidence().checkpoints
    assert checkpoint.header.status is CheckpointStatus.COMPLETED


def test_the_time_of_a_diagnosis_is_that_of_the_newest_poll_that_read_the_checkpoints():
    first = datetime(2026, 11, 29, 12, tzinfo=UTC)
    job = observations.job([observations.in_progress(7)])
    gathered = readings.Gathered(job)
    gathered.add(job, first, timedelta(0))
    gathered.add(replace(job, checkpoints=(), counts=None), first + timedelta(seconds=35), timedelta(0))

    assert gathered.evidence().now == first
