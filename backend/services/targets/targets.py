"""Targets: list, add, test, change and remove them; and decide which addresses are allowed.

An address given through the API is trusted while only this machine can reach the API. Otherwise it must be on the
allow-list, which holds host names and networks. Names are not resolved for this check, because they can resolve to
another address a moment later.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast
from urllib.parse import urlsplit, urlunsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts import api
from backend.domain.clock import Clock
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import FieldProblem, InvalidInputError, UpstreamError
from backend.domain.target import TargetOrigin
from backend.services.jobs.silent_jobs import hear
from backend.services.paging import decode_cursor, page_of
from backend.store.postgres.connections import reading
from backend.store.targets.targets import NewTarget, TargetRecord, TargetRepository

_PORTS = {"http": 80, "https": 443}
_PROBE_TIMEOUT_S = 8.0


class ProbeAnswer(Protocol):
    """A target's answer to a test connection."""

    @property
    def engine(self) -> EngineCapabilities:
        """The target's engine."""
        ...

    @property
    def version(self) -> str | None:
        """The engine's version."""
        ...

    @property
    def running_jobs(self) -> Sequence[str]:
        """Names of the running jobs."""
        ...


class Probe(Protocol):
    """Tests the connection to a target at ``url`` with the collector for its ``kind``."""

    async def __call__(self, url: str, timeout_s: float, *, kind: str) -> ProbeAnswer:
        """Raise ``UpstreamError`` if the answer is not one of its kind, or if no collector reads that kind."""
        ...


@dataclass(frozen=True, slots=True)
class TargetRules:
    """Allowed addresses: all (only if the API listens on loopback), or these names and networks."""

    is_everything_allowed: bool
    allowed: tuple[str, ...] = ()

    def check(self, host: str, *, what: str = "target") -> None:
        """Raise ``InvalidInputError`` if ``host`` is not allowed."""
        if self.is_everything_allowed or any(_fits(host, entry) for entry in self.allowed):
            return
        allowed = ", ".join(self.allowed) or f"none: BARRIERSCOPE_ALLOWED_{what.upper()}S is empty"
        raise InvalidInputError([FieldProblem("url", f"the host {host!r} is not allowed here", allowed)], what=what)


def _fits(host: str, entry: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name, wanted = host.lower().rstrip("."), entry.lower()
        return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def normalised_url(text: str, *, what: str = "target") -> tuple[str, str]:
    """Return the address as it is stored and compared, and its host.

    Raises:
        InvalidInputError: it is not a valid address; the error does not repeat it, since it may hold credentials.

    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused("is not an address", what) from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise _refused("has no scheme" if not scheme else f"has the scheme {scheme[:20]!r}", what)
    if not host:
        raise _refused("has no host", what)
    if parts.username is not None or parts.password is not None:
        raise _refused("holds credentials, which would be stored in plain text", what)
    if parts.query or parts.fragment:
        raise _refused("has a query or fragment", what)
    if any(c.isspace() or not c.isprintable() for c in text.strip()):
        raise _refused("holds a space or a control character", what)
    shown = f"[{host}]" if ":" in host else host
    where = shown if port is None or port == _PORTS[scheme] else f"{shown}:{port}"
    return urlunsplit((scheme, where, parts.path.rstrip("/"), "", "")), host


def _refused(problem: str, what: str) -> InvalidInputError:
    allowed = "http:// or https:// with a host, without credentials, query and fragment"
    return InvalidInputError([FieldProblem("url", problem, allowed)], what=what)


class TargetService:
    """Answers requests about targets."""

    def __init__(self, engine: AsyncEngine, clock: Clock, rules: TargetRules, probe: Probe) -> None:
        self._engine = engine
        self._targets = TargetRepository(engine)
        self._clock = clock
        self._rules = rules
        self._probe = probe

    async def page(self, *, cursor: str | None, limit: int) -> api.Page[api.TargetOut]:
        """Return one page of targets, oldest first.

        Raises:
            InvalidInputError: the cursor does not belong to this list.

        """
        after = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        # There are at most tens of targets: one query reads them all.
        known = await self._heard(await self._targets.list_all())
        rows = [r for r in known if after is None or (r.added_at, r.id) > after]
        items, following = page_of(rows[: limit + 1], limit, lambda r: (r.added_at, r.id))
        return api.Page[api.TargetOut](items=[target_out(r) for r in items], next=following, as_of=self._clock.now())

    async def get(self, target_id: str) -> api.TargetOut:
        """Return one target.

        Raises:
            UnknownEntityError: there is no such id.

        """
        (found,) = await self._heard([await self._targets.get(target_id)])
        return target_out(found)

    async def add(self, wanted: api.TargetIn) -> api.TargetOut:
        """Add a target, which is watched from now on.

        Raises:
            InvalidInputError: its address is invalid or not allowed here.
            ConflictError: it is already watched.

        """
        url, host = self._allowed(wanted.url)
        new = NewTarget(
            url=url,
            name=wanted.name or _name(url, host),
            origin=TargetOrigin.API,
            kind=wanted.kind,
            labels=wanted.labels,
        )
        return target_out(await self._targets.add(new, at=self._clock.now()))

    async def change(self, target_id: str, patch: api.TargetPatch) -> api.TargetOut:
        """Change the fields that the patch contains.

        Raises:
            UnknownEntityError: there is no such id.

        """
        changed = await self._targets.change(
            target_id, name=patch.name or None, labels=patch.labels, is_enabled=patch.is_enabled
        )
        return target_out(changed)

    async def remove(self, target_id: str) -> None:
        """Stop watching a target; its history stays until retention deletes it.

        Raises:
            UnknownEntityError: there is no such id.

        """
        await self._targets.remove(target_id, at=self._clock.now())

    async def test(self, wanted: api.TargetIn) -> api.TargetTestOut:
        """Test the connection to a target once; nothing is stored.

        Raises:
            InvalidInputError: its address is invalid or not allowed here.

        """
        url, _ = self._allowed(wanted.url)
        began_s = time.perf_counter()
        try:
            answer = await self._probe(url, _PROBE_TIMEOUT_S, kind=wanted.kind)
        except UpstreamError as error:
            return api.TargetTestOut(is_ok=False, problem=str(error), duration_ms=_since_ms(began_s))
        return api.TargetTestOut(
            is_ok=True,
            engine=answer.engine.kind,
            engine_version=answer.version,
            running_jobs=list(answer.running_jobs),
            duration_ms=_since_ms(began_s),
        )

    async def _heard(self, targets: list[TargetRecord]) -> list[TargetRecord]:
        async with reading(self._engine) as connection:
            return await hear(connection, targets, self._clock.now())

    def _allowed(self, text: str) -> tuple[str, str]:
        url, host = normalised_url(text)
        self._rules.check(host)
        return url, host


def _since_ms(began_s: float) -> int:
    return round((time.perf_counter() - began_s) * 1000)


def _name(url: str, host: str) -> str:
    return url.partition("://")[2] or host


def target_out(record: TargetRecord) -> api.TargetOut:
    """Convert a target, with the health and cost of its polls."""
    # The cost is shown from the second poll on: one poll has no interval.
    is_measured = record.cost is not None and record.cost.poll_interval_s is not None
    return api.TargetOut.of(record, health=api.TargetHealthOut.of(record), cost=record.cost if is_measured else None)
