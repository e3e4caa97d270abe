"""Flink clusters in Kubernetes, as the custom resources of flink-kubernetes-operator describe them: pure functions.

A cluster is a FlinkDeployment. A session job chooses the deployment that runs it, and a blue/green deployment the two
that belong to it. Flink's job id changes at upgrades, so the identity of a cluster's jobs is (name of the Kubernetes
cluster, namespace, name). Blue and green have the identity of their parent, so their jobs are runs of one job.

Source: https://nightlies.apache.org/flink/flink-kubernetes-operator-docs-main/docs/custom-resource/reference/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_REST_PORT: Final = 8081
_PORT_MAX: Final = 65_535
_TIME_MAX: Final = 40
_YEARS: Final = range(2000, 2101)
_RUN_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{\{(name|namespace)\}\}", re.IGNORECASE)
_PATTERN_OF_PATH = re.compile(r"[(*$\[].*", re.DOTALL)
"""The rest of an ingress path from its first sign of a pattern on, such as ``(/|$)(.*)``."""


class Kind(StrEnum):
    """The custom resources that are read."""

    DEPLOYMENT = "FlinkDeployment"
    SESSION_JOB = "FlinkSessionJob"
    BLUE_GREEN = "FlinkBlueGreenDeployment"
    SNAPSHOT = "FlinkStateSnapshot"

    @property
    def plural(self) -> str:
        """The name in addresses of the Kubernetes API."""
        return f"{self.value.lower()}s"


Key = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(frozen=True, slots=True)
class FlinkCluster:
    """A cluster that can be read. ``owner`` is the name of the blue/green parent, or that of the deployment itself."""

    namespace: str
    name: str
    owner: str
    port: int
    is_tls: bool
    is_suspended: bool
    ui_url: str | None

    @property
    def url(self) -> str:
        """The root of Flink's REST API: the service ``NAME-rest``, as pods of the cluster reach it."""
        return f"{'https' if self.is_tls else 'http'}://{self.name}-rest.{self.namespace}.svc:{self.port}"

    @property
    def color(self) -> str | None:
        """``blue`` or ``green`` if the cluster belongs to a parent."""
        return self.name.removeprefix(f"{self.owner}-") if self.owner != self.name else None


class UnreadableError(Exception):
    """A deployment is no cluster that can be read. The text follows its name."""


def chosen(objects: Mapping[Kind, Iterable[Mapping[str, Any]]], deployments: Iterable[Key]) -> frozenset[Key]:
    """Return the deployments that the selector chooses: themselves, by a session job or by a blue/green parent.

    ``objects`` are those that match the selector. ``deployments`` are all there are.
    """
    selected = {key_of(o) for o in objects.get(Kind.DEPLOYMENT, ())}
    for job in objects.get(Kind.SESSION_JOB, ()):
        selected.add((key_of(job)[0], text_of(at_path(job, "spec", "deploymentName"))))
    parents = {key_of(o) for o in objects.get(Kind.BLUE_GREEN, ())}
    selected |= {(namespace, f"{name}-{color}") for namespace, name in parents for color in ("blue", "green")}
    return frozenset(selected & set(deployments))


def is_readable(deployment: Mapping[str, Any]) -> bool:
    """Return whether the JobManager answers, or has answered before.

    A cluster whose JobManager failed stays a target, because its failure has to be seen.
    """
    if at_path(deployment, "status", "jobManagerDeploymentStatus") == "READY":
        return True
    if at_path(deployment, "status", "jobStatus", "startTime"):
        return True
    # A session cluster has no job of its own. The operator notes this once the JobManager has answered it.
    return bool(at_path(deployment, "status", "clusterInfo"))


def cluster_of(deployment: Mapping[str, Any]) -> FlinkCluster:
    """Return the cluster of a FlinkDeployment.

    Raises:
        UnreadableError: its names or its port cannot be those of a service.
    """
    namespace, name = key_of(deployment)
    if not _DNS_LABEL.fullmatch(namespace) or not _DNS_LABEL.fullmatch(f"{name}-rest"):
        raise UnreadableError("has a name that no service can have")
    settings = flat(at_path(deployment, "spec", "flinkConfiguration"))
    port = settings.get("rest.port", str(_REST_PORT))
    if not port.isdecimal() or not port.isascii() or not 0 < int(port[:9]) <= _PORT_MAX:
        raise UnreadableError("has a rest.port that is no port")
    return FlinkCluster(
        namespace=namespace,
        name=name,
        owner=_parent(deployment) or name,
        port=int(port),
        is_tls=settings.get("security.ssl.rest.enabled", "").lower() == "true",
        is_suspended=at_path(deployment, "status", "lifecycleState") == "SUSPENDED",
        ui_url=_ui_url(deployment, namespace, name),
    )


def is_dns_label(text: str) -> bool:
    """Return whether a text can be the name of a service or of a namespace."""
    return _DNS_LABEL.fullmatch(text) is not None


def key_of(document: Mapping[str, Any]) -> Key:
    """Return the namespace and the name of an object."""
    return text_of(at_path(document, "metadata", "namespace")), text_of(at_path(document, "metadata", "name"))


def _parent(deployment: Mapping[str, Any]) -> str | None:
    owners = at_path(deployment, "metadata", "ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") == Kind.BLUE_GREEN.value:
            name = text_of(owner.get("name"))
            return name if _DNS_LABEL.fullmatch(name) else None
    return None


def _ui_url(deployment: Mapping[str, Any], namespace: str, name: str) -> str | None:
    """Return the address of the ingress, as the operator builds it; None if its host is not known."""
    ingress = at_path(deployment, "spec", "ingress")
    template = text_of(ingress.get("template")) if isinstance(ingress, dict) else ""
    values = {"name": name, "namespace": namespace}
    filled = _PLACEHOLDER.sub(lambda found: values[found[1].lower()], template).strip()
    filled = re.sub(r"^https?://", "", filled, flags=re.IGNORECASE)
    host, slash, path = filled.partition("/")
    if not host:
        return None
    scheme = "https" if isinstance(ingress, dict) and ingress.get("tls") else "http"
    return f"{scheme}://{host}{slash}{_PATTERN_OF_PATH.sub('', path)}"


def flat(settings: Any, prefix: str = "", depth: int = 0) -> dict[str, str]:
    """Return Flink's settings by their whole keys. Newer operators allow nested ones too."""
    found: dict[str, str] = {}
    if not isinstance(settings, dict) or depth > 10:
        return found
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.", depth + 1)
        else:
            found[f"{prefix}{key}"] = str(value)
    return found


def at_path(document: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None if there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def text_of(value: Any) -> str:
    """Return a text, or "" for every other value."""
    return value if isinstance(value, str) else ""


def instant_of(value: Any) -> datetime | None:
    """Return the time of a text in the form of RFC 3339, such as ``2026-11-30T14:00:00Z``; None for everything else.

    A time outside the years 2000 to 2100 is None too. Kubernetes writes the year 1 for a time that it does not know.
    """
    if not isinstance(value, str) or len(value) > _TIME_MAX:
        return None
    try:
        at = datetime.fromisoformat(value)
        return None if at.tzinfo is None or at.year not in _YEARS else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def run_id_of(value: Any) -> str | None:
    """Return the id of a run of Flink, which has 32 hexadecimal digits; None for everything else."""
    return value if isinstance(value, str) and _RUN_ID.fullmatch(value) else None
