"""Lists, adds, tests, changes and removes targets, and decides which addresses are allowed.

While only this machine can reach the API, every address that is sent to it is allowed. Otherwise the address must be
on the allow-list, which contains host names and networks. ``backend.domain.address_rules`` decides. This module
checks the host with it, and the clients check the address of each connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from types import MappingProxyType
from typing import Protocol, cast
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts import api
from backend.contracts.connection import ConnectionDoc
from backend.contracts.links import LinkTemplate
from backend.contracts.target_list import TargetGroupOut
from backend.domain.address_rules import AddressRules
from backend.domain.clock import Clock
from backend.domain.connection import PLAIN, ConnectionOptions, Reach, problems_of
from backend.domain.connection_failure import CURES, ConnectionFailure
from backend.domain.declared_target import INTERVAL_MIN_S
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import (
    ConflictError,
    FieldProblem,
    InvalidInputError,
    TargetProtocolError,
    UpstreamError,
    WrongRootError,
)
from backend.domain.links import version_of
from backend.domain.target import COLLECTOR_GROUP, TargetOrigin
from backend.domain.target_url import normalised_url
from backend.domain.web_ui import page_error, without_page
from backend.services.jobs.silent_jobs import hear
from backend.services.paging import decode_cursor, page_of
from backend.services.targets.listing import groups_of
from backend.store.postgres.connections import reading
from backend.store.targets.declared import FORGOTTEN_AFTER, list_sources
from backend.store.targets.targets import NewTarget, TargetRecord, TargetRepository, WantedTargets

_PROBE_TIMEOUT_S = 8.0
_SERVER_ERROR = 500


class ProbeAnswer(Protocol):
    """What a target reports about itself when its connection is tested."""

    @property
    def engine(self) -> EngineCapabilities:
        """The kind and the capabilities of the target's engine."""
        ...

    @property
    def version(self) -> str | None:
        """The version of the target's engine, or None if unknown."""
        ...

    @property
    def running_jobs(self) -> Sequence[str]:
        """The names of the target's running jobs."""
        ...

    @property
    def summary(self) -> str | None:
        """What answers, in words; None if the name of the engine says it."""
        ...


class Probe(Protocol):
    """Tests the connection to a target at ``url`` with the collector for its ``kind``."""

    async def __call__(self, url: str, timeout_s: float, *, kind: str, reach: Reach) -> ProbeAnswer:
        """Test the connection to ``url`` and return what the target reports.

        Each request may take ``timeout_s`` seconds. ``reach`` has the allowed addresses and the credentials.

        Raises:
            UpstreamError: the target is unreachable, its response does not fit ``kind``, or no collector can
                test this kind. It is a ``WrongRootError`` if the target answers at another path of the address.
        """
        ...


def check_host(rules: AddressRules, host: str, *, what: str = "target", field: str = "url") -> None:
    """Raise ``InvalidInputError`` if ``rules`` do not allow ``host``."""
    if rules.allows_host(host):
        return
    allowed = ", ".join(rules.allowed) or f"none: BARRIERSCOPE_ALLOWED_{what.upper()}S is empty"
    raise InvalidInputError([FieldProblem(field, f"the host {host!r} is not allowed here", allowed)], what=what)


