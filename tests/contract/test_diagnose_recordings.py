"""``diagnose`` over HTTP on recordings of a real Flink 1.20.5: its verdicts in every output format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from collectors import diagnose
from tests.support.recorded_flink import NAMES, RECORDINGS, RecordedFlink, recording, served

ROOT = Path(__file__).resolve().parents[2]
LAST = "slow-stage-2 -> sink: Writer"
EXPECTED = {
    "A": ("healthy", "none", None, []),
    "B2": ("slow", "capacity", LAST, [0, 1, 2, 3]),
    "C2": ("healthy", "capacity", LAST, [0, 1, 2, 3]),
    "E": ("failing", "capacity", LAST, [0, 1, 2, 3]),
    "G": ("failing", "failing-subtask", LAST, [0]),
    "H": ("healthy", "none", None, []),
}


TAKES_S = 7.0
"""How long a diagnosis takes, in the time of a recording."""

pytestmark = pytest.mark.usefixtures("diagnose_without_pauses")


def diagnosed(capsys, name, *, at_s, output_format="json", job=None, is_verbose=False):
    flink = RecordedFlink(RECORDINGS / name, at_s)
    with served(flink) as url:
        assert diagnose.run(url, job=job, output_format=output_format, is_verbose=is_verbose) == 0
    return capsys.readouterr(), flink


def moments(name):
    """Return the instants at which to begin, from the third checkpoint to the last instants of the job, in seconds."""
    last = recording(RECORDINGS / name).last_running_s
    return [28.0, 35.0, 47.0, 58.0, last - TAKES_S]


class TwoJobs(RecordedFlink):
    """A cluster that runs the jobs of two recordings."""

    def __init__(self, first: str, second: str, at_s: float) -> None:
        super().__init__(RECORDINGS / first, at_s)
        self.second = RecordedFlink(RECORDINGS / second, at_s)

    def answer(self, path):
        if self.second.recording.job_id in path:
            return self.second.answer(path)
        status, body = super().answer(path)
        if path == "/jobs/overview":
            return status, {"jobs": body["jobs"] + self.second.answer(path)[1]["jobs"]}
        return status, body


@pytest.mark.parametrize("output_format", ["json", "text"])
def test_the_worst_job_is_printed_first(capsys, output_format):
    with served(TwoJobs("A", "G", 58.0)) as url:
        assert diagnose.run(url, job=None, output_format=output_format) == 0

    printed = capsys.readouterr().out
    if output_format == "json":
        assert [(j["job"], j["health"]) for j in json.loads(printed)["jobs"]] == [("G", "failing"), ("A", "healthy")]
    else:
        assert 0 < printed.index("✖ G  failing") < printed.index("✔ A  healthy")


@pytest.mark.parametrize("name", NAMES)
def test_each_recording_names_the_culprit_of_its_scenario_at_any_moment(capsys, name):
    for at_s in moments(name):
        (answer, _) = diagnosed(capsys, name, at_s=at_s)
        (job,) = json.loads(answer.out)["jobs"]
        verdict = job["verdict"]

        found = job["health"], verdict["kind"], verdict["vertex"], verdict["subtasks"]
        assert (job["job"], *found) == (name, *EXPECTED[name]), f"{name} at {at_s} s: {verdict['sentence']}"
        assert answer.err == ""


@pytest.mark.parametrize(
    ("name", "kind", "vertex", "subtasks"),
    [
        ("V-1.20-sql-slow-agg", "capacity", "GroupAggregate[6] -> Calc[7] -> bh3[8]: Writer", [0, 1]),
        ("V-2.3-sql-join-skew", "skew", "Join[25] -> Calc[26] -> bh3[27]: Writer", [0]),
    ],
)
def test_sql_jobs_under_default_settings_of_flink_are_judged_although_their_source_reports_no_busy_time(
    capsys, name, kind, vertex, subtasks
):
    for at_s in (5.0, 20.0, 33.0):
        # The cluster ran other jobs too, which were not recorded.
        answer, _ = diagnosed(capsys, name, at_s=at_s, job=recording(RECORDINGS / name).job_id)
        (job,) = json.loads(answer.out)["jobs"]
        verdict = job["verdict"]

        assert (verdict["kind"], verdict["vertex"], verdict["subtasks"]) == (kind, vertex, subtasks), f"at {at_s} s"
        held = [row["value"] for row in verdict["evidence"] if row["metric"] == "backpressureRatio"]
        assert max(held) >= 0.9, "the source is held back nearly always"


def test_a_quick_diagnosis_does_not_wait_and_says_what_it_cannot_tell(capsys):
    flink = RecordedFlink(RECORDINGS / "V-1.20-sql-slow-agg", 20.0)
    with served(flink) as url:
        assert diagnose.run(url, job=flink.recording.job_id, output_format="json", is_quick=True) == 0
    answer = json.loads(capsys.readouterr().out)

    assert flink.at_s < 22.0
    assert answer["jobs"][0]["verdict"]["kind"] == "capacity"
    (limit,) = answer["limits"]
    assert "--quick" in limit
    assert "stands still" in limit


def test_a_diagnosis_waits_until_flink_has_fetched_its_metrics_a_second_time(capsys):
    answer, flink = diagnosed(capsys, "V-1.20-sql-slow-agg", at_s=20.0)

    # Flink fetches every 10 s, and the recorder read every 2 s.
    assert flink.at_s >= 20.0 + 12.0
    assert json.loads(answer.out)["limits"] == []


def test_a_capacity_verdict_names_all_subtasks_and_the_longest_phase(capsys):
    for name, phase in (("B2", "start-delay"), ("E", "start-delay"), ("C2", None)):
        answer, _ = diagnosed(capsys, name, at_s=58.0)
        verdict = json.loads(answer.out)["jobs"][0]["verdict"]

        one = r"is at capacity(, and its subtask \d gets the barrier last)?: all 4 subtasks are busy"
        assert re.search(one, verdict["sentence"])
        assert verdict["phase"] == phase
        assert verdict["confidence"] != "low"
        assert verdict["hosts"] == ["localhost"]


def test_the_numbers_of_the_evidence_are_those_of_the_recording(capsys):
    answer, flink = diagnosed(capsys, "B2", at_s=58.0)
    verdict = json.loads(answer.out)["jobs"][0]["verdict"]
    path = f"/jobs/{flink.recording.job_id}/checkpoints"
    listed = [flink.recording.last(path, at_s)[1]["history"] for at_s in (58.0, flink.at_s)]
    took_ms = {c["id"]: c["end_to_end_duration"] for rows in listed for c in rows if c["status"] == "COMPLETED"}
    durations = sorted(took_ms[n] for n in sorted(took_ms)[-10:])
    middle = (durations[(len(durations) - 1) // 2] + durations[len(durations) // 2]) / 2

    rows = {row["statement"]: row for row in verdict["evidence"]}
    median = next(row for text, row in rows.items() if text.startswith("median duration"))
    assert (median["value"], median["unit"], median["basis"]) == (middle, "ms", "measured")
    busy = next(row for row in verdict["evidence"] if row["metric"] == "busyRatio")
    assert 0.95 <= busy["value"] <= 1.0
    assert all(row["basis"] in {"measured", "reconstructed"} for row in rows.values())


@pytest.mark.parametrize("name", ["B2", "E", "G"])
def test_an_ended_job_is_judged_by_its_checkpoints(capsys, name):
    answer, _ = diagnosed(capsys, name, at_s=recording(RECORDINGS / name).end_s)
    (job,) = json.loads(answer.out)["jobs"]

    assert (job["health"], job["verdict"]["kind"], job["verdict"]["vertex"]) == EXPECTED[name][:3]
    if name != "G":
        assert job["verdict"]["confidence"] == "low"
        assert any("back-pressure" in what for what in job["verdict"]["would_decide"])


def test_after_the_end_of_an_unaligned_job_its_persisted_queues_show_back_pressure(capsys):
    answer, _ = diagnosed(capsys, "C2", at_s=recording(RECORDINGS / "C2").end_s)
    verdict = json.loads(answer.out)["jobs"][0]["verdict"]

    assert (verdict["kind"], verdict["confidence"]) == ("undecided", "low")
    assert "3.3 MB" in verdict["sentence"]


def test_in_the_first_seconds_values_that_only_look_measured_are_ignored(capsys):
    """Before Flink first updates its metrics, a task appears to be always busy. The verdict must not use that value."""
    answer, _ = diagnosed(capsys, "B2", at_s=recording(RECORDINGS / "B2").begins_s + 6)
    (job,) = json.loads(answer.out)["jobs"]

    assert job["health"] == "too-few"
    assert "no vertex is back-pressured" not in job["verdict"]["sentence"]


@pytest.mark.parametrize("is_verbose", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_text_has_no_colours_outside_a_terminal_and_at_most_100_columns(capsys, name, is_verbose):
    answer, _ = diagnosed(capsys, name, at_s=58.0, output_format="text", is_verbose=is_verbose)

    assert "\x1b" not in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 100
    assert re.search(rf"^[✔▲✖?] {name}  {EXPECTED[name][0]}  ", answer.out, re.M)


@pytest.mark.parametrize("name", NAMES)
def test_the_short_text_has_the_sentence_and_the_first_three_rows_of_evidence(capsys, name):
    verdict = json.loads(diagnosed(capsys, name, at_s=58.0)[0].out)["jobs"][0]["verdict"]
    answer, _ = diagnosed(capsys, name, at_s=58.0, output_format="text")
    # A line about a setting to check may contain the words of a statement.
    shown = " ".join(answer.out.partition("\n  warning: ")[0].split())

    assert verdict["sentence"] in shown
    assert [row["statement"] in shown for row in verdict["evidence"]] == [
        i < 3 for i, _ in enumerate(verdict["evidence"])
    ]
    assert f"({verdict['confidence']} confidence)" in shown
    assert "More with --verbose" in answer.out.splitlines()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_full_text_has_every_row_of_evidence(capsys, name):
    verdict = json.loads(diagnosed(capsys, name, at_s=58.0)[0].out)["jobs"][0]["verdict"]
    answer, _ = diagnosed(capsys, name, at_s=58.0, output_format="text", is_verbose=True)

    verdict_lines = answer.out.partition("\n  advice: ")[0]
    rows = len(re.findall(r" (?:measured|reconstructed)$", verdict_lines, re.M))
    assert rows == len(verdict["evidence"])
    assert verdict["sentence"] in " ".join(answer.out.split())
    assert "--verbose" not in answer.out


def test_the_short_text_of_an_undecided_job_names_the_reading_that_would_decide(capsys):
    answer, _ = diagnosed(capsys, "C2", at_s=recording(RECORDINGS / "C2").end_s, output_format="text")

    assert "\n  would decide: back-pressure of each vertex, read while the job runs\n" in answer.out


@pytest.mark.parametrize("name", NAMES)
def test_the_markdown_has_a_heading_and_complete_tables(capsys, name):
    answer, _ = diagnosed(capsys, name, at_s=58.0, output_format="markdown")
    lines = answer.out.splitlines()

    assert lines[0].startswith("## Checkpoint diagnosis of `http://127.0.0.1:")
    assert any(line.startswith(f"### {name}: {EXPECTED[name][0]}, ") for line in lines)
    for table in re.findall(r"(?:^\|.*\n?)+", answer.out, re.M):
        pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(pipes) == 1, table


def test_only_the_job_asked_for_costs_requests(capsys):
    """The recorded cluster lists one running job and a dozen ended jobs. Only the running one is requested."""
    answer, flink = diagnosed(capsys, "E", at_s=58.0, job="E")

    assert [job["job"] for job in json.loads(answer.out)["jobs"]] == ["E"]
    ids = {found[1] for path in flink.asked if (found := re.match(r"/jobs/([0-9a-f]{32})", path))}
    assert ids == {flink.recording.job_id}


def test_diagnose_makes_few_requests(capsys):
    for name in NAMES:
        _, flink = diagnosed(capsys, name, at_s=58.0)
        vertices = 4 if name == "H" else 3
        # Each of the ten newest checkpoints costs one request for each vertex. The other 50 requests are for the job
        # and its metrics.
        assert len(flink.asked) <= 10 * vertices + 50, name


def test_a_job_whose_checkpoints_all_expired_has_a_replay_debt_since_its_start_and_a_slow_one_is_not_told(capsys):
    failing, _ = diagnosed(capsys, "E", at_s=60.0, output_format="text")
    slow, _ = diagnosed(capsys, "B2", at_s=58.0, output_format="text")
    answer, _ = diagnosed(capsys, "B2", at_s=58.0)
    (job,) = json.loads(answer.out)["jobs"]

    said = " ".join(failing.out.split())
    since = "since the start of the run: no check"
    assert re.search(rf"replay debt: a failure now would replay [\d.]+ (s|min)[^,]* of input, {since}", said)
    assert "replay debt" not in slow.out
    assert job["replay_debt"]["origin"] == "checkpoint"
    assert 0 < job["replay_debt_ms"] < 20_000
    assert job["replay_debt_records"] > 0


class RenamedVertices(RecordedFlink):
    """A recorded Flink that reports shorter names for its job and its vertices."""

    NAMES = (("Source: main-source", "source"), ("stage-1", "parse"), (LAST, "window"))

    def answer(self, path):
        status, body = super().answer(path)
        if path == "/jobs/overview":
            return status, body | {"jobs": [row | {"name": "orders"} for row in body["jobs"]]}
        if path == f"/jobs/{self.recording.job_id}":
            vertices = [row | {"name": dict(self.NAMES)[row["name"]]} for row in body["vertices"]]
            return status, body | {"name": "orders", "vertices": vertices}
        return status, body


@pytest.mark.parametrize("document", ["README.md", "docs/diagnosis.md"])
def test_the_output_shown_in_the_documents_is_the_output_of_a_recording(capsys, document):
    with served(RenamedVertices(RECORDINGS / "B2", 58.0)) as url:
        diagnose.run(url, job="orders", output_format="text")
    # Drop the first line, because the address and the duration in it differ from those in the documents.
    _, _, printed = capsys.readouterr().out.partition("\n\n")

    shown = re.findall(r"^```text\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
    assert [block.partition("\n\n")[2] for block in shown if block.startswith("http://my-flink:8081")] == [printed]


def test_a_job_whose_checkpoints_are_off_is_said_to_be_so_and_gets_no_advice_on_failures(capsys):
    answer, _ = diagnosed(capsys, "checkpointing-off", at_s=20.0)
    (job,) = json.loads(answer.out)["jobs"]

    assert (job["health"], job["verdict"]["kind"], job["verdict"]["would_decide"]) == ("off", "checkpointing-off", [])
    assert job["verdict"]["sentence"] == "Checkpointing is off; a failure loses all state of the job."
    assert [lint["code"] for lint in job["advice"]["lints"]] == ["checkpointing-off"]
    assert {s["reason"] for s in job["advice"]["silences"]} == {"checkpointing is off"}
    assert job["advice"]["recommendations"] == []


class FlinkBefore114(RecordedFlink):
    """Answers as Flink before 1.14 does if checkpointing is off."""

    def answer(self, path):
        if "/checkpoints" in path:
            return 404, {"errors": ["Checkpointing is not enabled for this job (9f43d0e4eb3f9cb84fc07708430b4f30)."]}
        return super().answer(path)


def test_a_version_without_settings_to_read_says_that_checkpoints_are_off(capsys):
    with served(FlinkBefore114(RECORDINGS / "checkpointing-off", 20.0)) as url:
        assert diagnose.run(url, job=None, output_format="json", is_verbose=False) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]

    assert (job["health"], job["verdict"]["kind"]) == ("off", "checkpointing-off")


def test_failures_that_only_the_counters_show_are_failures_and_the_finished_source_is_named(capsys):
    answer, _ = diagnosed(capsys, "source-finished", at_s=58.0)
    (job,) = json.loads(answer.out)["jobs"]
    verdict = job["verdict"]

    assert (job["health"], verdict["kind"], verdict["vertex"]) == ("failing", "refused", "Source: lookup")
    assert verdict["confidence"] == "high"
    assert "because Source: lookup has finished, and the job takes no checkpoint after that" in verdict["sentence"]
    assert "no-checkpoints-after-finish" in [lint["code"] for lint in job["advice"]["lints"]]
    text, _ = diagnosed(capsys, "source-finished", at_s=58.0, output_format="text")
    assert "failing  checkpoints are refused" in text.out
