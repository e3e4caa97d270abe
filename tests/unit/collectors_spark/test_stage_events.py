"""The Spark jobs and stages of micro-batches, out of the lines of a real event log."""

from __future__ import annotations

import re

import orjson
import pytest

from collectors.spark import slow_batches
from tests.support.spark_work import BATCHES, log_lines, works_in_log


@pytest.fixture(autouse=True)
def _every_batch(monkeypatch):
    monkeypatch.setattr(slow_batches, "LONG_MS", 0)
    monkeypatch.setattr(slow_batches, "EVERY_MS", 0)


def place_of(lines: list[bytes], text: bytes) -> int:
    return next(n for n, line in enumerate(lines) if text in line)


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


def test_a_failed_task_is_counted_and_its_time_is_not():
    lines = log_lines()
    at = place_of(lines, b'"SparkListenerTaskEnd"')
    failed = lines[at].replace(b'{"Reason":"Success"}', b'{"Reason":"TaskKilled","Kill Reason":"another attempt"}')
    before, after = works_in_log((0, log_lines())), works_in_log((0, [*lines[:at], failed, *lines[at:]]))
    counts = [s.failed_task_count for work in after.values() for s in work.stages]
    assert sorted(counts, key=lambda c: c or 0)[-2:] == [0, 1]
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
