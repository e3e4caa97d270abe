"""The Spark jobs and stages of micro-batches, out of the lines of a real event log."""

from __future__ import annotations

import re

import orjson
import pytest

from collectors.spark import slow_batches
from collectors.spark.stage_events import WorkReader
from tests.support.spark_work import BATCHES, log_lines, works_in_log

QUERY, RUN = "0b0b0b0b-0000-4000-8000-000000000000", "0c0c0c0c-0000-4000-8000-00000000000a"
OTHER_RUN = "0c0c0c0c-0000-4000-8000-00000000000b"


@pytest.fixture(autouse=True)
def _every_batch(monkeypatch):
    monkeypatch.setattr(slow_batches, "LONG_MS", 0)
    monkeypatch.setattr(slow_batches, "EVERY_MS", 0)


def place_of(lines: list[bytes], text: bytes) -> int:
    return next(n for n, line in enumerate(lines) if text in line)


def grouped(line: bytes, group: bytes) -> bytes:
    """Return the start of a job with another group."""
    return re.sub(rb'(?<="spark.jobGroup.id":")[^"]*', group, line)


def started(job: int, group: str, batch: int) -> bytes:
    """The start of a Spark job of one stage, as a log has it."""
    of = {"sql.streaming.queryId": QUERY, "spark.jobGroup.id": group, "streaming.sql.batchId": str(batch)}
    document = {"Event": "SparkListenerJobStart", "Job ID": job, "Submission Time": 1_000 * job, "Stage Infos": []}
    return orjson.dumps({**document, "Stage IDs": [job], "Properties": of})


def ended(job: int) -> bytes:
    return orjson.dumps({"Event": "SparkListenerJobEnd", "Job ID": job, "Completion Time": 1_000 * job + 200})


def test_each_batch_of_a_log_has_its_jobs_and_stages():
    works = works_in_log((0, log_lines()))
    assert set(works) == {(name, batch) for name, of in BATCHES.items() for batch in of}
    assert {w.app_id for w in works.values()} == {"local-1796048088493"}
    for work in works.values():
        assert work.job_count == len(work.job_ids) >= 1
        assert work.stage_count == len(work.stages) >= 1
        assert work.jobs_ms is not None
        assert all(s.duration_ms is not None and s.task_max_ms is not None for s in work.stages)


def test_a_task_with_most_rows_and_most_time_stands_out():
    (stage, *_) = works_in_log((0, log_lines()))["skewed", 11].stages
    assert stage.task_count == 8
    assert (stage.task_ratio or 0) > 5
    assert stage.rows_median == 0
    assert (stage.rows_max or 0) > 1_000


def test_spill_and_the_time_outside_spark_jobs_are_seen():
    work = works_in_log((0, log_lines()))["spilling", 11]
    assert sum(s.disk_spill_bytes or 0 for s in work.stages) > 50_000
    assert sum(s.memory_spill_bytes or 0 for s in work.stages) > 1_000_000
    assert (work.outside_ms(2_000) or 0) >= 1_000


def test_the_order_of_keys_in_a_tasks_line_does_not_matter():
    def other_order(line: bytes) -> bytes:
        document = orjson.loads(line)
        info = document.pop("Task Info")
        return orjson.dumps({"Event": document.pop("Event"), "Task Info": info, **document}) + b"\n"

    lines = [other_order(x) if b"TaskEnd" in x[:40] else x for x in log_lines()]
    assert works_in_log((0, lines)) == works_in_log((0, log_lines()))


def test_a_stage_without_one_of_its_tasks_has_no_median_and_no_maximum():
    lines = log_lines()
    # The stage of a task with this index has other tasks, whose times are known.
    del lines[next(n for n, x in enumerate(lines) if b"TaskEnd" in x[:40] and b'"Index":1,' in x)]
    before, after = works_in_log((0, log_lines())), works_in_log((0, lines))
    changed = [key for key in before if before[key] != after[key]]
    assert len(changed) == 1
    stages = [s for s in after[changed[0]].stages if s.task_max_ms is None]
    assert [(s.task_median_ms, s.rows_median, s.rows_max) for s in stages] == [(None, None, None)]
    assert stages[0].duration_ms is not None


@pytest.mark.parametrize(
    ("reason", "count"),
    [
        (b'{"Reason":"ExceptionFailure","Class Name":"java.lang.ArithmeticException"}', 1),
        (b'{"Reason":"TaskKilled","Kill Reason":"another attempt succeeded"}', 0),
        (b'{"Reason":"TaskCommitDenied","Job ID":1,"Partition ID":1,"Attempt Number":1}', 0),
    ],
)
def test_a_failed_task_is_counted_and_one_that_another_attempt_replaces_is_not(reason, count):
    lines = log_lines()
    at = place_of(lines, b'"SparkListenerTaskEnd"')
    failed = lines[at].replace(b'{"Reason":"Success"}', reason)
    before, after = works_in_log((0, log_lines())), works_in_log((0, [*lines[:at], failed, *lines[at:]]))
    counts = [s.failed_task_count for work in after.values() for s in work.stages]
    assert sorted(counts, key=lambda c: c or 0)[-2:] == [0, count]
    assert [s.task_max_ms for w in after.values() for s in w.stages] == [
        s.task_max_ms for w in before.values() for s in w.stages
    ]


def test_a_batch_whose_jobs_end_is_missing_has_no_time_in_jobs():
    lines = log_lines()
    del lines[place_of(lines, b'"SparkListenerJobEnd"')]
    works = works_in_log((0, lines))
    assert sum(work.jobs_ms is None for work in works.values()) == 1
    assert all(work.outside_ms(5_000) is None for work in works.values() if work.jobs_ms is None)


