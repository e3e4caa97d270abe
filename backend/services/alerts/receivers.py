"""Receivers: where alerts are sent, added, tried and removed; and which addresses may be sent to at all.

Addresses given through the API are held to the same rules as targets: trusted while only this machine can reach the
API, else on an allow-list. A credential is only ever referred to.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import cast
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.alerting.labels import AlertId, fingerprint
from backend.alerting.lifecycle import Alert, AlertState, Identity, Reading, ReadingKind
from backend.alerting.payloads import Json, Links, for_alertmanager, for_webhook
from backend.contracts import alerts as wire
from backend.contracts import api
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError, FieldProblem, InvalidInputError
from backend.notify.addresses import holds_secret, host_of_secret, is_reference, shown_url
from backend.notify.sender import Address, Sender
from backend.services.alerts.deliveries import alertmanager_url
from backend.services.paging import decode_cursor, page_of
from backend.services.targets.targets import TargetRules, normalised_url
from backend.store.alerts.deliveries import due_counts
from backend.store.alerts.receivers import (
    Receiver,
    ReceiverKind,
    ReceiverOrigin,
    add_receiver,
    get_receiver,
    list_receivers,
    remove_receiver,
)
from backend.store.postgres.connections import reading, writing

_CREDENTIAL = re.compile(r"env:BARRIERSCOPE_SECRET_[A-Z0-9_]{1,100}|file:[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_URL_ALLOWED = (
    "http:// or https:// with a host and a path that is not secret. If the path or query of a webhook is secret, a"
    " reference to the whole address: env:BARRIERSCOPE_SECRET_NAME, a variable of the roles alert and api, or file:NAME"
    " in BARRIERSCOPE_SECRETS_DIR"
)
_CREDENTIAL_ALLOWED = (
    "a reference to the bearer token: env:BARRIERSCOPE_SECRET_NAME, a variable of the roles alert and api, or file:NAME"
    " in BARRIERSCOPE_SECRETS_DIR; never the token itself"
)


class ReceiverService:
    """Answers for receivers."""

    def __init__(self, engine: AsyncEngine, clock: Clock, rules: TargetRules, sender: Sender, links: Links) -> None:
        self._engine = engine
        self._clock = clock
        self._rules = rules
        self._sender = sender
        self._links = links

    async def page(self, *, cursor: str | None, limit: int) -> api.Page[wire.ReceiverOut]:
        """Receivers, oldest first.

        Raises:
            InvalidInputError: the cursor is none of this list.

        """
        after = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        async with reading(self._engine) as connection:
            rows = [r for r in await list_receivers(connection) if after is None or (r.added_at, r.id) > after]
            due = await due_counts(connection)
        items, following = page_of(rows[: limit + 1], limit, lambda r: (r.added_at, r.id))
        shown = [_out(r, due.get(r.id, 0)) for r in items]
        return api.Page[wire.ReceiverOut](items=shown, next=following, as_of=self._clock.now())

    async def add(self, wanted: wire.ReceiverIn) -> wire.ReceiverOut:
        """Send to it from now on, also what fires already.

        Raises:
            InvalidInputError: its address is none or not allowed here, or the credential is no reference.
            ConflictError: one is called so already.

        """
        url, host = self._address(wanted)
        self._rules.check(host, what="receiver")
        _check_credential(wanted.credential)
        receiver = new_receiver(wanted.name, wanted.kind, url, wanted.credential, "api", self._clock.now())
        async with writing(self._engine) as connection:
            await add_receiver(connection, receiver)
        return _out(receiver, 0)

    def _address(self, wanted: wire.ReceiverIn) -> tuple[str, str]:
        """What is stored of its address, and the host."""
        if not is_reference(wanted.url.strip()):
            url, host = normalised_url(wanted.url, what="receiver")
            if holds_secret(url):
                raise _refused("url", "has a path that looks secret, and would be stored readable", _URL_ALLOWED)
            return url, host
        reference = wanted.url.strip()
        if wanted.kind != "webhook" or not _CREDENTIAL.fullmatch(reference):
            raise _refused("url", "is no address, nor where a webhook's is found", _URL_ALLOWED)
        found = host_of_secret(self._sender.address_at(reference))
        if found is None:
            raise _refused("url", f"there is no http(s) address at {reference}", _URL_ALLOWED)
        return reference, found

    async def remove(self, receiver_id: str) -> None:
        """Send it nothing any more.

        Raises:
            UnknownEntityError: there is none of this id.

        """
        async with writing(self._engine) as connection:
            await remove_receiver(connection, receiver_id, at=self._clock.now())

    async def test(self, receiver_id: str) -> wire.ReceiverTestOut:
        """Send a test message once; nothing is stored.

        Raises:
            UnknownEntityError: there is none of this id.

        """
        async with reading(self._engine) as connection:
            receiver = await get_receiver(connection, receiver_id)
        now = self._clock.now()
        alert = _test_alert(now)
        body: Json | list[Json]
        if receiver.kind == "alertmanager":
            # It is over as it begins: the receiver shows that it takes alerts, and pages nobody for long.
            url, body = alertmanager_url(receiver.url), [for_alertmanager(alert, self._links, ends_at=now)]
        else:
            url, body = receiver.url, for_webhook(alert, self._links, is_firing=False, receiver=receiver.name)
        sent = await self._sender.post(Address(url, receiver.credential), body)
        return wire.ReceiverTestOut.model_validate(sent)


async def watch_configured(engine: AsyncEngine, clock: Clock, urls: Sequence[str]) -> None:
    """Make the Alertmanagers of the configuration the receivers of that origin, no more and no fewer.

    Raises:
        InvalidInputError: an address is none.
        StoreUnavailableError: PostgreSQL is away.

    """
    wanted = {normalised_url(url, what="receiver")[0] for url in urls}
    async with writing(engine) as connection:
        known = [r for r in await list_receivers(connection) if r.origin == "configuration"]
        for receiver in known:
            if receiver.url not in wanted:
                await remove_receiver(connection, receiver.id, at=clock.now())
        for url in sorted(wanted - {r.url for r in known}):
            name = f"alertmanager {urlsplit(url).netloc}"
            try:
                async with connection.begin_nested():
                    await add_receiver(
                        connection, new_receiver(name, "alertmanager", url, None, "configuration", clock.now())
                    )
            except ConflictError:
                # Somebody added it by hand under that name, or another process this moment.
                continue


def new_receiver(
    name: str, kind: ReceiverKind, url: str, credential: str | None, origin: ReceiverOrigin, at: datetime
) -> Receiver:
    """A receiver with an id of its own."""
    return Receiver("w" + secrets.token_hex(8), name.strip() or shown_url(url), kind, url, credential, origin, at)


def _check_credential(reference: str | None) -> None:
    if reference is not None and not _CREDENTIAL.fullmatch(reference):
        # What was given may be the credential itself: it is not repeated.
        raise _refused("credential", "is no reference to a credential", _CREDENTIAL_ALLOWED)


def _refused(field: str, problem: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(field, problem, allowed)], what="receiver")


def _test_alert(now: datetime) -> Alert:
    labels = {"alertname": "BarrierscopeTest", "severity": "none"}
    words = {
        "summary": "A test message of Barrierscope",
        "description": "Nothing is wrong: this message tests the delivery.",
    }
    return Alert(
        id=AlertId("atest"),
        identity=Identity("Watchdog", "none", fingerprint(labels), labels),
        state=AlertState.RESOLVED,
        began_at=now,
        changed_at=now,
        evaluated_at=now,
        reading=Reading(ReadingKind.CLEAR, "a test", annotations=words),
        fired_at=now,
        ended_at=now,
    )


def _out(receiver: Receiver, due_count: int) -> wire.ReceiverOut:
    return wire.ReceiverOut.of(receiver, url=shown_url(receiver.url), due_count=due_count)
