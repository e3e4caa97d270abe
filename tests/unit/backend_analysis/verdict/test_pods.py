"""Tests of restarts that ends of pods explain, and of neighbours that must not be taken for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.pod_ends import PodEnd, PodEndReason
from backend.domain.verdict import Health, VerdictKind
from tests.support.handwritten_jobs import START, job
from tests.support.handwritten_runs import CALM, HEALTHY_RUN

POD, OTHER = "payments-taskmanager-1-2", "payments-taskmanager-1-7"
UNREACHABLE = f"org.apache.flink.runtime.JobException: TaskManager with id {POD}(10.1.2.3:6122) is no longer reachable."
CLOSED = "RemoteTransportException: Connection unexpectedly closed by remote task manager"
POISON = "java.lang.IllegalStateException: poison\n\tat Foo"


def end(at_s, reason=PodEndReason.OUT_OF_MEMORY, pod=POD, **changes):
    return replace(PodEnd(START + timedelta(seconds=at_s), "", "", pod, reason, "10.1.2.3"), **changes)


def restarting(text, *ends, at_s=(-10, 20, 50)):
    exceptions = tuple((START + timedelta(seconds=s), text) for s in at_s)
    return replace(job(HEALTHY_RUN, CALM, restart_count=len(at_s), exceptions=exceptions), pod_ends=ends)


def told(evidence):
    verdict = diagnose(evidence).verdict
    return verdict.sentence, [row.statement for row in verdict.evidence]


def test_a_restart_loop_by_memory_names_the_pod_the_cure_and_what_does_not_help():
    found = diagnose(restarting(UNREACHABLE, end(-12), end(19), end(49)))

    assert (found.health, found.verdict.kind) == (Health.RESTARTING, VerdictKind.RESTARTS)
    assert "3 of its 3 exceptions follow the end of a TaskManager's pod" in found.verdict.sentence
    assert "used more memory than its limit (OOMKilled): payments-taskmanager-1-2 at" in found.verdict.sentence
    rows = [row.statement for row in found.verdict.evidence]
    assert any(r.startswith("what cures it: raise the memory") for r in rows)
    assert any(r.startswith("what does not help: settings of checkpoints; a larger heap") for r in rows)
    assert not any("not decided" in r for r in rows)


@pytest.mark.parametrize(
    "text",
    [
        UNREACHABLE,
        f"The heartbeat of TaskManager with id {POD} timed out.",
        CLOSED + " '10.1.2.3/10.1.2.3:33421'. This might indicate that the remote task manager was lost.",
        CLOSED + f" 'flink-7/10.9.9.9:33421 [ {POD} ] '.",
        CLOSED,
        "TaskManager with id 10.1.2.3:6122-3fa1c7 is no longer reachable.",
        f"The heartbeat of TaskManager with id {POD}:6122-3fa1c7 timed out.",
        CLOSED + " 'flink-7/10.9.9.9:33421 [ 10.1.2.3:6122-3fa1c7 ] '.",
    ],
)
def test_the_loss_of_the_pod_is_known_by_its_name_its_address_or_no_other_name(text):
    sentence, _ = told(restarting(text, end(-12), end(19), end(49)))

    assert "OOMKilled" in sentence


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        # A restart by an exception of the program beside the end of a pod, old or of the same time.
        (POISON, [end(-3_000)]),
        (POISON, [end(-11), end(19), end(49)]),
        # A loss of another TaskManager.
        (UNREACHABLE.replace(POD, OTHER).replace("10.1.2.3", "10.1.2.9"), [end(-11), end(19), end(49)]),
        (CLOSED + " '10.1.2.9/10.1.2.9:33421'", [end(-11), end(19), end(49)]),
        ("TaskManager with id 10.1.2.30:6122-3fa1c7 is no longer reachable.", [end(-11), end(19), end(49)]),
        # Times that do not fit: long before the restart, and after it.
        (UNREACHABLE, [end(-100)]),
        (UNREACHABLE, [end(62)]),
        # In a session cluster, another job may have run there.
        (CLOSED, [end(s, is_shared=True) for s in (-11, 19, 49)]),
    ],
)
def test_a_neighbour_is_not_taken_for_the_cause_and_is_told_as_not_decided(text, ends):
    sentence, rows = told(restarting(text, *ends))

    assert "OOMKilled" not in sentence
    assert any(r.startswith(f"not decided: pod {POD} was killed because it used more memory") for r in rows)
    assert not any("raise the memory" in r for r in rows)


def test_in_a_session_cluster_the_name_decides():
    sentence, _ = told(restarting(UNREACHABLE, *(end(s, is_shared=True) for s in (-11, 19, 49))))

    assert "OOMKilled" in sentence


def test_a_kill_for_an_unknown_reason_says_what_would_decide():
    verdict = diagnose(restarting(UNREACHABLE, *(end(s, PodEndReason.KILLED) for s in (-11, 19, 49)))).verdict

    assert "Kubernetes does not say why" in verdict.sentence
    assert any("events of the pod" in text for text in verdict.would_decide)
    assert not any("raise the memory" in row.statement for row in verdict.evidence)


def test_an_eviction_has_its_own_cure():
    sentence, rows = told(restarting(UNREACHABLE, *(end(s, PodEndReason.EVICTED) for s in (-11, 19, 49))))

    assert "was evicted by its node" in sentence
    assert any("request as much memory and disk" in r for r in rows)


def test_a_few_ends_among_many_exceptions_are_a_row_and_not_the_cause():
    evidence = restarting(POISON, end(48))
    mixed = replace(evidence, exceptions=(*evidence.exceptions[:2], (START + timedelta(seconds=50), UNREACHABLE)))
    sentence, rows = told(mixed)

    assert "OOMKilled" not in sentence
    assert "exceptions that follow the end of a TaskManager's pod (OOMKilled)" in rows


def test_a_single_restart_is_a_row_below_another_verdict():
    sentence, rows = told(restarting(UNREACHABLE, end(45), at_s=(50,)))

    assert diagnose(restarting(UNREACHABLE, end(45), at_s=(50,))).verdict.kind is VerdictKind.NONE
    assert "OOMKilled" not in sentence
    assert any(r.startswith("its exception follows the end of a TaskManager's pod, which was killed") for r in rows)


def test_without_ends_of_pods_nothing_changes():
    evidence = restarting(UNREACHABLE)

    assert "pod" not in told(evidence)[0].replace("host or pod", "")
    assert not any(r.startswith("not decided") for r in told(evidence)[1])
