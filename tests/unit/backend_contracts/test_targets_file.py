"""Tests of ``targets.yaml``: what is read, and the sentence on each thing that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from backend.contracts.targets_file import SIZE_MAX_BYTES, keys, parse_targets, read_targets_file
from backend.domain.connection import ConnectionOptions, parse_reference
from backend.domain.declared_target import DeclaredLink
from backend.domain.errors import InvalidInputError
from tests.packaging.wheel_environment import ROOT

WHERE = Path("/etc/barrierscope/targets.yaml")
REFERENCE = ROOT / "docs" / "reference" / "targets.yaml"


def parse(text: str):
    return parse_targets(text.encode(), where=WHERE)


def refusal(text: str) -> str:
    with pytest.raises(InvalidInputError) as refused:
        parse(text)
    return str(refused.value)


def test_a_target_needs_its_address_only():
    declared = parse("targets:\n  - url: HTTP://Flink:8081/a/\n")

    (target,) = declared.targets
    assert declared.source == "targets.yaml"
    assert (target.url, target.name, target.kind) == ("http://flink:8081/a", "flink:8081/a", "flink")
    assert target.interval_s is None
    assert target.connection == ConnectionOptions()
    assert not target.is_paused


def test_the_file_of_the_reference_has_every_key_and_is_read():
    declared = read_targets_file(REFERENCE)
    full = declared.targets[0]

    assert full.interval_s == 5.0
    assert full.links == (DeclaredLink("Grafana", "https://grafana.example/d/tm?var-tm={taskmanager}"),)
    assert {name for name, _ in full.connection.references} >= {"headers.X-Api-Key", "ca", "certificate", "key"}
    words = REFERENCE.read_text()
    for key in keys():
        assert f"{key.rpartition('.')[2]}:" in words, key


def test_relative_files_are_those_beside_the_file():
    (target,) = parse("targets: [{url: https://f, connection: {bearer: 'file:token', ca: 'file:/etc/ca.pem'}}]").targets

    assert target.connection.bearer == parse_reference("file:/etc/barrierscope/token")
    assert target.connection.ca == parse_reference("file:/etc/ca.pem")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("targets:\n  - urll: http://f\n", ":2: targets[0].urll", "did you mean url?"),
        ("targets:\n  - kind: flink\n", ":2: targets[0].url", "is missing"),
        ("targets:\n  - url: ftp://f\n", ":2: targets[0].url", "scheme 'ftp'"),
        ("targets:\n  - url: http://f\n    interval: 5\n", ":3: targets[0].interval", "string"),
        ("targets:\n  - url: http://f\n    interval: 2 weeks\n", ":3: targets[0].interval", "such as 5s"),
        ("targets:\n  - url: http://f\n    interval: 10ms\n", ":3: targets[0].interval", "0.2s to 3600s"),
        ("targets:\n  - url: http://f\n    paused: 'yes'\n", ":3: targets[0].paused", "boolean"),
        ("targets:\n  - url: http://f\n  - url: http://f/\n", ":3: targets[1].url", "address of targets[0] too"),
        ("targets:\n  - url: http://f\n    url: http://g\n", ":3: targets[0].url", "is set twice"),
        ("targets:\n  - url: http://f\n    connection: {ca: 'file:x'}\n", ":3: targets[0].connection.ca", "http://"),
        ("targets:\n  - url: http://f\n    connection: {proxy: {url: 'https://p'}}\n", "proxy.url", "http://HOST:PORT"),
        (
            "targets:\n  - url: http://f\n    connection: {proxy: {url: 'http://p/x'}}\n",
            "proxy.url",
            "http://HOST:PORT",
        ),
        (
            "targets:\n  - url: http://f\n    connection: {proxy: {url: 'http://p', user: me}}\n",
            ":3: targets[0].connection.proxy",
            "is missing",
        ),
        ("targets:\n  - url: https://f\n    connection: {server_name: 'a b'}\n", "server_name", "host name"),
        ("targets: {}\n", ":1: targets", "list"),
        ("- http://f\n", "targets.yaml", "is not a mapping"),
        ("", "targets.yaml", "is empty"),
        ("targets: [\n", ":2", "is not YAML"),
        ("targets: [a\n", ":2", "expected ',' or ']'"),
        ("targets: [{url: ftp://f}, {url: http://f}, {url: http://f}]", ":1", "address of targets[1] too"),
        ("targets: []\nsource: a b\n", ":2: source", "pattern"),
        ("a: !!python/object/apply:os.system ['true']\n", ":1", "is not YAML"),
    ],
)
def test_each_wrong_line_is_told_with_its_place(text, place, words):
    told = refusal(text)

    assert place in told
    assert words in told


@pytest.mark.parametrize(
    "text",
    [
        "targets: [{url: 'https://u:hunter2@f'}]",
        "targets: [{url: 'https://f', connection: {bearer: hunter2}}]",
        "targets: [{url: 'https://f', connection: {basic: {user: me, password: hunter2}}}]",
        "targets: [{url: 'https://f', connection: {headers: {X-A: hunter2}}}]",
        "targets: [{url: 'https://f', connection: {proxy: {url: 'http://me:hunter2@p'}}}]",
        "targets: [{url: 'https://f', connection: {bearer: [hunter2]}}]",
        "targets: [{url: 'https://f', connection: {bearer: *hunter2 }}]",
        "targets: [{url: 'https://f', connection: {bearer: !hunter2 }}]",
        "targets: [{url: 'https://f', connection: {bearer: !a'b'hunter2 x}}]",
        "targets: [{url: 'https://f', connection: {bearer: !hunter2!x y}}]",
        "targets: [{url: &hunter2 'https://f', name: &hunter2 x}]",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text):
    assert "hunter2" not in refusal(text)


@pytest.mark.parametrize(("secret", "words"), [("*hunter2 ", "undefined alias"), ("!hunter2 x", "for the tag")])
def test_a_secret_that_yaml_reads_as_a_sign_of_its_own_is_told_by_its_line(secret, words):
    told = refusal(f"targets:\n  - url: https://f\n    connection:\n      bearer: {secret}\n")

    assert ":4: is not YAML: " in told
    assert words in told
    assert "hunter2" not in told


def test_the_file_is_parsed_once_and_by_libyaml(monkeypatch):
    parsed = []
    begin = yaml.CSafeLoader.__init__
    monkeypatch.setattr(yaml.CSafeLoader, "__init__", lambda self, text: parsed.append(text) or begin(self, text))
    parse("targets: []\n")

    assert parsed == ["targets: []\n"]


def test_a_file_that_repeats_itself_without_end_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    assert "repeats parts of itself" in refusal("\n".join(lines))


def test_a_file_that_is_nested_too_deeply_is_refused():
    assert "nested too deeply" in refusal("targets: " + "[" * 1_000_000)
    assert "nested too deeply" in refusal("- " * 1_000_000)


def test_a_file_that_is_missing_or_too_large_is_told(tmp_path):
    with pytest.raises(InvalidInputError, match="No such file"):
        read_targets_file(tmp_path / "absent.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (SIZE_MAX_BYTES + 1))
    with pytest.raises(InvalidInputError, match="larger than 2 MiB"):
        read_targets_file(large)
    large.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_targets_file(large)
