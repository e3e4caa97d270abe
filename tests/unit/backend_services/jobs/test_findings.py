"""Tests that a finding is stored without loss, and that its fingerprint identifies what it was computed from."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from backend.domain.engines import FLINK
from backend.domain.verdict import Confidence
from backend.services.jobs import findings
from backend.services.jobs.findings import document_of, finding_from, finding_of, fingerprint_of
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
