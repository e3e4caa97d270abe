"""Spark applications in Kubernetes, as Kubeflow's spark-operator describes them: pure functions.

The operator creates a service for the UI of a running driver, and writes its name and port into the status. Both are
read and never computed, because the operator shortens long names. The service ends with the driver. A
ScheduledSparkApplication creates an application for each of its runs, so these have the identity of their parent.

Source: https://github.com/kubeflow/spark-operator/tree/master/api/v1beta2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backend.domain.kubernetes_cluster import UnreadableError, at_path, is_dns_label, key_of, text_of

PLURAL: Final = "sparkapplications"
PARENT: Final = "ScheduledSparkApplication"
_PORT_MAX: Final = 65_535
_RUNNING: Final = "RUNNING"
_BETWEEN: Final = frozenset(
    {
        *("SUBMITTED", "SUBMISSION_FAILED", "PENDING_RERUN", "INVALIDATING", "SUCCEEDING", "FAILING"),
        *("SUSPENDING", "SUSPENDED", "RESUMING"),
    }
)
"""The states in which a driver ends, or another one may begin."""


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """An application whose driver can be read.

    ``owner`` is the name of the schedule, or that of the application itself. ``attempt`` is the number of the attempt
    to run it, and ``submission`` the id of its newest submission.
    """

    namespace: str
    name: str
    owner: str
    service: str
    port: int
    is_between: bool
    attempt: int | None
    submission: str | None
    ui_url: str | None

    @property
    def url(self) -> str:
        """The root of the driver's UI, as pods of the cluster reach it."""
        return f"http://{self.service}.{self.namespace}.svc:{self.port}"


def application_of(document: Mapping[str, Any]) -> SparkApplication | None:
    """Return the application of a SparkApplication; None if it has no driver yet or no driver any more.

    Raises:
        UnreadableError: the driver runs, and its service is not known or cannot be one.
    """
    namespace, name = key_of(document)
    state = text_of(at_path(document, "status", "applicationState", "state"))
    info = at_path(document, "status", "driverInfo")
    service, port = text_of(at_path(info, "webUIServiceName")), at_path(info, "webUIPort")
    is_between = state in _BETWEEN
    if state != _RUNNING and not (is_between and service):
        return None
    if not service:
        raise UnreadableError(
            "has no status.driverInfo.webUIServiceName: let spark-operator create it (controller.uiService.enable), and"
            " do not set spark.ui.enabled to false"
        )
    if not is_dns_label(namespace) or not is_dns_label(service):
        raise UnreadableError("has a name that no service can have")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= _PORT_MAX:
        raise UnreadableError("has a status.driverInfo.webUIPort that is no port")
    attempt = at_path(document, "status", "executionAttempts")
    return SparkApplication(
        namespace=namespace,
        name=name,
        owner=_parent(document) or name,
        service=service,
        port=port,
        is_between=is_between,
        attempt=attempt if isinstance(attempt, int) and not isinstance(attempt, bool) else None,
        submission=text_of(at_path(document, "status", "submissionID")) or None,
        ui_url=_ui_url(text_of(at_path(info, "webUIIngressAddress")).strip()),
    )


def _parent(document: Mapping[str, Any]) -> str | None:
    owners = at_path(document, "metadata", "ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") == PARENT and (name := text_of(owner.get("name"))):
            return name
    return None


def _ui_url(address: str) -> str | None:
    if not address:
        return None
    return address if "://" in address else f"http://{address}"
