"""``diagnose`` on recordings of a real Flink 1.20.5 in which one piece of work holds the thread of a task.

* ``R-splits``: a sink of one subtask works 15 s on each record. No barrier gets through within the timeout of 20 s.
* ``R-notify``: a sink of one subtask works 25 s after each completed checkpoint, so that the next one expires.

The nearest neighbours, a lack of capacity and a slow store, are in ``test_diagnose_recordings``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors import diagnose
from tests.support.recorded_flink import RecordedFlink, served

FOLDER = Path(__file__).parent / "recordings_causes"
SINK = "deliver -> sink: Writer"

pytestmark = pytest.mark.usefixtures("diagnose_without_pauses")


def diagnosed(capsys, name, at_s):
    with served(RecordedFlink(FOLDER / name, at_s)) as url:
        assert diagnose.run(url, job=None, output_format="json") == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    return job


@pytest.mark.parametrize(
    ("name", "moments", "kind", "words"),
    [
        ("R-splits", (70.0, 75.0, 80.0, 85.0), "long-callback", "with each record"),
        ("R-notify", (85.0, 92.0, 97.0, 104.0), "outside-commit", "after each completed checkpoint"),
    ],
)
def test_one_piece_of_work_that_holds_the_thread_is_named_and_no_mode_is_advised(capsys, name, moments, kind, words):
    for at_s in moments:
        job = diagnosed(capsys, name, at_s)
        verdict = job["verdict"]

        assert (job["health"], verdict["kind"], verdict["vertex"], verdict["subtasks"]) == (
            "failing",
            kind,
            SINK,
            [0],
        ), f"at {at_s} s: {verdict['sentence']}"
        assert words in verdict["sentence"]
        assert "forwarded the barrier" not in verdict["sentence"]
        assert [r["headline"] for r in job["advice"]["recommendations"]] == []


def test_the_time_of_the_work_is_named(capsys):
    assert "about 15." in diagnosed(capsys, "R-splits", 80.0)["verdict"]["sentence"]
    assert "about 25." in diagnosed(capsys, "R-notify", 104.0)["verdict"]["sentence"]