class TargetService:
    """Answers API requests about targets."""

    def __init__(self, engine: AsyncEngine, clock: Clock, limits: Reach, probe: Probe) -> None:
        self._engine = engine
        self._targets = TargetRepository(engine)
        self._clock = clock
        self._limits = limits
        self._probe = probe

    async def page(self, wanted: WantedTargets, *, cursor: str | None, limit: int) -> api.Page[api.TargetOut]:
        """Return one page of the wanted targets, oldest first.

        Raises:
            InvalidInputError: the cursor does not belong to this list.
        """
        after = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        rows = await self._heard(await self._targets.list_page(wanted, after=after, limit=limit + 1))
        items, following = page_of(rows, limit, lambda r: (r.added_at, r.id))
        places = await self._places(items)
        shown = [target_out(r, places) for r in items]
        return api.Page[api.TargetOut](items=shown, next=following, as_of=self._clock.now())

    async def groups(self, *, kind: str | None = None) -> list[TargetGroupOut]:
        """Return the targets that are read, in the format of Prometheus' ``http_sd``."""
        return groups_of(await self._targets.list_all(), kind=kind)

    async def get(self, target_id: str) -> api.TargetOut:
        """Return one target.

        Raises:
            UnknownEntityError: there is no target with this id.
        """
        (found,) = await self._heard([await self._targets.get(target_id)])
        return target_out(found, await self._places([found]))

    async def add(self, wanted: api.TargetIn) -> api.TargetOut:
        """Test the connection to a target and add it. It is watched from now on.

        A target that does not answer now is added all the same, since it may be started later. The health in the
        answer then has the reason.

        Raises:
            InvalidInputError: the address is invalid or not allowed here, no installed collector reads this kind, or
                something else than a target of this kind answers there. The problem names the right root, if it is
                found.
            ConflictError: a target with this address is already watched.
        """
        _check_kind(wanted.kind)
        trouble = await self._trouble(wanted)
        url, host = self._allowed(wanted.url)
        new = NewTarget(
            url=url,
            name=wanted.name or _name(url, host),
            origin=TargetOrigin.API,
            kind=wanted.kind,
            labels=wanted.labels,
            ui_url=normalised_url(wanted.ui_url, field="ui_url")[0] if wanted.ui_url else None,
            link_templates=[link.model_dump() for link in wanted.links],
            connection=self._options(wanted.connection, url),
            interval_s=wanted.interval_s,
            is_enabled=wanted.is_enabled,
        )
        added = target_out(await self._targets.add(new, at=self._clock.now()))
        return added.model_copy(update={"health": added.health.model_copy(update={"reason": trouble})})

    async def change(self, target_id: str, patch: api.TargetPatch, *, version: str | None = None) -> api.TargetOut:
        """Change the fields that the patch contains. With a ``version``, only if the target still has it.

        Raises:
            InvalidInputError: the address of the web UI, the connection or the interval is invalid or not allowed.
            UnknownEntityError: there is no target with this id.
            ConflictError: the target, or the links whose version the patch names, were changed since; or a file or a
                discovery declares the target.
        """
        known = await self._targets.get(target_id)
        await self._must_not_be_declared(known)
        # The address is for browsers. This service never connects to it, so the allow-list does not apply.
        ui_url = normalised_url(patch.ui_url, field="ui_url")[0] if patch.ui_url else patch.ui_url
        changed = await self._targets.change(
            target_id,
            name=patch.name or None,
            labels=patch.labels,
            is_enabled=patch.is_enabled,
            ui_url=ui_url,
            link_templates=None if patch.links is None else [link.model_dump() for link in patch.links],
            links_version=patch.links_version,
            options=self._changed_options(patch.connection, known),
            interval_s=_interval(patch.interval_s),
            version=version,
        )
        return target_out(changed)

    async def remove(self, target_id: str, *, version: str | None = None) -> None:
        """Stop watching a target. Its history stays until retention deletes it.

        With a ``version``, it is removed only if it still has it.

        Raises:
            UnknownEntityError: there is no target with this id.
            ConflictError: the target was changed since; or a file or a discovery declares it.
        """
        await self._must_not_be_declared(await self._targets.get(target_id))
        await self._targets.remove(target_id, at=self._clock.now(), version=version)

    async def test(self, wanted: api.TargetIn) -> api.TargetTestOut:
        """Test the connection to a target once. Nothing is stored.

        Raises:
            InvalidInputError: the address is invalid or not allowed here.
        """
        began_s = time.perf_counter()
        try:
            answer = await self._probed(wanted)
        except UpstreamError as error:
            root = error.root if isinstance(error, WrongRootError) else None
            failure = _failure(error)
            return api.TargetTestOut(
                is_ok=False,
                problem=str(error),
                failure=failure,
                # The right root is in the problem, and is all that has to be done.
                cure=CURES[failure] if root is None else None,
                root=root,
                duration_ms=_since_ms(began_s),
            )
        return api.TargetTestOut(
            is_ok=True,
            engine=answer.engine.kind,
            engine_version=answer.version,
            running_jobs=list(answer.running_jobs),
            summary=answer.summary,
            duration_ms=_since_ms(began_s),
        )

    async def _probed(self, wanted: api.TargetIn) -> ProbeAnswer:
        """Test the connection to a target. The address of a page of its web UI is taken for that of its root.

        Raises:
            InvalidInputError: the address is invalid or not allowed here.
            WrongRootError: the target answers at another path.
            UpstreamError: the connection cannot be made, or something else answers.
        """
        root = without_page(wanted.url)
        url, _ = self._allowed(wanted.url if root is None else root)
        reach = self._limits.towards(self._options(wanted.connection, url), TargetOrigin.API)
        try:
            answer = await self._probe(url, _PROBE_TIMEOUT_S, kind=wanted.kind, reach=reach)
        except WrongRootError:
            raise
        except TargetProtocolError:
            # If nothing is found, an address that is no page is refused for its form.
            self._allowed(wanted.url)
            raise
        if root is not None:
            raise page_error(wanted.url, url)
        return answer

    async def _trouble(self, wanted: api.TargetIn) -> str | None:
        """Return why a target that may be added does not answer now, or None if it does. This raises as ``add``."""
        try:
            await self._probed(wanted)
        except TargetProtocolError as error:
            if not _may_pass(error):
                text = str(error)
                if not isinstance(error, WrongRootError):
                    text += f"; this is not the root of a target of kind {wanted.kind!r}, and none was found near it"
                raise InvalidInputError([FieldProblem("url", text)], what="target") from None
            return str(error)
        except UpstreamError as error:
            return str(error)
        return None

    async def _heard(self, targets: list[TargetRecord]) -> list[TargetRecord]:
        async with reading(self._engine) as connection:
            return await hear(connection, targets, self._clock.now())

    def _options(self, document: ConnectionDoc | None, url: str) -> ConnectionOptions:
        """Return the options of a connection to ``url``, if all of them are allowed.

        Raises:
            InvalidInputError: they contradict each other, a reference is not allowed here, or the proxy is not.
        """
        if document is None:
            return PLAIN
        options = document.options()
        problems = [FieldProblem(f"connection.{p.field}", p.problem, p.allowed) for p in problems_of(options, url)]
        if (half := document.half_proxy()) is not None:
            problems.append(FieldProblem(f"connection.proxy.{half}", "is missing", "both user and password, or none"))
        for name, reference in options.references:
            if (refusal := self._limits.policy.refusal(reference)) is not None:
                problems.append(FieldProblem(f"connection.{name}", refusal))
        if problems:
            raise InvalidInputError(problems, what="target")
        if options.proxy is not None:
            check_host(self._limits.rules, urlsplit(options.proxy.url).hostname or "", field="connection.proxy.url")
        return options

    def _changed_options(self, document: ConnectionDoc | None, known: TargetRecord) -> ConnectionOptions | None:
        """Return the options to set, or None. A target of the operator has no limits, so it gets none from the API."""
        options = None if document is None else self._options(document, known.url)
        if options not in (None, PLAIN) and known.origin.has_operators_credentials:
            problem = f"is not changed through the API, because the operator chose the address of {known.name}"
            raise InvalidInputError([FieldProblem("connection", problem, "{}, which removes it")], what="target")
        return options

    async def _must_not_be_declared(self, target: TargetRecord) -> None:
        place = (await self._places([target])).get(target.declared_by or "")
        if place is not None:
            text = f"{target.name} is declared by {target.declared_by} ({place}): change it there"
            raise ConflictError(text, kind="target-declared")

    async def _places(self, targets: Sequence[TargetRecord]) -> Mapping[str, str]:
        """Return where each source of these targets is read. A source that no collector looks at is left out."""
        if all(target.declared_by is None for target in targets):
            return {}
        since = self._clock.now() - FORGOTTEN_AFTER
        async with reading(self._engine) as connection:
            return {s.source: s.place for s in await list_sources(connection) if s.seen_at >= since}

    def _allowed(self, text: str) -> tuple[str, str]:
        url, host = normalised_url(text)
        check_host(self._limits.rules, host)
        return url, host


