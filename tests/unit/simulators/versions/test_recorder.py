"""What a recording of a version keeps."""

from __future__ import annotations

import gzip
from typing import Any

import orjson

from tests.simulators.versions.recorder import kept, written


def answer_at(t: float, body: Any, path: str = "/jobs/overview") -> dict[str, Any]:
    return {"t": t, "path": path, "status": 200, "body": body}


def test_a_recording_keeps_an_answer_once_until_it_changes():
    rows = [answer_at(n, body) for n, body in enumerate([{"a": 1}, {"a": 1}, {"a": 2}, {"a": 1}])]

    assert [row["t"] for row in kept(rows)] == [0, 2, 3]


def test_a_recording_has_no_folders_of_the_machine_and_no_addresses(tmp_path):
    settings = [{"key": "rest.port", "value": "1"}, {"key": "metrics.fetcher.update-interval", "value": "10000"}]
    rows = [answer_at(0, settings, "/jobmanager/config"), answer_at(1, {"path": "file:///own/folder/x"}, "/jobs/1")]

    size = written(rows, {"jobs": {}}, tmp_path / "1.15", replaced={"file:///own/folder": "file:///flink"})

    lines = gzip.decompress((tmp_path / "1.15" / "rest.jsonl.gz").read_bytes()).splitlines()
    config, job = (orjson.loads(line) for line in lines)
    assert [setting["key"] for setting in config["body"]] == ["metrics.fetcher.update-interval"]
    assert job["body"] == {"path": "file:///flink/x"}
    assert 0 < size < 2_000
