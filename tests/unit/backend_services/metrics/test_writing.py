"""Tests of the metrics of jobs and targets: names, labels, and values that are not known."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest

from backend.contracts.replay_debt import ReplayDebtOut
from backend.domain.freshness import Freshness
from backend.domain.replay_debt import DebtOrigin
from backend.domain.target import TargetOrigin, TargetState
from backend.metrics.registry import FORBIDDEN, register
from backend.services.metrics.counting import FailureGroup
from backend.services.metrics.writing import Exported, JobValues, LeftOut, StoreValues, metrics_of
from backend.store.targets.targets import TargetRecord
from tests.support.api_examples import example

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
STORE = StoreValues(1000, 2000, 7.0, 7.0, 0, None)


def values(**changes):
    known = {
        "row": example("job").model_copy(update={"labels": {"namespace": "prod", "job": "kafka"}}),
        "flink_job_id": "8f2b",
        "engine_version": "2.3.0",
        "external_path": "s3://checkpoints/chk-7",
        "offset": timedelta(),
        "last_duration_ms": 1500,
        "completed_count": 3,
        "failed_counts": dict.fromkeys(FailureGroup, 0) | {FailureGroup.EXPIRED: 2},
        "in_progress_ms": 2500,
        "timeout_ratio": 0.25,
        "finish_at": AT,
    }
    return JobValues(**(known | changes))


def target(name="flink", state=TargetState.OK, **more):
    return TargetRecord(name, f"http://{name}", name, "flink", {}, TargetOrigin.API, True, AT, state, **more)


def written(*jobs, targets=(), store=STORE, **more):
    exported = Exported(is_exporting=True, is_store_up=True, jobs=jobs, targets=targets, store=store, **more)
    registry = CollectorRegistry(auto_describe=False)
    register(lambda: metrics_of(exported), registry)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def series(lines, name):
    return [line for line in lines if re.match(rf"barrierscope_{name}[{{ ]", line)]


def test_a_job_has_about_twenty_series_and_none_has_a_label_that_prometheus_sets():
    lines = written(values())
    own = [line for line in lines if "job_name=" in line]

    assert 18 <= len(own) <= 25
    for line in own:
        labels = set(re.findall(r'(\w+)="', line))
        assert not labels & FORBIDDEN
        assert {"job_name", "target", "namespace", "deployment"} <= labels
        assert 'namespace="prod"' in line


def test_only_the_present_health_and_verdict_have_a_series():
    lines = written(values())
    row = example("job")

    assert [re.search(r'health="([\w-]+)"', line)[1] for line in series(lines, "job_health")] == [row.health.value]
    assert [re.search(r'verdict="([\w-]+)"', line)[1] for line in series(lines, "job_verdict")] == [
        row.verdict.kind.value
    ]


def test_times_are_timestamps_by_our_clock():
    row = example("job").model_copy(update={"last_completed_at": AT})
    (line,) = series(
        written(values(row=row, offset=timedelta(seconds=90))), "job_last_completed_checkpoint_timestamp_seconds"
    )

    assert float(line.split()[-1]) == (AT - timedelta(seconds=90)).timestamp()


def test_what_an_old_reading_says_of_the_present_has_no_sample():
    fresh = example("job")
    old = fresh.freshness.model_copy(update={"state": Freshness.NO_COLLECTOR, "is_stale": True, "read_at": AT})
    lines = written(values(row=fresh.model_copy(update={"freshness": old})))

    for name in (
        "job_health",
        "job_verdict",
        "job_in_progress_age_seconds",
        "job_timeout_probability_ratio",
        "job_predicted_finish_timestamp_seconds",
    ):
        assert len(series(written(values()), name)) == 1, name
        assert series(lines, name) == [], name
    (line,) = series(lines, "job_last_read_timestamp_seconds")
    assert float(line.split()[-1]) == AT.timestamp()
    assert len(series(lines, "job_info")) == 1


def test_the_replay_debt_of_a_job_without_a_completed_checkpoint_is_known():
    debt = ReplayDebtOut(since=AT, origin=DebtOrigin.START)
    row = example("job").model_copy(update={"last_completed_at": None, "replay_debt": debt})
    lines = written(values(row=row, offset=timedelta(seconds=90)))
    (line,) = series(lines, "job_replay_since_timestamp_seconds")

    assert float(line.split()[-1]) == (AT - timedelta(seconds=90)).timestamp()
    assert series(lines, "job_last_completed_checkpoint_timestamp_seconds") == []


def test_what_is_not_known_has_no_sample_and_is_not_zero():
    absent = {"health": None, "verdict": None, "last_completed_at": None, "duration_p50_ms": None, "interval_ms": None}
    lines = written(
        values(
            row=example("job").model_copy(update=absent),
            external_path="",
            last_duration_ms=None,
            in_progress_ms=None,
            timeout_ratio=None,
            finish_at=None,
        )
    )

    for name in (
        "job_health",
        "job_verdict",
        "job_external_path_info",
        "job_last_completed_checkpoint_timestamp_seconds",
        "job_checkpoint_interval_seconds",
        "job_in_progress_age_seconds",
        "job_timeout_probability_ratio",
        "job_predicted_finish_timestamp_seconds",
    ):
        assert series(lines, name) == [], name
    assert all('statistic="p99"' in line for line in series(lines, "checkpoint_duration_seconds"))


def test_every_group_of_reasons_has_a_series_even_without_a_failure():
    found = {
        re.search(r'reason="([\w-]+)"', s)[1]: s.split()[-1]
        for s in series(written(values()), "checkpoints_failed_total")
    }

    assert found == {group.value: "2.0" if group is FailureGroup.EXPIRED else "0.0" for group in FailureGroup}


def test_a_target_is_up_if_it_was_read_and_says_nothing_while_it_is_paused():
    targets = [
        target("a"),
        target("b", TargetState.UNREACHABLE),
        target("c", TargetState.PAUSED),
        target("d", TargetState.PARTIAL),
        target("e", TargetState.PENDING),
    ]
    found = {re.search(r'target="(\w)"', s)[1]: s.split()[-1] for s in series(written(targets=targets), "target_up")}

    assert found == {"a": "1.0", "b": "0.0", "d": "1.0"}


def test_two_targets_of_one_name_give_one_series():
    lines = written(targets=[target("a", TargetState.UNREACHABLE), target("a")])

    assert len(series(lines, "target_up")) == 1


def test_names_with_quotes_and_line_feeds_are_escaped():
    row = example("job").model_copy(update={"name": 'a"b\\c\nd'})
    (line,) = series(written(values(row=row)), "job_info")

    assert 'job_name="a\\"b\\\\c\\nd"' in line


def test_a_process_that_stands_by_exports_nothing_of_the_fleet():
    names = [m.name for m in metrics_of(Exported(is_exporting=False))]

    assert names == ["barrierscope_exporter_active"]


def test_while_the_store_is_down_no_value_of_a_job_remains():
    found = {m.name: m.samples[0].value for m in metrics_of(Exported(is_exporting=True, is_store_up=False))}

    assert found == {"barrierscope_exporter_active": 1.0, "barrierscope_store_up": 0.0}


def test_the_jobs_that_are_left_out_are_counted_by_reason():
    lines = series(written(left_out={LeftOut.LIMIT: 4}), "jobs_left_out")

    assert [line.split()[-1] for line in lines] == ["4.0", "0.0"]
