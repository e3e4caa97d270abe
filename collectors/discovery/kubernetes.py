"""Finds Flink clusters in Kubernetes by the resources of flink-kubernetes-operator.

Nothing is noted until every list of the section was read once or has a problem, so a start that sees only a part ends
no target. A namespace of which a list was never read keeps its earlier targets. While a list cannot be read again, its
objects stay as they were last seen. The problem is told in both cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from backend.domain.connection import Reach
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import Found, KubernetesSd
from backend.domain.errors import InvalidInputError
from backend.domain.kubernetes_cluster import Key, Kind, UnreadableError, chosen, cluster_of, is_readable
from backend.domain.target_url import normalised_url
from collectors.base import Pause
from collectors.discovery.finding import Notes
from collectors.discovery.groups import AllowedHosts, declared
from collectors.discovery.kubernetes_api import ClientError, Scope, ScopeFollower, UnauthorisedError, open_api

_REOPEN_S: Final = 10.0


class KubernetesFinder:
    """Follows the resources of one section."""

    def __init__(self, section: KubernetesSd, limits: Reach, *, pause: Pause) -> None:
        self._section = section
        self._hosts = AllowedHosts((), limits.rules)
        self._pause = pause
        self._followers: list[ScopeFollower] = []
        self._were_readable: frozenset[Key] = frozenset()

    async def run(self, notes: Notes, stop: asyncio.Event) -> None:
        """Follow until ``stop`` is set."""
        while not stop.is_set():
            try:
                await self._follow(notes, stop)
            except* ClientError as group:
                notes.failed("; ".join(str(error) for error in group.exceptions))
            except* UnauthorisedError:
                notes.failed("HTTP 401: the API server does not accept the credentials; they are read again")
            await self._pause(_REOPEN_S, stop)

    async def _follow(self, notes: Notes, stop: asyncio.Event) -> None:
        async with open_api(self._section) as api:
            changed = asyncio.Event()
            self._followers = [ScopeFollower(api, s, changed.set, pause=self._pause) for s in self._scopes()]
            async with asyncio.TaskGroup() as group:
                for follower in self._followers:
                    group.create_task(follower.run(stop), name=f"follow {follower.scope}")
                while not stop.is_set():
                    await changed.wait()
                    changed.clear()
                    self._note(notes)

    def _scopes(self) -> Iterator[Scope]:
        selector = self._section.selector
        for namespace in self._section.namespaces or (None,):
            # A session job or a parent may choose a deployment that does not match the selector itself.
            yield Scope(Kind.DEPLOYMENT, namespace, "")
            if selector:
                yield Scope(Kind.DEPLOYMENT, namespace, selector)
            yield Scope(Kind.SESSION_JOB, namespace, selector)
            yield Scope(Kind.BLUE_GREEN, namespace, selector)

    def _note(self, notes: Notes) -> None:
        problems = [f.problem for f in self._followers if f.problem is not None]
        unread = {f.scope.namespace for f in self._followers if f.objects is None}
        failed = {f.scope.namespace for f in self._followers if f.problem is not None}
        if unread <= failed and unread < {f.scope.namespace for f in self._followers}:
            notes.found(self._found(unread))
        if problems:
            notes.failed("; ".join(problems[:3]))

    def _found(self, unread: Set[str | None]) -> Found:
        deployments: dict[Key, Mapping[str, Any]] = {}
        selected: dict[Kind, list[Mapping[str, Any]]] = {kind: [] for kind in Kind}
        for follower in self._followers:
            objects, scope = follower.objects or {}, follower.scope
            if scope.namespace in unread:
                continue
            if scope.kind is Kind.DEPLOYMENT and not scope.selector:
                deployments |= objects
            if scope.selector == self._section.selector:
                selected[scope.kind] += objects.values()
        # A cluster that was once ready stays until its object is deleted, because its failure has to be seen.
        self._were_readable = frozenset(
            key for key, document in deployments.items() if key in self._were_readable or is_readable(document)
        )
        targets: list[DeclaredTarget] = []
        left_out: list[str] = []
        for namespace, name in sorted(chosen(selected, deployments)):
            document = deployments[namespace, name]
            if (namespace, name) not in self._were_readable:
                continue
            try:
                targets.append(self._target(document))
            except (UnreadableError, InvalidInputError) as error:
                left_out.append(f"{Kind.DEPLOYMENT} {namespace}/{name} {error}")
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
        ui_url = _web_address(cluster.ui_url)
        name = f"{cluster.namespace}/{cluster.name}"
        return declared(url, name, labels, self._section.template, ui_url=ui_url, is_paused=cluster.is_suspended)


def _web_address(text: str | None) -> str | None:
    """Return the address of an ingress, or None if it is no web address."""
    if text is None:
        return None
    try:
        return normalised_url(text)[0]
    except InvalidInputError:
        return None
