"""Tests of ``barrierscope targets check``: its lines and its exit codes."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from backend.cli.app import run

CANARY = "canary-3ad7"
_ANSWERS = {"/config": {"flink-version": "2.3.0"}, "/jobs/overview": {"jobs": []}}


class _Flink(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(_ANSWERS.get(self.path, {})).encode()
        self.send_response(200 if self.headers["Authorization"] == f"Bearer {CANARY}" else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Flink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "targets.yaml"


def check(file, capsys, *options):
    code = run(["targets", "check", str(file), *options])
    found = capsys.readouterr()
    assert CANARY not in found.out + found.err
    return code, found.out, found.err


def test_a_right_file_whose_targets_answer_ends_with_0(file, url, capsys, monkeypatch):
    monkeypatch.setenv("FLINK_TOKEN", CANARY)
    file.write_text(
        f"targets:\n  - {{url: '{url}', name: prod, connection: {{bearer: 'env:FLINK_TOKEN'}}}}\n"
        "  - {url: 'http://127.0.0.1:9', paused: true}\n"
    )

    code, out, _ = check(file, capsys)

    assert code == 0
    assert out.splitlines() == [
        f"ok      prod ({url}): flink 2.3.0, running jobs: 0",
        "paused  127.0.0.1:9",
        f"{file} is right: 2 targets, source targets.yaml",
    ]


def test_a_target_that_does_not_answer_ends_with_1_and_tells_what_failed_and_the_cure(file, url, capsys):
    file.write_text(f"targets:\n  - url: {url}\n  - {{url: '{url}/x', connection: {{bearer: 'env:ABSENT_TOKEN'}}}}\n")

    code, out, _ = check(file, capsys)

    assert code == 1
    assert "HTTP 401" in out.splitlines()[0]
    assert "set bearer, basic or the header" in out.splitlines()[0]
    assert "env:ABSENT_TOKEN is not set in this process" in out.splitlines()[1]
    code, out, _ = check(file, capsys, "--format", "json")
    assert [t["failure"] for t in json.loads(out)["targets"]] == ["unauthorized", "credential"]
    assert code == 1
    assert check(file, capsys, "--offline")[0] == 0


def test_of_a_path_that_is_too_long_the_root_is_said_and_no_other_port(file, url, capsys, monkeypatch):
    monkeypatch.setenv("FLINK_TOKEN", CANARY)
    file.write_text(f"targets:\n  - {{url: '{url}/overview', connection: {{bearer: 'env:FLINK_TOKEN'}}}}\n")

    code, out, _ = check(file, capsys)

    assert code == 1
    assert out.splitlines()[0].endswith(f"the REST root of the target is {url}")
    assert "port" not in out.splitlines()[0]
    (row,) = json.loads(check(file, capsys, "--format", "json")[1])["targets"]
    assert (row["root"], row["cure"]) == (url, None)


def test_a_wrong_file_ends_with_2_and_names_the_line(file, capsys):
    file.write_text("targets:\n  - {url: 'http://f', connection: {bearer: canary-3ad7}}\n")

    code, out, err = check(file, capsys)

    assert (code, out) == (2, "")
    assert f"{file}:2: targets[0].connection.bearer: is not a reference" in err


def test_the_sections_of_a_discovery_are_named_and_not_asked(file, capsys):
    file.write_text("discovery: {http_sd: [{name: consul, url: 'http://127.0.0.1:9/list?token=x'}]}\n")

    code, out, _ = check(file, capsys)
    assert code == 0
    assert out.splitlines() == [
        "section consul: not asked here, the collector reads http://127.0.0.1:9/list",
        f"{file} is right: 0 targets, source targets.yaml",
    ]
    _, out, _ = check(file, capsys, "--format", "json")
    assert json.loads(out)["discovery"] == [{"name": "consul", "place": "http://127.0.0.1:9/list"}]
