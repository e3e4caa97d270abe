"""Tests of what the status of a TaskManager's pod says of its end."""

from __future__ import annotations

import pytest

from backend.domain.pod_ends import PodEndReason, ends_of, essence, read
from tests.support.kubernetes_server import killed, task_manager_pod


def ends(**status):
    return ends_of(essence(task_manager_pod("payments-taskmanager-1-2", "payments", **status)))


def test_a_container_that_was_killed_for_its_memory_is_named_with_its_time():
    (end,) = ends(**killed())

    assert (end.reason, end.cluster, end.pod) == (PodEndReason.OUT_OF_MEMORY, "payments", "payments-taskmanager-1-2")
    assert end.at.isoformat() == "2026-11-30T14:00:00+00:00"
    assert end.text == "pod payments-taskmanager-1-2 of a TaskManager (address 10.1.2.3) ended: OOMKilled"


def test_an_end_now_and_an_end_before_are_two():
    first, now = killed(at="2026-11-30T13:00:00Z"), killed(at="2026-11-30T14:00:00Z")
    (status,) = first["containerStatuses"]
    status["state"] = now["containerStatuses"][0]["lastState"]

    assert [end.at.hour for end in ends(**first)] == [14, 13]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (killed("Error"), PodEndReason.KILLED),
        (killed("OOMKilled", code=0), PodEndReason.OUT_OF_MEMORY),
        (killed("Error", code=143), None),
        (killed("Completed", code=0), None),
        (killed(at="later"), None),
        (killed(at="2026-11-30T14:00:00"), None),
        ({}, None),
        ({"containerStatuses": [None, 1, {"state": []}]}, None),
        ({"phase": "Failed", "reason": "Evicted"}, None),
    ],
)
def test_only_a_kill_with_a_time_is_an_end(status, reason):
    assert [end.reason for end in ends(**status)] == ([] if reason is None else [reason])


def test_an_evicted_pod_is_told_as_evicted_though_its_process_was_killed():
    times = [{"type": "Ready", "lastTransitionTime": "2026-11-30T13:59:00Z"}]
    (end,) = ends(phase="Failed", reason="Evicted", conditions=times, **killed("Error"))
    assert (end.reason, end.at.minute) == (PodEndReason.EVICTED, 59)

    times.append({"type": "DisruptionTarget", "lastTransitionTime": "2026-11-30T13:58:00Z"})
    (end,) = ends(phase="Failed", reason="Evicted", conditions=times)
    assert end.at.minute == 58


@pytest.mark.parametrize("labels", [{}, {"app": "payments"}, {"app": "payments", "component": "jobmanager"}, None])
def test_a_pod_of_another_kind_has_no_end(labels):
    pod = task_manager_pod("a", "payments", **killed())
    pod["metadata"]["labels"] = labels

    assert ends_of(essence(pod)) == ()


def test_the_text_of_an_end_is_read_back():
    (end,) = ends(**killed(), podIP=None)
    found = read(end.at, end.text)

    assert (found.pod, found.reason, found.address, found.is_shared) == (end.pod, end.reason, None, False)
    assert read(end.at, "ended RUNNING") is None
