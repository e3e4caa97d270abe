"""Pods of TaskManagers that Kubernetes ended: for too much memory, or for another reason.

An end becomes the text of an event of the job, so ``read`` gets the parts back from the text. A pod belongs to a
cluster by the labels ``app`` and ``component``, which Flink and its operator set. Source:
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-states
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from backend.domain.kubernetes_cluster import at_path, instant_of, key_of, text_of

SELECTOR: Final = "app,component=taskmanager"
"""The label selector of the pods of all TaskManagers."""
_KILLED: Final = 137
"""The exit code of a process that was ended by SIGKILL: 128 + 9."""
_TEXT: Final = re.compile(
    r"pod (\S{1,253}) of a TaskManager( of a session cluster)? \(address (\S{1,45})\) ended: "
    r"(OOMKilled|Evicted|exit code 137)(?:, [a-z ]+)?"
)
_UNKNOWN: Final = "unknown"
_MAIN: Final = "flink-main-container"
"""The container of Flink in every pod of the operator and of native Kubernetes. The others are sidecars."""
_GRACE_MAX_S: Final = 10**6
_KEPT: Final = ("name", "namespace", "labels", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds")


class PodEndReason(StrEnum):
    """Why a pod ended, in the words of Kubernetes."""

    OUT_OF_MEMORY = "OOMKilled"
    """The kernel killed the process, because the container used more memory than its limit."""
    EVICTED = "Evicted"
    """The node took the pod away, because the node itself lacked memory, disk space or the like."""
    KILLED = "exit code 137"
    """The process was killed, and Kubernetes does not say why."""


_MEANINGS: Final[Mapping[PodEndReason, str]] = {
    PodEndReason.OUT_OF_MEMORY: "it used more memory than its limit",
    PodEndReason.EVICTED: "its node took it away",
    PodEndReason.KILLED: "it was killed and the reason is not known",
}


@dataclass(frozen=True, slots=True)
class PodEnd:
    """One end. ``cluster`` is the name of the FlinkDeployment, and ``address`` the IP of the pod, if it is known.

    In a session cluster (``is_shared``), the pod need not have run the job.
    """

    at: datetime
    namespace: str
    cluster: str
    pod: str
    reason: PodEndReason
    address: str | None = None
    is_shared: bool = False

    @property
    def text(self) -> str:
        """The words of the event."""
        shared = " of a session cluster" if self.is_shared else ""
        address = self.address or _UNKNOWN
        why = f"{self.reason}, {_MEANINGS[self.reason]}"
        return f"pod {self.pod} of a TaskManager{shared} (address {address}) ended: {why}"


def read(at: datetime, text: str) -> PodEnd | None:
    """Return the end that a text tells, without its namespace and cluster, or None if it tells none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    address = None if match[3] == _UNKNOWN else match[3]
    return PodEnd(at, "", "", match[1], PodEndReason(match[4]), address, is_shared=match[2] is not None)


def essence(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a pod that ``ends_of`` reads. Whole pods are large."""
    metadata, status = (pod.get(name) or {} for name in ("metadata", "status"))
    kept = ("phase", "reason", "podIP", "conditions", "containerStatuses")
    return {
        "metadata": {name: metadata.get(name) for name in _KEPT},
        "status": {name: status.get(name) for name in kept},
    }


def ends_of(pod: Mapping[str, Any]) -> tuple[PodEnd, ...]:
    """Return the ends that a pod's status tells. An end without a time is none, because it explains no restart."""
    namespace, name = key_of(pod)
    cluster = text_of(at_path(pod, "metadata", "labels", "app"))
    if at_path(pod, "metadata", "labels", "component") != "taskmanager" or not cluster or not name:
        return ()
    address = text_of(at_path(pod, "status", "podIP")) or None
    found = dict.fromkeys((*_evicted(pod), *_terminated(pod)))
    return tuple(PodEnd(at, namespace, cluster, name, reason, address) for at, reason in found)


def _evicted(pod: Mapping[str, Any]) -> Iterator[tuple[datetime, PodEndReason]]:
    if at_path(pod, "status", "reason") != "Evicted":
        return
    conditions = at_path(pod, "status", "conditions")
    times = {
        condition.get("type"): at
        for condition in (conditions if isinstance(conditions, list) else ())
        if isinstance(condition, dict) and (at := instant_of(condition.get("lastTransitionTime"))) is not None
    }
    at = times.get("DisruptionTarget") or times.get("Ready")
    if at is not None:
        yield at, PodEndReason.EVICTED


def _terminated(pod: Mapping[str, Any]) -> Iterator[tuple[datetime, PodEndReason]]:
    statuses = at_path(pod, "status", "containerStatuses")
    removed_at = _removed_at(pod)
    for status in statuses if isinstance(statuses, list) else ():
        if at_path(status, "name") != _MAIN:
            continue
        # A container that was started again has its earlier end in lastState.
        for state in ("state", "lastState") if at_path(status, "restartCount") else ("state",):
            ended = at_path(status, state, "terminated")
            at = instant_of(at_path(ended, "finishedAt"))
            if at is None:
                continue
            if at_path(ended, "reason") == PodEndReason.OUT_OF_MEMORY:
                yield at, PodEndReason.OUT_OF_MEMORY
            # The kubelet kills a process that outlives the time of grace after its pod was deleted.
            elif (
                at_path(ended, "exitCode") == _KILLED
                and at_path(pod, "status", "reason") != "Evicted"
                and (removed_at is None or at < removed_at)
            ):
                yield at, PodEndReason.KILLED


def _removed_at(pod: Mapping[str, Any]) -> datetime | None:
    """Return when somebody deleted the pod. Its ``deletionTimestamp`` is later by the time of grace."""
    ends_at = instant_of(at_path(pod, "metadata", "deletionTimestamp"))
    grace_s = at_path(pod, "metadata", "deletionGracePeriodSeconds")
    if ends_at is None or not isinstance(grace_s, int) or not 0 <= grace_s <= _GRACE_MAX_S:
        return ends_at
    return ends_at - timedelta(seconds=grace_s)
