"""Tests of the sections in ``targets.yaml`` that find targets: what is read, and the sentence on what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.contracts.targets_file import parse_targets
from backend.domain.connection import parse_reference
from backend.domain.discovery import FileSd, HttpSd
from backend.domain.errors import InvalidInputError

WHERE = Path("/etc/barrierscope/targets.yaml")


def parse(section: str):
    return parse_targets(f"discovery:\n{section}".encode(), where=WHERE)


def refusal(section: str) -> str:
    with pytest.raises(InvalidInputError) as refused:
        parse(section)
    return str(refused.value)


def test_a_section_of_files_needs_a_name_and_files():
    declared = parse("  file_sd: [{name: fleet, files: [sd/*.json, /srv/more.yaml]}]")

    assert declared.targets == ()
    (section,) = declared.discoveries
    assert section == FileSd("fleet", ("/etc/barrierscope/sd/*.json", "/srv/more.yaml"))


def test_a_section_of_a_server_has_its_own_connection_and_that_of_its_targets():
    (section,) = parse(
        "  http_sd:\n"
        "    - name: consul\n"
        "      url: https://Sd.example/v1/flink/?tag=a%20b\n"
        "      every: 5m\n"
        "      connection: {bearer: env:SD_TOKEN}\n"
        "      allowed: ['*.flink.example', 10.0.0.0/8]\n"
        "      targets: {interval: 5s, paused: true, connection: {bearer: 'file:token'}}\n"
    ).discoveries

    assert isinstance(section, HttpSd)
    assert (section.url, section.query, section.every_s) == ("https://sd.example/v1/flink/", "tag=a%20b", 300.0)
    assert section.connection.bearer == parse_reference("env:SD_TOKEN")
    assert section.allowed == ("*.flink.example", "10.0.0.0/8")
    assert (section.template.interval_s, section.template.is_paused) == (5.0, True)
    assert section.template.connection.bearer == parse_reference("file:/etc/barrierscope/token")
    assert "a%20b" not in section.place


@pytest.mark.parametrize(
    ("section", "place", "words"),
    [
        ("  http_sd:\n    - url: http://sd\n", ":3: discovery.http_sd[0].name", "is missing"),
        ("  kubernetes:\n    - name: a\n      targets: {kind: storm}\n", ":4: ", "is not read in Kubernetes: storm"),
        ("  kubernetes:\n    - name: a\n      history: maybe\n", ":4: discovery.kubernetes[0].history", "boolean"),
        ("  http_sd:\n    - name: a\n      url: ftp://sd\n", ":4: discovery.http_sd[0].url", "scheme 'ftp'"),
        ("  http_sd:\n    - name: a\n      url: http://u:hunter2@sd\n", ":4: discovery.http_sd[0].url", "credentials"),
        ("  http_sd:\n    - name: a\n      url: 'http://sd?a b'\n", ":4: discovery.http_sd[0].url", "query"),
        ("  http_sd:\n    - name: a\n      url: http://sd\n      every: 10ms\n", ":5: ", "from 1s to 86400s"),
        ("  http_sd:\n    - name: a\n      url: http://sd\n      evry: 1m\n", ":5: ", "did you mean every?"),
        ("  http_sd:\n    - name: a\n      url: http://sd\n      allowed: [a b]\n", ":5: ", "is no host"),
        (
            "  http_sd:\n    - name: a\n      url: http://sd\n      targets:\n        connection: {bearer: env:T}\n",
            "discovery.http_sd[0].allowed",
            "receives the credentials",
        ),
        (
            "  http_sd:\n    - name: a\n      url: http://sd\n      connection: {ca: 'file:ca.pem'}\n",
            ":5: discovery.http_sd[0].connection.ca",
            "TLS only",
        ),
        (
            "  file_sd:\n    - name: a\n      files: [a.json]\n      allowed: [a]\n"
            "      targets: {connection: {proxy: {url: 'http://p', user: me}}}\n",
            ":6: discovery.file_sd[0].targets.connection.proxy",
            "is missing",
        ),
        ("  file_sd:\n    - name: a\n      files: [x/*/a.json]\n", ":4: discovery.file_sd[0].files[0]", "a folder"),
        ("  file_sd:\n    - name: a\n      files: [a.txt]\n", ":4: discovery.file_sd[0].files[0]", "neither JSON"),
        ("  file_sd:\n    - name: a\n      files: []\n", ":4: discovery.file_sd[0].files", "at least 1"),
        (
            "  file_sd: [{name: a, files: [a.json]}]\n  http_sd:\n    - name: a\n      url: http://sd\n",
            ":4: discovery.http_sd[0].name",
            "another section too: a",
        ),
        ("  http_ds: []\n", ":2: discovery.http_ds", "did you mean http_sd?"),
    ],
)
def test_each_wrong_line_is_told_with_its_place(section, place, words):
    told = refusal(section)

    assert place in told
    assert words in told
    assert "hunter2" not in told
