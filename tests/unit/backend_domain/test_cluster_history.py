"""Tests of what the operator's resources say of a job's history, in which words, and what is none of it."""

from __future__ import annotations

import json

import pytest

from backend.domain.cluster_history import ObjectState, between, snapshot_of, state_of
from tests.support.kubernetes_server import blue_green, flink_deployment, reconciled, session_job, snapshot

AT, LATER = 1_796_047_200_000, 1_796_047_260_000
A = {"image": "flink-job:1", "flinkVersion": "v2_0", "job": {"parallelism": 2, "upgradeMode": "savepoint"}}
B = A | {"image": "flink-job:2"}


def deployed(spec, at=AT, *, state="DEPLOYED", stable=None, lifecycle="STABLE", **job):
    status = reconciled(at, spec, state, stable) | {"lifecycleState": lifecycle, "jobStatus": {"jobId": "a" * 32} | job}
    return state_of(flink_deployment("payments", status=status))


def told(before, after):
    found = between(before, after)
    return None if found is None else found.text


def test_an_upgrade_names_what_changed_and_from_where_the_job_was_restored():
    new = deployed(B, LATER, jobId="b" * 32, upgradeSavepointPath="s3://key:secret@bucket/savepoint-1")

    happened = between(deployed(A), new)
    assert happened.text == (
        "Upgraded by the operator: image flink-job:1 to flink-job:2, from savepoint s3://bucket/savepoint-1"
    )
    assert happened.tag == "upgrade"
    assert happened.at.isoformat() == "2026-11-30T14:01:00+00:00"
    assert happened.engine_run_ids == ()


@pytest.mark.parametrize(
    ("mode", "path", "words"),
    [
        ("stateless", "s3://b/savepoint-0", ", without its state"),
        ("last-state", None, ", from its newest checkpoint"),
        ("savepoint", "KUBERNETES_OPERATOR_LAST_STATE", ", from its newest checkpoint"),
        ("last-state", "s3://b/x/chk-7", ", from checkpoint s3://b/x/chk-7"),
        ("savepoint", None, ""),
    ],
)
def test_the_words_say_from_where_the_job_was_restored_as_far_as_it_is_known(mode, path, words):
    before, after = ({**spec, "job": {"parallelism": 2, "upgradeMode": mode}} for spec in (A, B))

    assert told(deployed(before), deployed(after, LATER, upgradeSavepointPath=path)).endswith(f"flink-job:2{words}")


def test_settings_arguments_and_jars_are_named_and_their_values_are_not():
    secret = {
        "flinkConfiguration": {"s3": {"secret-key": "hunter2"}, "a.b": "1"},
        "job": {"parallelism": 4, "args": ["--password", "hunter2"], "jarURI": "https://me:hunter2@x/y.jar"},
    }
    after = deployed(A | secret, LATER)

    assert told(deployed(A), after) == (
        "Upgraded by the operator: parallelism 2 to 4, the jar changed, the arguments changed,"
        " settings a.b, s3.secret-key changed"
    )
    assert "hunter2" not in json.dumps(after.document())


def test_a_rollback_names_the_way_back():
    bad = deployed(B, lifecycle="DEPLOYED")
    back = deployed(B, LATER, state="ROLLED_BACK", stable=A, lifecycle="ROLLED_BACK")

    assert told(bad, back) == "Rolled back by the operator: image flink-job:2 to flink-job:1"
    assert between(bad, back).tag == "rollback"
    # If the upgrade was not seen, only the rollback is known.
    assert told(deployed(A), back) == "Rolled back by the operator to the last stable specification"


def using(spec, mode):
    return {**spec, "job": spec["job"] | {"upgradeMode": mode}}


def test_the_first_upgrade_changes_no_upgrade_mode_and_its_rollback_restores_the_state():
    # The operator records its first deployment as stateless, whatever was asked for.
    first = using(A, "stateless")
    upgraded = deployed(using(B, "savepoint"), LATER, upgradeSavepointPath="s3://b/savepoint-1")
    back = deployed(
        using(B, "last-state"),
        LATER,
        state="ROLLED_BACK",
        stable=first,
        lifecycle="ROLLED_BACK",
        upgradeSavepointPath="KUBERNETES_OPERATOR_LAST_STATE",
    )

    assert told(deployed(first), upgraded) == (
        "Upgraded by the operator: image flink-job:1 to flink-job:2, from savepoint s3://b/savepoint-1"
    )
    assert told(upgraded, back) == (
        "Rolled back by the operator: image flink-job:2 to flink-job:1, from its newest checkpoint"
    )
    assert told(deployed(first), deployed(first, LATER, jobId="b" * 32)) == (
        "Redeployed by the operator without a change of the specification"
    )


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"job": {"savepointRedeployNonce": 1}}, "the redeployment nonce"),
        ({"job": {"initialSavepointPath": "s3://me:hunter2@b/x"}}, "the initial savepoint"),
        ({"job": {"allowNonRestoredState": True}}, "allowNonRestoredState"),
        ({"logConfiguration": {"log4j": "hunter2"}}, "the logging"),
        ({"serviceAccount": "other"}, "the service account"),
        ({"ingress": {"template": "hunter2"}}, "the rest of the specification"),
        ({"job": {"futurePart": 1}}, "the rest of the specification"),
    ],
)
def test_each_part_of_the_specification_may_be_what_was_upgraded(part, words):
    after = deployed({**A, **part, "job": A["job"] | part.get("job", {})}, LATER, jobId="b" * 32)

    assert told(deployed(A), after) == f"Upgraded by the operator: {words} changed"
    assert "hunter2" not in json.dumps(after.document())


