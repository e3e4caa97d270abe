"""What a recording of a version keeps."""

from __future__ import annotations

import gzip
from typing import Any

import orjson

from tests.simulators.versions.recorder import kept, written


def answer_at(t: float, body: Any, path: str = "/jobs/overview") -> dict[str, Any]:
    return {"t": t, "job": "a job", "path": path, "status": 200, "body": body}


def test_a_recording_lists_only_the_job_that_was_asked_about():
    (row,) = kept([answer_at(0, {"jobs": [{"jid": "a"}, {"jid": "b"}]})], {"a job": "b"})

    assert row["body"] == {"jobs": [{"jid": "b"}]}


def test_a_recording_has_no_folders_of_the_machine_and_no_addresses(tmp_path):
    settings = [{"key": "rest.port", "value": "1"}, {"key": "metrics.fetcher.update-interval", "value": "10000"}]
    rows = [answer_at(0, settings, "/jobmanager/config"), answer_at(1, {"path": "file:///own/folder/x"}, "/jobs/1")]

    size = written(rows, {"jobs": {"a job": "b"}}, tmp_path / "1.15", replaced={"/own/folder": "/flink"})

    lines = gzip.decompress((tmp_path / "1.15" / "rest.jsonl.gz").read_bytes()).splitlines()
    config, job = (orjson.loads(line) for line in lines)
    assert [setting["key"] for setting in config["body"]] == ["metrics.fetcher.update-interval"]
    assert job["body"] == {"path": "file:///flink/x"}
    assert 0 < size < 2_000
