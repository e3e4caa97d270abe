"""Tests of the forms of a log's lines: patterns, JSON layouts, and what container runtimes put around them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from collectors.file_blocks import Hit
from collectors.logs.lines import NO_DATE, record_of

AT = datetime(2024, 3, 5, 12, 0, 1, 250_000)  # noqa: DTZ001 - the log names no zone
TEXT = "Completed checkpoint 7 for job 8f5c (5 bytes in 3 ms)."
PLAIN = f"2024-03-05 12:00:01,250 INFO  org.apache.flink.runtime.checkpoint.CheckpointCoordinator    [] - {TEXT}"


def parsed(line: str, rest: str = ""):
    return record_of(Hit(line.encode(), rest.encode()))


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        f"2024-03-05 12:00:01.250 [jobmanager-io-thread-1] INFO  o.a.f.r.c.CheckpointCoordinator - {TEXT}",
        f"2024/03/05 12:00:01.250 INFO CheckpointCoordinator - {TEXT}",
        f"[2024-03-05 12:00:01,250] [INFO] c.CheckpointCoordinator - {TEXT}",
        f"jobmanager-0 | {PLAIN}",
        f"2024-03-05T10:00:01.251000000Z stdout F {PLAIN}",
        json.dumps({"log": f"{PLAIN}\n", "stream": "stdout", "time": "2024-03-05T10:00:01.251Z"}),
    ],
)
def test_the_time_the_level_and_the_text_are_read(line: str):
    found = parsed(line)

    assert found is not None
    assert (found.at, found.level, found.text) == (AT, "INFO", TEXT)


def test_a_time_without_a_date_is_read_too():
    found = parsed(f"12:00:01,250 INFO  org.apache.flink.runtime.checkpoint.CheckpointCoordinator    [] - {TEXT}")

    assert found is not None
    assert (found.at, found.text) == (NO_DATE.replace(hour=12, second=1, microsecond=250_000), TEXT)


@pytest.mark.parametrize("head", ["12:00:01,250 INFO ", "2024-03-05 12:00:01,250 INFO  org.apache.flink.Cluster"])
def test_a_time_in_the_text_is_not_that_of_the_line(head: str):
    found = parsed(f"{head}      [] - Starting (Version: 1.20.5, Date:2026-06-08T09:21:06+02:00)")

    assert found is not None
    assert (found.at.hour, found.at.minute) == (12, 0)


@pytest.mark.parametrize("line", ["25:00:01,250 INFO a - b", "12:61:01,250 INFO a - b"])
def test_a_time_that_no_clock_shows_is_no_time(line: str):
    assert parsed(line) is None


@pytest.mark.parametrize(
    "line", [f"9999-12-31 23:59:59-99:99 INFO a - {TEXT}", f"0001-01-01 00:00:00+23:00 INFO a - {TEXT}"]
)
def test_a_time_before_the_first_or_after_the_last_year_is_no_time(line: str):
    assert parsed(line) is None


@pytest.mark.parametrize("nanos", ["x", [1], {"a": 1}, None])
def test_a_json_time_with_broken_nanoseconds_is_read_to_the_second(nanos: object):
    document = {"instant": {"epochSecond": 1709640001, "nanoOfSecond": nanos}, "level": "INFO", "message": TEXT}

    found = parsed(json.dumps(document))

    assert found is not None
    assert found.at == AT.replace(tzinfo=UTC, microsecond=0)


@pytest.mark.parametrize(
    "document",
    [
        {"@timestamp": "2024-03-05T12:00:01.250Z", "log.level": "INFO", "message": TEXT},
        {"@timestamp": "2024-03-05T14:00:01.250+02:00", "log": {"level": "INFO"}, "message": TEXT},
        {"timestamp": "2024-03-05T12:00:01.250Z", "level": "INFO", "message": TEXT},
        {"instant": {"epochSecond": 1709640001, "nanoOfSecond": 250000000}, "level": "INFO", "message": TEXT},
        {"timeMillis": 1709640001250, "level": "INFO", "loggerName": "a", "message": TEXT},
    ],
)
def test_the_json_layouts_are_read(document: dict[str, object]):
    found = parsed(json.dumps(document))

    assert found is not None
    assert (found.at, found.level, found.text) == (AT.replace(tzinfo=UTC), "INFO", TEXT)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("thrown", {"name": "a.B", "message": "c", "extendedStackTrace": "a.B: c\n\tat a.B.d(B.java:1)\nCaused by: e"}),
        ("stack_trace", "a.B: c\n\tat a.B.d(B.java:1)\nCaused by: e"),
        ("error.stack_trace", "a.B: c\n\tat a.B.d(B.java:1)\nCaused by: e"),
        ("error", {"stack_trace": "a.B: c\n\tat a.B.d(B.java:1)\nCaused by: e"}),
    ],
)
def test_the_stack_trace_of_a_json_line_is_read(key: str, value: object):
    found = parsed(json.dumps({"timeMillis": 1709640001250, "level": "WARN", "message": TEXT, key: value}))

    assert found is not None
    assert found.trace == "a.B: c\nCaused by: e"


def test_a_stack_trace_ends_with_the_next_record():
    found = parsed(PLAIN, f"a.B: c\n\tat a.B.d(B.java:1)\n\t... 3 more\nCaused by: e\n{PLAIN}\nother")

    assert found is not None
    assert found.trace == "a.B: c\nCaused by: e"


UTC_NOW = "2024-03-05T10:00:01.251000000Z"
WRAPPERS = {
    "CRI": f"{UTC_NOW} stdout F {{}}".format,
    "docker json-file": lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": UTC_NOW}),
    "docker json-file in CRI": lambda line: f"{UTC_NOW} stdout F " + json.dumps({"log": f"{line}\n", "time": UTC_NOW}),
    "kubectl logs --timestamps": f"{UTC_NOW} {{}}".format,
    "kubectl logs --prefix": "[pod/orders-1/jobmanager] {}".format,
    "docker compose": "jobmanager-1  | {}".format,
    "docker compose --timestamps": f"jobmanager-1  | {UTC_NOW} {{}}".format,
}
TRACE = ("java.lang.RuntimeException: boom", "\tat a.B.c(B.java:1)", "", "\t... 3 more", "Caused by: a.B: ERROR: full")
WRAPPED = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


@WRAPPED
def test_a_stack_trace_of_which_each_line_is_wrapped_is_read(wrap):
    rest = "\n".join(wrap(line) for line in (*TRACE, PLAIN, "Caused by: another"))

    found = parsed(wrap(PLAIN), rest)

    assert found is not None
    assert (found.at, found.level, found.text) == (AT, "INFO", TEXT)
    assert found.trace == "java.lang.RuntimeException: boom\nCaused by: a.B: ERROR: full"


@WRAPPED
def test_a_wrapped_record_without_a_stack_trace_has_none(wrap):
    found = parsed(wrap(PLAIN), "\n".join([wrap(PLAIN), wrap(TRACE[0])]))

    assert found is not None
    assert found.trace == ""


@pytest.mark.parametrize("name", ["CRI", "docker json-file", "docker compose"])
def test_a_wrapped_line_of_a_stack_trace_is_no_problem_of_its_own(name: str):
    found = parsed(WRAPPERS[name](TRACE[-1]), WRAPPERS[name]("Caused by: c"))

    assert found is None or (found.is_problem, found.trace) == (False, "")


def test_a_level_after_the_prefix_begins_a_record_of_the_time_in_the_prefix():
    wrap = WRAPPERS["CRI"]

    found = parsed(wrap("WARN  a.B - it failed"), "\n".join(map(wrap, [TRACE[0], "INFO  a.B - next", "d"])))

    assert found is not None
    assert (found.level, found.text, found.trace) == ("WARN", "it failed", TRACE[0])


def test_a_time_without_a_date_gets_the_time_of_the_prefix():
    found = parsed(WRAPPERS["CRI"]("12:00:01,250 INFO  a.B - it began"))

    assert found is not None
    assert (found.at, found.text) == (datetime(2024, 3, 5, 10, 0, 1, 251_000, UTC), "it began")


def test_control_characters_inside_a_json_object_do_not_reach_the_terminal():
    found = parsed(WRAPPERS["docker json-file"](f"{PLAIN}\x1b[31m red \x07"))

    assert found is not None
    assert found.text.isprintable()


def test_control_characters_do_not_reach_the_terminal():
    found = parsed(f"{PLAIN}\x1b[31m red \x07", "a.B: \x1b[2J")

    assert found is not None
    assert (found.text + found.trace).isprintable()


@pytest.mark.parametrize(
    "line", ["", "Caused by: a.B", "\tat a.B.c(B.java:1)", "{", '{"message": 7}', "[1, 2]", "{}" * 50]
)
def test_a_line_that_does_not_begin_a_record_is_none(line: str):
    assert parsed(line) is None
