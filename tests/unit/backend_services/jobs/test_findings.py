"""Tests that a finding is stored without loss, and that its fingerprint identifies what it was computed from."""

from __future__ import annotations

import json
import zipfile
from importlib.resources import files
from types import SimpleNamespace

import grimp
import pytest

from backend.domain.engines import FLINK
from backend.domain.verdict import Confidence
from backend.services.jobs import findings
from backend.services.jobs.findings import document_of, finding_from, finding_of, fingerprint_of, hash_of_source
from backend.store.postgres.encoding import dump
from tests.support.advised_jobs import EXACTLY_ONCE, expired_run, persisting, readings, slow_run
from tests.support.handwritten_jobs import job, quick

RECORD = SimpleNamespace(run=SimpleNamespace(engine=FLINK), engine_version="1.20.5")


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(job(), id="nothing is known"),
        pytest.param(job(slow_run(), readings(), config=EXACTLY_ONCE), id="advice on the mode"),
        pytest.param(job(expired_run(), readings(), config=EXACTLY_ONCE), id="expired checkpoints"),
        pytest.param(
            job([persisting(quick(n), 10**7) for n in range(8)], readings(), config=EXACTLY_ONCE), id="in-flight data"
        ),
    ],
)
def test_a_stored_finding_is_read_as_it_was_computed(evidence):
    finding = finding_of(evidence, RECORD, None)

    assert finding_from(json.loads(dump(document_of(finding)))) == finding


def test_a_document_in_another_form_is_no_finding():
    document = document_of(finding_of(job(), RECORD, None))

    assert finding_from({**document, "diagnosis": {}}) is None
    assert finding_from({}) is None


def test_a_fingerprint_changes_with_every_value_and_with_the_rules(monkeypatch):
    first = fingerprint_of("run", 1, Confidence.LOW)

    assert first == fingerprint_of("run", 1, Confidence.LOW)
    assert len({first, fingerprint_of("run", 2, Confidence.LOW), fingerprint_of("run", 1, Confidence.HIGH)}) == 3
    monkeypatch.setattr(findings, "rules_version", lambda: "other rules")
    assert fingerprint_of("run", 1, Confidence.LOW) != first


@pytest.mark.parametrize("name", ["rule.py", "wing/rule.py", "wing/of/a/wing/rule.py", "wing/table.json"])
def test_the_rules_have_another_version_if_a_file_changes_in_any_folder(name, tmp_path):
    rules = _written(_written(tmp_path, "__init__.py", ""), name, "LIMIT = 1\n")
    before = hash_of_source({"rules": rules})

    _written(rules, name, "LIMIT = 2\n")

    assert hash_of_source({"rules": rules}) != before


def test_the_rules_have_another_version_if_a_file_moves_or_text_moves_between_files(tmp_path):
    first = _written(tmp_path / "first", "a/rule.py", "X = 1\n")
    moved = _written(tmp_path / "moved", "b/rule.py", "X = 1\n")
    renamed = _written(tmp_path / "renamed", "a/rules.py", "X = 1\n")
    split = _written(_written(tmp_path / "split", "a/rule.py", "X = "), "a/rules.py", "1\n")

    assert len({hash_of_source({"rules": folder}) for folder in (first, moved, renamed, split)}) == 4


def test_the_rules_have_the_same_version_in_a_zip_and_in_any_order_and_with_compiled_files(tmp_path):
    folder = _written(_written(tmp_path / "a", "rules/wing/rule.py", "X = 1\n"), "rules/rule.py", "Y = 1\n")
    other = _written(_written(tmp_path / "b", "rules/rule.py", "Y = 1\n"), "rules/wing/rule.py", "X = 1\n")
    _written(other, "rules/wing/__pycache__/rule.cpython-311.pyc", "compiled")
    archive = tmp_path / "rules.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for file in sorted((folder / "rules").rglob("*.py"), reverse=True):
            written.write(file, file.relative_to(folder).as_posix())

    versions = {hash_of_source({"rules": x}) for x in (folder / "rules", other / "rules")}
    with zipfile.ZipFile(archive) as read:
        versions.add(hash_of_source({"rules": zipfile.Path(read, "rules/")}))

    assert len(versions) == 1


def test_the_version_of_the_rules_depends_on_all_that_they_import():
    graph = grimp.build_graph("backend")
    used = {m for rules in ("backend.analysis", "backend.advisor") for m in _below(graph, rules)}

    assert {m for m in used if not m.startswith(findings._RULES)} == set()
    assert findings.rules_version.__wrapped__() == hash_of_source({p: files(p) for p in findings._RULES})


def _below(graph, package):
    return {package} | graph.find_upstream_modules(package, as_package=True)


def _written(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return folder