def _check_kind(kind: str) -> None:
    installed = metadata.entry_points(group=COLLECTOR_GROUP).names
    if kind not in installed:
        problem = f"no collector for targets of kind {kind!r} is installed"
        raise InvalidInputError([FieldProblem("kind", problem, ", ".join(sorted(installed)))], what="target")


def _may_pass(error: TargetProtocolError) -> bool:
    """Return whether the target may answer later without another address: its server or its proxy fails now."""
    return (error.status or 0) >= _SERVER_ERROR


def _interval(value: float | None) -> float | None:
    if value is not None and 0 < value < INTERVAL_MIN_S:
        problem = FieldProblem("interval_s", f"{value:g} is out of bounds", f"0, or {INTERVAL_MIN_S:g} to 3600")
        raise InvalidInputError([problem], what="target")
    return value


def _failure(error: UpstreamError) -> ConnectionFailure:
    found = getattr(error, "failure", None)
    return found if isinstance(found, ConnectionFailure) else ConnectionFailure.NO_CONNECTION


def _since_ms(began_s: float) -> int:
    return round((time.perf_counter() - began_s) * 1000)


def _name(url: str, host: str) -> str:
    return url.partition("://")[2] or host


def target_out(record: TargetRecord, places: Mapping[str, str] = MappingProxyType({})) -> api.TargetOut:
    """Convert a target, with the health and the cost of its polls, to the API's shape.

    ``places`` has where the sources of declared targets are read.
    """
    # The poll interval is known only from the second poll on, so the cost is shown only from then on.
    is_measured = record.cost is not None and record.cost.poll_interval_s is not None
    return api.TargetOut.of(
        record,
        health=api.TargetHealthOut.of(record),
        cost=record.cost if is_measured else None,
        declared_at=places.get(record.declared_by or ""),
        links=[LinkTemplate.model_construct(name=link["name"], url=link["url"]) for link in record.link_templates],
        links_version=version_of(record.ui_url, record.link_templates),
        version=record.version,
        connection=None if record.connection == PLAIN else ConnectionDoc.of_options(record.connection),
    )
