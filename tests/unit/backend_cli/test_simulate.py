"""Tests of ``barrierscope simulate``: its output lists each interruption of a job with time, cause and cost."""

from __future__ import annotations

import json

import pytest

from backend.cli.app import run

_JOB = """
name = "orders"
seed = 7
[config]
execution.checkpointing.interval = "500 ms"
restart-strategy.fixed-delay.delay = "200 ms"
[[vertex]]
id = "source"
kind = "source"
parallelism = 2
rate = 60
[[vertex]]
id = "count"
kind = "keyed+sink"
parallelism = 2
cost_us = 1000
[[edge]]
from = "source"
to = "count"
partitioner = "hash"
[[rescale]]
at = "2 s"
vertex = "count"
parallelism = 3
[[fault]]
point = "coordinator.on-ack"
at = "4 s"
action = "crash"
[[savepoint]]
at = "7 s"
stop = "drain"
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text(_JOB)
    return str(path)


def test_restarts_rescales_and_stops_are_data_with_time_cause_and_cost(job, capsys):
    assert run(["simulate", job, "--duration", "10s", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["restart_count"]) == ("FINISHED", 2)
    [rescale] = document["rescales"]
    assert (rescale["requested_at_us"], rescale["stopped_at_us"], rescale["status"]) == (2_000_000,) * 2 + (
        "COMPLETED",
    )
    first, second = document["restarts"]
    assert rescale["cost"] == first
    assert first["cause"] == "rescaled: count 2 -> 3"
    assert "induced failure at coordinator.on-ack" in second["cause"]
    for restart in (first, second):
        assert restart["restored_id"] >= 1
        assert restart["running_at_us"] - restart["stopped_at_us"] == restart["until_running_us"] >= 200_000
        assert restart["source_replay_us"] is not None
    [stop] = document["stops"]
    assert (stop["requested_at_us"], stop["drains"], stop["reason"]) == (7_000_000, True, None)
    assert stop["savepoint_completed_at_us"] < stop["ended_at_us"] == document["ended_at_us"]


def test_restarts_rescales_and_stops_are_lines_in_order_of_time(job, capsys):
    assert run(["simulate", job, "--duration", "10s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("at "))
    rescaled, restarted, stopped = (line.split(maxsplit=2) for line in lines[begin + 1 : begin + 4])
    assert (rescaled[0], rescaled[2].split()[0]) == ("2.0", "rescaled")
    assert rescaled[2].endswith("count 2 -> 3")
    assert restarted[2].startswith("restarted")
    assert restarted[2].endswith("induced failure at coordinator.on-ack")
    assert (stopped[0], stopped[2].split()[0]) == ("7.0", "stop")
    assert "drained with savepoint" in stopped[2]
    assert lines[2].startswith("the job has been FINISHED since 7.")


def test_the_columns_are_wide_enough_for_the_longest_kind_of_barrier(capsys):
    assert run(["simulate", "last-barrier", "--duration", "12s"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()[3:5]
    assert rows[0].index("unaligned-last ") == head.index("barrier")
    assert rows[0].index(" s ") > head.index("triggered")
    assert rows[0][head.index("triggered") - 1] == " "


def test_a_failed_or_unfinished_stop_is_reported_and_an_undisturbed_job_has_no_such_lines(job, tmp_path, capsys):
    assert run(["simulate", job, "--duration", "7001ms"]) == 0
    assert "in progress" in capsys.readouterr().out
    failing = tmp_path / "failing.toml"
    failing.write_text(_JOB.replace('at = "7 s"', 'at = "2100 ms"'))
    assert run(["simulate", str(failing), "--duration", "3s"]) == 0
    assert "failed: Not all required tasks are currently running." in capsys.readouterr().out
    assert run(["simulate", job, "--duration", "1s"]) == 0
    assert "resumed from" not in capsys.readouterr().out


def test_the_time_after_the_end_of_a_job_is_not_idle_time(job, capsys):
    shares = []
    for duration in ("10s", "20s"):
        assert run(["simulate", job, "--duration", duration, "--format", "json"]) == 0
        vertices = json.loads(capsys.readouterr().out)["vertices"]
        shares += [[vertex[key] for vertex in vertices for key in ("busy_ratio", "idle_ratio")]]
    assert shares[0] == shares[1]
