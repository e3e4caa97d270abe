"""Flink clusters by the resources of flink-kubernetes-operator, and the history of their jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from backend.domain import pod_ends
from backend.domain.cluster_history import Happening, News, snapshot_of, state_of
from backend.domain.connection import Reach
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import Found, KubernetesSd
from backend.domain.errors import InvalidInputError
from backend.domain.kubernetes_cluster import (
    Key,
    Kind,
    UnreadableError,
    at_path,
    chosen,
    cluster_of,
    is_readable,
    key_of,
    run_id_of,
    text_of,
)
from backend.domain.pod_ends import PodEnd
from backend.domain.target_url import normalised_url
from collectors.discovery.groups import AllowedHosts, declared
from collectors.discovery.kubernetes import Watched, web_address
from collectors.discovery.kubernetes_api import Document, Resource, Scope, ScopeFollower

OPERATOR: Final = "flink-kubernetes-operator"
RESOURCES: Final[Mapping[Kind, Resource]] = {
    kind: Resource(
        "flink.apache.org",
        "v1beta1",
        kind.plural,
        OPERATOR,
        may_be_unknown=kind is not Kind.DEPLOYMENT,
        is_history=kind is Kind.SNAPSHOT,
    )
    for kind in Kind
}
PODS: Final = Resource("", "v1", "pods", "Kubernetes", is_history=True)
_OF_SELECTOR: Final = (Kind.SESSION_JOB, Kind.BLUE_GREEN)
_ENDS_MAX: Final = 10_000
"""Ends of pods that wait until their clusters are known. Further ones are dropped."""


class FlinkView:
    """The targets and the history of one section."""

    def __init__(self, section: KubernetesSd, limits: Reach) -> None:
        self._section = section
        self._hosts = AllowedHosts((), limits.rules)
        self._were_readable: frozenset[Key] = frozenset()
        self._deployments: dict[Key, str] = {}
        self._urls: dict[Key, str] = {}
        self._shared: frozenset[Key] = frozenset()
        self._ends: dict[PodEnd, None] = {}
        self._told: dict[tuple[str, Key], tuple[object, object]] = {}
        self._told_ends: dict[PodEnd, None] = {}

    def watched(self) -> Iterator[Watched]:
        """Return what has to be followed."""
        selector = self._section.selector
        for namespace in self._section.namespaces or (None,):
            # A session job or a parent may choose a deployment that does not match the selector itself.
            yield Watched(Scope(RESOURCES[Kind.DEPLOYMENT], namespace, ""))
            if selector:
                yield Watched(Scope(RESOURCES[Kind.DEPLOYMENT], namespace, selector))
            for kind in _OF_SELECTOR:
                yield Watched(Scope(RESOURCES[kind], namespace, selector))
            if self._section.has_history:
                yield Watched(Scope(RESOURCES[Kind.SNAPSHOT], namespace, ""), is_needed=False)
                yield Watched(
                    Scope(PODS, namespace, pod_ends.SELECTOR),
                    is_needed=False,
                    reduced=pod_ends.essence,
                    seen=self._see_pod,
                )

    def _see_pod(self, pod: Document) -> None:
        # Flink deletes a pod soon after it ended, so its end is kept beside the objects.
        for end in pod_ends.ends_of(pod):
            if len(self._ends) < _ENDS_MAX and end not in self._told_ends:
                self._ends[end] = None

    def found(self, followers: Sequence[ScopeFollower], unread: Set[str | None]) -> Found:
        """Return the targets of the objects that are known now."""
        deployments: dict[Key, Mapping[str, Any]] = {}
        selected: dict[Kind, list[Mapping[str, Any]]] = {kind: [] for kind in Kind}
        by_plural = {resource.plural: kind for kind, resource in RESOURCES.items()}
        for follower in followers:
            objects, scope = follower.objects or {}, follower.scope
            if scope.namespace in unread:
                continue
            kind = by_plural[scope.resource.plural]
            if kind is Kind.DEPLOYMENT and not scope.selector:
                deployments |= objects
            if scope.selector == self._section.selector:
                selected[kind] += objects.values()
        # A cluster that was once ready stays until its object is deleted, because its failure has to be seen.
        self._were_readable = frozenset(
            key for key, document in deployments.items() if key in self._were_readable or is_readable(document)
        )
        targets: list[DeclaredTarget] = []
        left_out: list[str] = []
        self._deployments, self._urls = {}, {}
        for key in sorted(chosen(selected, deployments)):
            document = deployments[key]
            if key not in self._were_readable:
                continue
            try:
                target = self._target(document)
            except (UnreadableError, InvalidInputError) as error:
                left_out.append(f"{Kind.DEPLOYMENT} {key[0]}/{key[1]} {error}")
                continue
            targets.append(target)
            self._deployments[key], self._urls[key] = target.labels["deployment"], target.url
        self._shared = frozenset(k for k in self._deployments if at_path(deployments[k], "spec", "job") is None)
        return Found(tuple(targets), tuple(left_out), tuple(sorted(n for n in unread if n is not None)))

    def _target(self, document: Mapping[str, Any]) -> DeclaredTarget:
        cluster = cluster_of(document)
        url, host = normalised_url(cluster.url)
        if (refusal := self._hosts.refusal(host)) is not None:
            raise UnreadableError(f"is left out: {refusal}")
        if self._section.template.connection.has_tls and not cluster.is_tls:
            raise UnreadableError("has no security.ssl.rest.enabled, and the section's connection has TLS")
        labels = {
            "deployment": f"{self._section.cluster}/{cluster.namespace}/{cluster.owner}",
            "cluster": self._section.cluster,
            "namespace": cluster.namespace,
        }
        if cluster.color is not None:
            labels["color"] = cluster.color
        ui_url = web_address(cluster.ui_url)
        name = f"{cluster.namespace}/{cluster.name}"
        return declared(url, name, labels, self._section.template, ui_url=ui_url, is_paused=cluster.is_suspended)

    def news(self, followers: Sequence[ScopeFollower]) -> Sequence[News]:
        """Return what became known since the last call, of the clusters that ``found`` returned."""
        if not self._section.has_history:
            return []
        objects = {
            (f.scope.resource.plural, key): document
            for f in followers
            if f.scope.resource is not PODS
            for key, document in (f.objects or {}).items()
        }
        told: dict[tuple[str, Key], tuple[object, object]] = {}
        news: list[News] = []
        for (plural, key), document in objects.items():
            deployment = self._deployment_of(plural, document, objects)
            if deployment is None:
                continue
            mark = (at_path(document, "metadata", "resourceVersion"), deployment)
            told[plural, key] = mark
            if self._told.get((plural, key)) == mark:
                continue
            is_snapshot = plural == Kind.SNAPSHOT.plural
            what = self._snapshot(document, objects) if is_snapshot else state_of(document)
            if what is not None:
                news.append(News(deployment, what))
        self._told = told
        return [*news, *self._pod_news()]

    def _pod_news(self) -> Iterator[News]:
        for end in self._ends:
            key = (end.namespace, end.cluster)
            if key in self._deployments:
                yield News(self._deployments[key], replace(end, is_shared=key in self._shared), self._urls[key])
        # Pods of clusters that are not chosen are of no interest.
        self._told_ends = dict.fromkeys([*self._told_ends, *self._ends][-_ENDS_MAX:])
        self._ends = {}

    def _deployment_of(
        self, plural: str, document: Document, objects: Mapping[tuple[str, Key], Document]
    ) -> str | None:
        namespace, name = key_of(document)
        if plural == Kind.BLUE_GREEN.plural:
            colors = (self._deployments.get((namespace, f"{name}-{color}")) for color in ("blue", "green"))
            return next((d for d in colors if d is not None), None)
        if plural == Kind.SNAPSHOT.plural:
            kind = text_of(at_path(document, "spec", "jobReference", "kind"))
            name = text_of(at_path(document, "spec", "jobReference", "name"))
            plural = f"{kind.lower()}s"
            document = objects.get((plural, (namespace, name)), {})
        if plural == Kind.SESSION_JOB.plural:
            name = text_of(at_path(document, "spec", "deploymentName"))
        return self._deployments.get((namespace, name))

    def _snapshot(self, document: Document, objects: Mapping[tuple[str, Key], Document]) -> Happening | None:
        found = snapshot_of(document)
        reference = at_path(document, "spec", "jobReference")
        if found is None or at_path(reference, "kind") != Kind.SESSION_JOB:
            return found
        job = objects.get((Kind.SESSION_JOB.plural, (key_of(document)[0], text_of(at_path(reference, "name")))), {})
        run_id = run_id_of(at_path(job, "status", "jobStatus", "jobId"))
        # Without its id, the job cannot be told from the others of the session cluster.
        return replace(found, engine_run_ids=(run_id,)) if run_id else None