@pytest.mark.parametrize("name", ["savepointTriggerNonce", "checkpointTriggerNonce", "autoscalerResetNonce"])
def test_a_nonce_that_deploys_nothing_is_no_upgrade_and_neither_is_a_part_without_a_value(name):
    asked = deployed({**A, "ingress": None, "job": A["job"] | {name: 7, "entryClass": None}}, LATER)

    assert between(deployed(A), asked) is None


@pytest.mark.parametrize("state", ["UPGRADING", "ROLLING_BACK", None])
def test_a_change_under_way_is_none_yet(state):
    assert deployed(B, state=state) is None


@pytest.mark.parametrize("spec", ["{", "[]", "null", "9" * 5000, "[" * 100_000, 1, None])
def test_a_specification_that_cannot_be_read_is_none(spec):
    status = {"reconciliationStatus": {"state": "DEPLOYED", "reconciliationTimestamp": AT, "lastReconciledSpec": spec}}
    document = flink_deployment("a")
    document["status"] |= status

    assert state_of(document) is None


@pytest.mark.parametrize("at", ["32503000000000", 32_503_000_000_000, 1_000, "2999-01-01T00:00:00Z"])
def test_a_state_of_an_impossible_time_is_none_so_that_it_hides_no_later_state(at):
    assert deployed(A) is not None

    assert deployed(A, at) is None


def test_the_job_may_be_suspended_and_resumed():
    running, suspended = ({**A, "job": A["job"] | {"state": state}} for state in ("running", "suspended"))

    assert told(deployed(running), deployed(suspended, LATER)) == "Suspended by the operator"
    assert told(deployed(suspended), deployed(running, LATER)) == "Resumed by the operator"


def test_a_new_job_id_is_a_redeployment_only_if_the_job_was_stable_before():
    assert told(deployed(A), deployed(A, LATER, jobId="b" * 32)) == (
        "Redeployed by the operator without a change of the specification"
    )
    # The id of the new job is known a while after the upgrade.
    assert told(deployed(A, lifecycle="DEPLOYED"), deployed(A, LATER, jobId="b" * 32)) is None
    assert told(deployed(A), deployed(A, LATER)) is None


def test_a_state_survives_its_document():
    before = deployed(A | {"flinkConfiguration": {"a": 1}})
    again = ObjectState.of(before.subject, json.loads(json.dumps(before.document())))

    assert told(before, deployed(B, LATER)) is not None
    assert told(again, deployed(A | {"flinkConfiguration": {"a": 1}}, LATER)) is None
    assert between(again, deployed(B, LATER)) == between(before, deployed(B, LATER))


def test_a_switch_between_blue_and_green_is_told_of_the_parent():
    def parent(state, at="2026-11-30T14:00:00.123456789Z"):
        # With an active color, the operator has set the time at which the new one was ready back to zero.
        times = {"deploymentReadyTimestamp": "1970-01-01T00:00:00Z", "lastReconciledTimestamp": at}
        return state_of(blue_green("pay") | {"status": {"blueGreenState": state, **times}})

    switch = between(parent("ACTIVE_BLUE"), parent("ACTIVE_GREEN", "2026-11-30T15:00:00Z"))
    again = between(parent("ACTIVE_BLUE"), parent("ACTIVE_GREEN", "2026-11-30T16:00:00Z"))
    assert switch.text == "Switched by the operator: blue to green"
    assert switch.at.isoformat() == "2026-11-30T15:00:00+00:00"
    assert again.key != switch.key
    assert parent("TRANSITIONING_TO_GREEN") is None
    assert parent("ACTIVE_BLUE", "soon") is None


def test_a_session_job_concerns_only_the_jobs_that_have_one_of_its_runs():
    def of(spec, job_id, at):
        status = reconciled(at, spec) | {"lifecycleState": "STABLE", "jobStatus": {"jobId": job_id}}
        return state_of(session_job("job", "session") | {"status": status})

    first, second = "a" * 32, "b" * 32
    assert between(of(A, first, AT), of(B, second, LATER)).engine_run_ids == (first, second)
    # People who may write the object may write any text as the id.
    assert of(A, "a\0", AT).job_id is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Savepoint s completed: s3://bucket/savepoint-1"),
        ({"status": {"path": "s3://me:pw@bucket/x"}}, "Savepoint s completed: s3://bucket/x"),
        ({"status": {"state": "FAILED", "error": "no\x1b way"}}, "Savepoint s failed: no  way"),
        ({"status": {"state": "ABANDONED"}}, "Savepoint s was abandoned, because the job failed or was upgraded"),
        (
            {"labels": {"snapshot.trigger-type": "UPGRADE"}},
            "Savepoint s, taken for an upgrade, completed: s3://bucket/sa",
        ),
        ({"labels": {"snapshot.trigger-type": "PERIODIC"}}, None),
        (
            {"labels": {"snapshot.trigger-type": "PERIODIC"}, "status": {"state": "FAILED", "error": "full"}},
            "Savepoint s, taken periodically, failed: full",
        ),
        ({"spec": {"checkpoint": {}, "savepoint": None}}, "Checkpoint s completed: s3://bucket/savepoint-1"),
        ({"status": {"state": "IN_PROGRESS"}}, None),
        ({"status": {"resultTimestamp": "yesterday"}}, None),
        ({"spec": {"savepoint": {"alreadyExists": True}}}, None),
    ],
)
def test_a_snapshot_that_ended_is_told(changes, text):
    found = snapshot_of(snapshot("s", "payments", **changes))

    assert (found is None) if text is None else found.text.startswith(text)


def test_texts_from_a_cluster_are_one_line_of_limited_length():
    found = snapshot_of(snapshot("s", "payments", status={"state": "FAILED", "error": "x\n" * 100_000}))

    assert len(found.text) <= 500
    assert "\n" not in found.text