def test_a_damaged_job_makes_no_batch_wrong():
    lines = log_lines()
    at = place_of(lines, b'"SparkListenerJobStart"')
    lines[at] = lines[at].replace(b'"Submission Time":', b'"Submission Time":"x","Was":')
    whole = works_in_log((0, log_lines()))
    assert all(work == whole[key] for key, work in works_in_log((0, lines)).items())


@pytest.mark.parametrize("is_named", [True, False])
def test_a_damaged_end_of_a_task_leaves_the_other_stages_whole(is_named):
    lines = log_lines()
    at = next(n for n, line in enumerate(lines) if b"TaskEnd" in line[:40] and b'"Index":1,' in line)
    end = lines[at].index(b',"Task Type"') if is_named else lines[at].index(b'"Stage ID"')
    lines[at] = lines[at][:end] + b',"x\n'
    before, after = works_in_log((0, log_lines())), works_in_log((0, lines))
    assert set(after) == set(before)
    cut = [s for work in after.values() for s in work.stages if s.task_max_ms is None]
    assert 1 <= len(cut) <= (1 if is_named else 3)
    assert all(s.duration_ms is not None for s in cut)
    assert [w.jobs_ms for w in after.values()] == [w.jobs_ms for w in before.values()]


def test_a_job_with_a_group_of_the_users_code_belongs_to_the_run_that_is_open():
    lines = [grouped(x, b"merge orders") if b"JobStart" in x[:40] else x for x in log_lines()]
    assert works_in_log((0, lines)) == works_in_log((0, log_lines()))
    without = [re.sub(rb'"spark.jobGroup.id":"[^"]*",', b"", x) if b"JobStart" in x[:40] else x for x in log_lines()]
    assert works_in_log((0, without)) == works_in_log((0, log_lines()))


def test_a_job_of_the_users_group_of_no_known_run_makes_its_batch_not_whole():
    reader = WorkReader()
    for line in (started(1, RUN, 7), ended(1), started(2, "merge", 7), ended(2)):
        reader.read(line)
    assert reader.finish((QUERY, RUN), 7, lambda: True) is None
    for line in (started(3, RUN, 8), ended(3), started(4, "merge", 8), ended(4)):
        reader.read(line)
    found = reader.finish((QUERY, RUN), 8, lambda: True)
    assert found is not None
    assert found.job_ids == (3, 4)


def test_of_two_open_runs_of_a_query_the_group_decides_and_an_unknown_one_makes_no_batch_wrong():
    reader = WorkReader()
    reader.begin((QUERY, RUN))
    reader.begin((QUERY, OTHER_RUN))
    for line in (started(1, RUN, 7), started(2, OTHER_RUN, 8), started(3, "merge", 8), ended(1), ended(2), ended(3)):
        reader.read(line)
    found = reader.finish((QUERY, RUN), 7, lambda: True)
    assert found is not None
    assert found.job_ids == (1,)
    assert reader.finish((QUERY, OTHER_RUN), 8, lambda: True) is None


def test_a_thread_with_the_number_of_an_older_batch_makes_the_batch_that_runs_not_whole():
    reader = WorkReader()
    reader.begin((QUERY, RUN))
    for number in (6, 7, 8):
        reader.read(started(number, RUN, number))
        reader.read(ended(number))
        if number == 7:
            reader.read(started(70, "pool", 6))
            reader.read(ended(70))
        assert (reader.copy().finish((QUERY, RUN), number, lambda: True) is None) == (number == 7)
        reader.finish((QUERY, RUN), number, lambda: True)


def test_the_jobs_of_other_code_in_the_application_are_left_out():
    lines = log_lines()
    at = place_of(lines, b'"SparkListenerJobStart"')
    foreign = re.sub(rb'"Properties":\{.*\}\}', b'"Properties":{}}', lines[at]).replace(b'"Job ID":', b'"Job ID":9')
    assert works_in_log((0, [*lines[:at], foreign, *lines[at:]])) == works_in_log((0, log_lines()))


def test_a_batch_of_two_files_is_put_together():
    lines = log_lines()
    at = place_of(lines, b'"SparkListenerTaskEnd"') + 1
    assert works_in_log((1, lines[:at]), (2, lines[at:])) == works_in_log((0, lines))


def test_after_a_gap_the_next_batch_of_each_run_is_not_shown():
    lines = log_lines()
    at = place_of(lines, b'"batchId":10') + 1
    whole = works_in_log((0, lines))
    for files, compacted in ([(2, lines[at:]), (1, lines[:at])], ()), ([(1, lines[:at]), (2, lines[at:])], (1,)):
        found = works_in_log(*files, compacted=compacted)
        assert len(found) < len(whole)
        assert all(work == whole[key] for key, work in found.items())


def test_memory_of_tasks_is_bounded(monkeypatch):
    monkeypatch.setattr("collectors.spark.stage_events._TASKS_MAX", 3)
    works = works_in_log((0, log_lines()))
    assert all((s.task_max_ms is None) == (s.task_count > 3) for w in works.values() for s in w.stages)


@pytest.mark.parametrize("is_any_open", [True, False])
def test_lines_of_jobs_and_tasks_of_no_batch_are_not_parsed(is_any_open, monkeypatch):
    reader = WorkReader()
    reader.begin((QUERY, RUN))
    if is_any_open:
        reader.read(started(1, RUN, 0))
    parsed = []
    monkeypatch.setattr("collectors.spark.stage_events.orjson.loads", parsed.append)
    # The first member is that of the stage, and the order of the others is another one than Spark's.
    reader.read(b'{"Event":"SparkListenerTaskEnd","Stage ID":7,"Task Info":{},"Task Type":"ResultTask"}')
    reader.read(ended(7))

    assert parsed == []
