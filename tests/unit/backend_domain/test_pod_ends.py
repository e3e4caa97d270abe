"""Tests of what the status of a TaskManager's pod says of its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.domain.pod_ends import PodEndReason, ends_of, essence, read
from tests.support.kubernetes_server import killed, task_manager_pod


def ends(**status):
    return ends_of(essence(task_manager_pod("payments-taskmanager-1-2", "payments", **status)))


def test_a_container_that_was_killed_for_its_memory_is_named_with_its_time():
    (end,) = ends(**killed())

    assert (end.reason, end.cluster, end.pod) == (PodEndReason.OUT_OF_MEMORY, "payments", "payments-taskmanager-1-2")
    assert end.at.isoformat() == "2026-11-30T14:00:00+00:00"
    said = "pod payments-taskmanager-1-2 of a TaskManager (address 10.1.2.3) ended: OOMKilled"
    assert end.text == f"{said}, it used more memory than its limit"


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


@pytest.mark.parametrize("reason", PodEndReason)
def test_each_reason_is_explained_and_read_back_also_from_a_text_without_the_explanation(reason):
    (end,) = ends(**killed())
    end = replace(end, reason=reason)
    plain = end.text.partition(f"{reason}, ")

    assert len(plain[2].split()) > 3
    assert read(end.at, end.text) == read(end.at, plain[0] + reason) == replace(end, namespace="", cluster="")


def test_the_text_of_an_end_is_read_back():
    (end,) = ends(**killed(), podIP=None)
    found = read(end.at, end.text)

    assert (found.pod, found.reason, found.address, found.is_shared) == (end.pod, end.reason, None, False)
    assert read(end.at, "ended RUNNING") is None


@pytest.mark.parametrize("place", ["state", "lastState"])
def test_the_end_of_a_sidecar_is_no_end_of_the_task_manager(place):
    status = killed()
    (main,) = status["containerStatuses"]
    sidecar = {"name": "fluent-bit", "restartCount": 1, place: main["lastState"]}
    running = {"name": "flink-main-container", "restartCount": 0, "state": {"running": {}}}

    assert ends(containerStatuses=[sidecar, running]) == ()
    assert len(ends(containerStatuses=[sidecar, main])) == 1


def test_an_earlier_end_counts_only_if_the_container_was_started_again():
    status = killed()
    status["containerStatuses"][0]["restartCount"] = 0

    assert ends(**status) == ()


@pytest.mark.parametrize(
    ("deleted", "reason", "count"),
    [
        # It was deleted at 14:00:00 or before, and killed 30 s later or within the time of grace.
        ({"deletionTimestamp": "2026-11-30T14:00:00Z", "deletionGracePeriodSeconds": 30}, "Error", 0),
        ({"deletionTimestamp": "2026-11-30T14:00:30Z", "deletionGracePeriodSeconds": 30}, "Error", 0),
        ({"deletionTimestamp": "2026-11-30T14:00:00Z"}, "Error", 0),
        # It was killed, and Flink deleted its pod afterwards.
        ({"deletionTimestamp": "2026-11-30T14:00:31Z", "deletionGracePeriodSeconds": 30}, "Error", 1),
        ({"deletionTimestamp": "2026-11-30T14:00:01Z", "deletionGracePeriodSeconds": 10**30}, "Error", 1),
        # Too much memory has its own reason.
        ({"deletionTimestamp": "2026-11-30T14:00:00Z", "deletionGracePeriodSeconds": 30}, "OOMKilled", 1),
        ({}, "Error", 1),
    ],
)
def test_a_pod_that_was_deleted_on_purpose_was_not_killed_for_an_unknown_reason(deleted, reason, count):
    pod = task_manager_pod("a", "payments", **killed(reason))
    pod["metadata"] |= deleted

    assert len(ends_of(essence(pod))) == count
