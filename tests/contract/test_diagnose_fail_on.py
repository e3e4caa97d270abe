"""``diagnose --fail-on`` for scripts: the exit codes, what is said about them, and what is added to the JSON."""

from __future__ import annotations

import json
import socket

import pytest

from backend.cli.app import run
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served

pytestmark = pytest.mark.usefixtures("diagnose_without_pauses")

CONDITIONS = ("failing", "slow", "advice")
HEALTHY, SLOW, FAILING, ADVISED = "H", "B2", "E", "C2"


class Two(RecordedFlink):
    """A cluster that runs the jobs of two recordings. If ``is_second_dead``, only the list names the second one."""

    def __init__(self, first: str, second: str, *, is_second_dead: bool = False) -> None:
        super().__init__(RECORDINGS / first, 58.0)
        self.second = RecordedFlink(RECORDINGS / second, 58.0)
        self.is_second_dead = is_second_dead

    def answer(self, path):
        if self.second.recording.job_id in path:
            return (500, {"errors": ["boom"]}) if self.is_second_dead else self.second.answer(path)
        status, body = super().answer(path)
        if path == "/jobs/overview":
            return status, {"jobs": body["jobs"] + self.second.answer(path)[1]["jobs"]}
        return status, body


def one(name: str) -> RecordedFlink:
    return RecordedFlink(RECORDINGS / name, 58.0)


@pytest.mark.parametrize(
    ("name", "codes"),
    [(HEALTHY, (0, 0, 0)), (ADVISED, (0, 0, 3)), (SLOW, (0, 3, 3)), (FAILING, (3, 3, 3))],
)
def test_each_condition_includes_the_ones_before_it(name, codes):
    with served(one(name)) as url:
        got = tuple(run(["diagnose", url, "--fail-on", c]) for c in CONDITIONS)

    assert got == codes


@pytest.mark.parametrize("name", [HEALTHY, SLOW, FAILING])
def test_without_the_option_the_code_does_not_tell_of_the_jobs(name, capsys):
    with served(one(name)) as url:
        assert run(["diagnose", url, "--format", "json"]) == 0

    answer = capsys.readouterr()
    assert json.loads(answer.out).keys() == {"jobs", "limits"}
    assert "--fail-on" not in answer.err


def test_the_json_is_that_without_the_option_and_one_member_more(capsys):
    with served(Two(SLOW, HEALTHY)) as url:
        run(["diagnose", url, "--format", "json"])
        plain = json.loads(capsys.readouterr().out)
    with served(Two(SLOW, HEALTHY)) as url:
        assert run(["diagnose", url, "--format", "json", "--fail-on", "slow"]) == 3
        asked = json.loads(capsys.readouterr().out)

    added = asked.pop("fail_on")
    assert [{k: type(v) for k, v in job.items()} for job in asked["jobs"]] == [
        {k: type(v) for k, v in job.items()} for job in plain["jobs"]
    ]
    assert asked.keys() == plain.keys()
    assert added == {
        "condition": "slow",
        "exit_code": 3,
        "jobs": [{"job": plain["jobs"][0]["job"], "reason": "slow"}],
        "unknown": None,
    }


def test_one_line_names_the_jobs_that_meet_the_condition_and_the_answer_is_printed_whole(capsys):
    with served(Two(FAILING, SLOW)) as url:
        assert run(["diagnose", url, "--fail-on", "slow"]) == 3

    answer = capsys.readouterr()
    assert "✖ E  failing" in answer.out
    assert answer.err == "barrierscope: --fail-on slow: E: failing, B2: slow\n"


def test_a_job_that_cannot_be_read_never_passes(capsys):
    with served(Two(HEALTHY, SLOW, is_second_dead=True)) as url:
        assert run(["diagnose", url]) == 0
        capsys.readouterr()
        assert run(["diagnose", url, "--fail-on", "failing", "--format", "json"]) == 1

    answer = capsys.readouterr()
    assert "--fail-on failing: not known, because 1 job could not be read\n" in answer.err
    assert json.loads(answer.out)["fail_on"]["unknown"] == "because 1 job could not be read"


def test_a_job_that_meets_the_condition_counts_although_another_cannot_be_read(capsys):
    with served(Two(FAILING, SLOW, is_second_dead=True)) as url:
        assert run(["diagnose", url, "--fail-on", "failing", "--format", "json"]) == 3

    assert json.loads(capsys.readouterr().out)["fail_on"]["unknown"] == "because 1 job could not be read"


def test_the_code_of_a_target_that_does_not_answer_and_of_a_wrong_condition_are_others(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert run(["diagnose", url, "--fail-on", "failing"]) == 1
    capsys.readouterr()

    assert run(["diagnose", url, "--fail-on", "bad"]) == 2
    assert "'failing', 'slow', 'advice'" in capsys.readouterr().err
    assert run(["diagnose", "--fail-on", "failing"]) == 2
