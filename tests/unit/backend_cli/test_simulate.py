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


_HELD_BACK = """
name = "held back"
seed = 7
[config]
execution.checkpointing.interval = "400 ms"
execution.checkpointing.unaligned.enabled = "true"
taskmanager.memory.segment-size = 4096
[[vertex]]
id = "source"
kind = "source"
parallelism = 2
cost_us = 100
[[vertex]]
id = "count"
kind = "keyed+sink"
parallelism = 2
cost_us = 2000
[[edge]]
from = "source"
to = "count"
partitioner = "hash"
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


@pytest.fixture
def held_back(tmp_path):
    path = tmp_path / "held-back.toml"
    path.write_text(_HELD_BACK)
    return str(path)


def _table(capsys, *args):
    assert run(["simulate", *args, "--duration", "2s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("id "))
    rows = lines[lines.index(head) + 1 :]
    rows = rows[: rows.index("")]
    assert rows
    at = [head.index(name) for name in ("barrier", "triggered", "in flight", "last")]
    return [tuple(row[begin:end].strip() for begin, end in ((at[0], at[1]), (at[2], at[3]))) for row in rows]


def test_a_checkpoint_that_switched_is_listed_as_that_with_its_in_flight_bytes(held_back, capsys):
    rows = _table(capsys, held_back, "--set", "execution.checkpointing.aligned-checkpoint-timeout=100 ms")
    assert {course for course, _ in rows} == {"aligned, then unaligned after 100 ms"}
    assert all(in_flight not in ("", "0 B") for _, in_flight in rows)


def test_a_checkpoint_that_a_cap_kept_aligned_is_listed_as_that(held_back, capsys):
    assert set(_table(capsys, held_back, "--set", "runtime.inflight-cap.bytes=0")) == {("aligned, capped", "0 B")}
    assert {course for course, _ in _table(capsys, held_back, "--set", "runtime.inflight-cap.bytes=20 kb")} == {
        "unaligned, capped"
    }


def test_a_refused_rescale_keeps_the_results_and_ends_with_the_reason(job, tmp_path, capsys):
    path = tmp_path / "refused.toml"
    point = 'point = "coordinator.metadata"\nat = "1900 ms"\naction = "error"'
    rescale = _JOB.replace('point = "coordinator.on-ack"\nat = "4 s"\naction = "crash"', point)
    path.write_text(rescale.replace('vertex = "count"', 'from = "savepoint"\nvertex = "count"'))
    assert run(["simulate", str(path), "--duration", "3s", "--format", "json"]) == 2
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    [rescale] = document["rescales"]
    assert (rescale["status"], document["virtual_time_us"], document["restart_count"]) == ("REFUSED", 3_000_000, 0)
    assert "the savepoint to rescale from failed" in rescale["refusal"]
    assert rescale["refusal"] in shown.err
    assert document["counts"]["completed"] > 2
    assert run(["simulate", str(path), "--duration", "3s"]) == 2
    text = capsys.readouterr().out
    assert f"rescale: {rescale['refusal']}" in text
    assert text.splitlines()[-1].startswith("count")


def test_the_sums_of_channel_files_count_the_files_of_unmerged_checkpoints_too(held_back, capsys):
    created = []
    for merges in ("false", "true"):
        merging = f"execution.checkpointing.file-merging.enabled={merges}"
        assert run(["simulate", held_back, "--duration", "2s", "--set", merging, "--format", "json"]) == 0
        files = json.loads(capsys.readouterr().out)["channel_files"]
        assert files["created"] - files["deleted"] >= (files["stored_bytes"] > 0)
        assert files["written_bytes"] >= files["stored_bytes"] > 0
        created.append(files["created"])
    assert created[0] >= created[1] > 0


def test_output_that_transactions_lost_is_told_and_so_is_what_will_be_lost(job, capsys):
    """All checkpoints complete. Transactions stay open for 500 ms and may become 100 ms old."""
    arguments = ["simulate", job, "--duration", "1.9s"]
    assert run([*arguments, "--set", "runtime.transaction-timeout=100ms"]) == 0
    printed = capsys.readouterr().out
    assert "completed, 0 failed" in printed
    assert "records in 8 transactions, committed after their timeout of 100 ms" in printed
    assert "LOST: " in printed
    assert "will be lost: " in printed
    assert run(arguments) == 0
    assert "lost" not in capsys.readouterr().out.lower()
