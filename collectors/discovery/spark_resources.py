"""Spark applications by the resources of Kubeflow's spark-operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from backend.domain.cluster_history import News
from backend.domain.connection import Reach
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import Found, KubernetesSd
from backend.domain.errors import InvalidInputError
from backend.domain.kubernetes_cluster import UnreadableError
from backend.domain.spark_application import PLURAL, SparkApplication, application_of
from backend.domain.target_url import normalised_url
from backend.domain.text import clean
from collectors.discovery.groups import AllowedHosts, declared
from collectors.discovery.kubernetes import Watched, web_address
from collectors.discovery.kubernetes_api import Document, Resource, Scope, ScopeFollower

APPLICATIONS: Final = Resource("sparkoperator.k8s.io", "v1beta2", PLURAL, "Kubeflow's spark-operator")
_LABEL_MAX: Final = 500


class SparkView:
    """The drivers of one section. Finished applications are those of a history server, which a target names."""

    def __init__(self, section: KubernetesSd, limits: Reach) -> None:
        self._section = section
        self._hosts = AllowedHosts((), limits.rules)

    def watched(self) -> Iterator[Watched]:
        """Return what has to be followed. A scheduled application has the labels of its schedule."""
        for namespace in self._section.namespaces or (None,):
            yield Watched(Scope(APPLICATIONS, namespace, self._section.selector), reduced=_essence)

    def found(self, followers: Sequence[ScopeFollower], unread: Set[str | None]) -> Found:
        """Return the targets of the applications that are known now."""
        targets: dict[str, DeclaredTarget] = {}
        left_out: list[str] = []
        read = [f for f in followers if f.scope.namespace not in unread]
        for (namespace, name), document in sorted((k, d) for f in read for k, d in (f.objects or {}).items()):
            try:
                application = application_of(document)
                target = None if application is None else self._target(application)
            except (UnreadableError, InvalidInputError) as error:
                left_out.append(f"SparkApplication {namespace}/{name} {error}")
                continue
            if target is not None:
                targets.setdefault(target.url, target)
        return Found(tuple(targets.values()), tuple(left_out), tuple(sorted(n for n in unread if n is not None)))

    def _target(self, application: SparkApplication) -> DeclaredTarget:
        url, host = normalised_url(application.url)
        if (refusal := self._hosts.refusal(host)) is not None:
            raise UnreadableError(f"is left out: {refusal}")
        if self._section.template.connection.has_tls:
            raise UnreadableError("has a driver without TLS, and the section's connection has TLS")
        labels = {
            "deployment": f"{self._section.cluster}/{application.namespace}/{application.owner}",
            "cluster": self._section.cluster,
            "namespace": application.namespace,
            "application": application.name,
        }
        if application.attempt is not None:
            labels["attempt"] = str(application.attempt)
        if application.submission is not None:
            labels["submission"] = application.submission
        return declared(
            url,
            f"{application.namespace}/{application.name}",
            {name: clean(value, length_max=_LABEL_MAX) for name, value in labels.items()},
            self._section.template,
            ui_url=web_address(application.ui_url),
            is_paused=application.is_between,
        )

    def news(self, followers: Sequence[ScopeFollower]) -> Sequence[News]:
        """Return nothing: an attempt is a run of the job, which the collector reads."""
        return ()


def _essence(document: Document) -> Document:
    """Return the parts of an application that are read. Its specification holds templates of pods."""
    return {"metadata": document.get("metadata"), "status": document.get("status")}
