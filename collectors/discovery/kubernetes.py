"""Finds targets in Kubernetes by the resources of an operator, and what these say of the history of jobs.

Nothing is noted until every list of the section was read once or has a problem, so a start that sees only a part ends
no target. A namespace of which a list was never read keeps its earlier targets. While a list cannot be read again, its
objects stay as they were last seen. The problem is told in both cases. If the account may not read one namespace of
several, that is no problem of the list: it is one of its sentences on what was left out, as long as it lasts. A list
that only the history needs has a problem of its own, which says nothing of the targets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, Protocol

from backend.domain.cluster_history import News
from backend.domain.discovery import Found, KubernetesSd
from backend.domain.errors import InvalidInputError
from backend.domain.target_url import normalised_url
from collectors.base import Pause
from collectors.discovery.finding import Notes
from collectors.discovery.kubernetes_api import (
    ClientError,
    Document,
    Scope,
    ScopeFollower,
    UnauthorisedError,
    open_api,
    right_to,
)

_REOPEN_S: Final = 10.0
_PROBLEMS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Watched:
    """What a view follows. Only what ``is_needed`` decides on targets; the rest is of their history.

    ``reduced`` and ``seen`` are those of ``ScopeFollower``.
    """

    scope: Scope
    is_needed: bool = True
    reduced: Callable[[Document], Document] = lambda document: document
    seen: Callable[[Document], None] = lambda document: None


class View(Protocol):
    """What one operator's resources mean."""

    def watched(self) -> Iterator[Watched]:
        """Return what has to be followed."""

    def found(self, followers: Sequence[ScopeFollower], unread: Set[str | None]) -> Found:
        """Return the targets of the objects that are known now, without those of the namespaces in ``unread``."""

    def news(self, followers: Sequence[ScopeFollower]) -> Sequence[News]:
        """Return what became known of the history of jobs since the last call. It follows a call of ``found``."""


class KubernetesFinder:
    """Follows the resources of one section."""

    def __init__(self, section: KubernetesSd, view: View, *, pause: Pause) -> None:
        self._section = section
        self._view = view
        self._pause = pause
        self._followers: list[ScopeFollower] = []
        self._needed: list[ScopeFollower] = []

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
            self._followers, self._needed = [], []
            for one in self._view.watched():
                follower = ScopeFollower(
                    api, one.scope, changed.set, pause=self._pause, reduced=one.reduced, seen=one.seen
                )
                self._followers.append(follower)
                if one.is_needed:
                    self._needed.append(follower)
            async with asyncio.TaskGroup() as group:
                for follower in self._followers:
                    group.create_task(follower.run(stop), name=f"follow {follower.scope}")
                while not stop.is_set():
                    await changed.wait()
                    changed.clear()
                    self._note(notes)

    def _note(self, notes: Notes) -> None:
        forbidden = self._forbidden()
        apart = {id(f) for followers in forbidden.values() for f in followers}
        needed = [f.problem for f in self._needed if f.problem is not None and id(f) not in apart]
        others = [f.problem for f in self._followers if f.problem is not None and f not in self._needed]
        unread = {f.scope.namespace for f in self._needed if f.objects is None}
        failed = {f.scope.namespace for f in self._needed if f.problem is not None}
        if unread <= failed and unread < {f.scope.namespace for f in self._needed}:
            found = self._view.found(self._needed, unread)
            sentences = tuple(
                _unreadable(name, followers, is_listed=name not in unread) for name, followers in forbidden.items()
            )
            notes.found(replace(found, left_out=sentences + found.left_out))
            if news := self._view.news(self._followers):
                notes.happened(news)
        if needed:
            notes.failed(_told(needed))
        notes.lacks(_told(others) if others else None)

    def _forbidden(self) -> dict[str, list[ScopeFollower]]:
        """Return the namespaces that the account may not read, with what it may not read there.

        There are none if it may read no namespace at all, because there is no list then.
        """
        found: dict[str, list[ScopeFollower]] = {}
        for follower in self._needed:
            namespace = follower.scope.namespace
            if namespace is not None and follower.problem is not None and follower.is_forbidden:
                found.setdefault(namespace, []).append(follower)
        return found if found.keys() < {f.scope.namespace for f in self._needed} else {}


def _unreadable(namespace: str, followers: Sequence[ScopeFollower], *, is_listed: bool) -> str:
    """Say what the account may not read.

    ``is_listed``: whether all of the namespace was read before, so that the kinds that may still be read are followed.
    """
    plurals = " and ".join(dict.fromkeys(f.scope.resource.plural for f in followers))
    if is_listed:
        lost = f"{plurals} of namespace {namespace} are not read any more, and what was seen of them stays"
    else:
        lost = f"namespace {namespace} is not read, and its earlier targets stay as they were last seen"
    return f"{lost}: the account may not get, list and watch {plurals} (HTTP 403); {right_to(namespace)}"


def _told(problems: Sequence[str]) -> str:
    return "; ".join(problems[:_PROBLEMS_MAX])


def web_address(text: str | None) -> str | None:
    """Return the address of an ingress, or None if it is no web address."""
    if text is None:
        return None
    try:
        return normalised_url(text)[0]
    except InvalidInputError:
        return None
