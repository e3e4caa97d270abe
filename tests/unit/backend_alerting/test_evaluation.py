"""Tests of the labels that identify an alert, and of the labels that silences compare with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.alerting.evaluation import evaluate, identity_of, readings_of
from backend.alerting.labels import RESERVED, Matcher, fits_all
from backend.alerting.rules import RULES, Subject, rule_of, shipped
from backend.domain.ids import JobId
from tests.support.alert_signals import job_signal, target_signal
from tests.support.observations import NOW

RULE = rule_of("CheckpointExpired")
TARGET_LABELS = {"t1": {"job": "kafka", "instance": "a:1", "namespace": "prod", "deployment": "orders-v2"}}


def test_an_alert_of_a_flink_job_has_the_labels_of_the_job_its_target_and_flinks_own_id():
    identity = identity_of(RULE, job_signal(flink_job_id="8f2b1c0d"), TARGET_LABELS)

    assert identity.labels == {
        "alertname": "CheckpointExpired",
        "severity": RULE.severity.value,
        "job_name": "orders",
        "flink_job_id": "8f2b1c0d",
        "target": "production",
        "namespace": "prod",
        "deployment": "orders-v2",
        "target_job": "kafka",
        "target_instance": "a:1",
    }


def test_alerts_of_two_jobs_that_flink_does_not_run_differ_although_all_names_are_equal():
    first, second = (identity_of(RULE, replace(job_signal(), job_id=JobId(j)), TARGET_LABELS) for j in ("j1", "j2"))

    assert "flink_job_id" not in first.labels
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name.value)
def test_no_alert_has_a_label_that_prometheus_sets(rule):
    signal = target_signal() if rule.subject is Subject.TARGET else job_signal(flink_job_id="8f2b")

    assert not RESERVED & set(identity_of(rule, signal, TARGET_LABELS).labels)


@pytest.mark.parametrize(
    ("matcher", "is_hidden"),
    [
        (Matcher("job_name", "orders"), True),
        (Matcher("job", "orders"), True),
        (Matcher("job_id", "j1"), True),
        (Matcher("job", "other"), False),
        (Matcher("job", "orders", is_equal=False), False),
    ],
    ids=str,
)
def test_a_silence_from_before_the_labels_were_renamed_hides_the_same_alerts(matcher, is_hidden):
    identity = identity_of(RULE, job_signal(), {})

    assert fits_all([Matcher("alertname", "CheckpointExpired"), matcher], identity.matched) is is_hidden


def test_a_rule_reads_each_signal_of_its_subject_whatever_stands_between_them():
    ids = (JobId("j1"), JobId("j2"))
    jobs = [replace(job_signal("expired"), job_id=job_id) for job_id in ids]
    signals = [target_signal(), jobs[0], target_signal(), jobs[1]]
    rules = [shipped(RULE)]

    outcomes = evaluate(rules, signals, [], {}, NOW)

    assert [outcome.alert.identity.job_id for outcome in outcomes] == list(ids)
    assert set(readings_of(rules, signals)) == {(RULE.name.value, job_id) for job_id in ids}
