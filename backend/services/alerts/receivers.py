"""Lists, adds, tests and removes receivers of alerts, and decides which of their addresses are allowed.

Addresses that come through the API follow the same rules as those of targets. All addresses are trusted while only
this machine can reach the API; otherwise an address must be on an allow-list. A credential is stored as a reference,
never as its value.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.alerting.delivery import DeliveryKind, ReceiverOrigin
from backend.alerting.labels import AlertId, fingerprint
from backend.alerting.lifecycle import Alert, AlertState, Identity, Reading, ReadingKind
from backend.alerting.payloads import Links
from backend.contracts import alerts as wire
from backend.contracts import api
from backend.domain.address_rules import AddressRules
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError, FieldProblem, InvalidInputError
from backend.domain.receivers import TRAITS, ReceiverKind
from backend.domain.target_url import normalised_url
from backend.notify.addresses import holds_secret, host_of_secret, is_reference, shown_url
from backend.notify.kinds.port import Notice
from backend.notify.sender import Sender
from backend.services.alerts.deliveries import message_to, post_to
from backend.services.paging import decode_cursor, page_of
from backend.services.targets.targets import check_host
from backend.store.alerts.deliveries import due_counts
from backend.store.alerts.receivers import (
    Receiver,
    add_receiver,
    get_receiver,
    list_receivers,
    remove_receiver,
)
from backend.store.postgres.connections import reading, writing

_CREDENTIAL = re.compile(r"env:BARRIERSCOPE_SECRET_[A-Z0-9_]{1,100}|file:[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_WITH_SECRETS = " or ".join(traits.noun for traits in TRAITS.values() if traits.has_secret_address)
_URL_ALLOWED = (
    f"http:// or https:// with a host and a path that is not secret. If the path or query of {_WITH_SECRETS} is secret,"
    " a reference to the whole address: env:BARRIERSCOPE_SECRET_NAME, a variable of the roles alert and api, or"
    " file:NAME in BARRIERSCOPE_SECRETS_DIR"
)
_CREDENTIAL_ALLOWED = (
    "a reference to the bearer token: env:BARRIERSCOPE_SECRET_NAME, a variable of the roles alert and api, or file:NAME"
    " in BARRIERSCOPE_SECRETS_DIR; never the token itself"
)


class ReceiverService:
    """Handles requests about receivers."""

    def __init__(self, engine: AsyncEngine, clock: Clock, rules: AddressRules, sender: Sender, links: Links) -> None:
        self._engine = engine
        self._clock = clock
        self._rules = rules
        self._sender = sender
        self._links = links

    async def page(self, *, cursor: str | None, limit: int) -> api.Page[wire.ReceiverOut]:
        """Return one page of receivers, oldest first.

        Raises:
            InvalidInputError: the cursor does not belong to this list.
        """
        after = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        async with reading(self._engine) as connection:
            rows = [r for r in await list_receivers(connection) if after is None or (r.added_at, r.id) > after]
            due = await due_counts(connection)
        items, following = page_of(rows[: limit + 1], limit, lambda r: (r.added_at, r.id))
        shown = [_out(r, due.get(r.id, 0)) for r in items]
        return api.Page[wire.ReceiverOut](items=shown, next=following, as_of=self._clock.now())

    async def add(self, wanted: wire.ReceiverIn) -> wire.ReceiverOut:
        """Add a receiver. The receiver also gets the alerts that are already firing.

        Raises:
            InvalidInputError: the address is invalid or not allowed here, or the credential is not a reference.
            ConflictError: a receiver with this name exists.
        """
        url, host = self._address(wanted)
        check_host(self._rules, host, what="receiver")
        _check_credential(wanted.credential)
        receiver = new_receiver(
            wanted.name, ReceiverKind(wanted.kind), url, wanted.credential, ReceiverOrigin.API, self._clock.now()
        )
        async with writing(self._engine) as connection:
            await add_receiver(connection, receiver)
        return _out(receiver, 0)

    def _address(self, wanted: wire.ReceiverIn) -> tuple[str, str]:
        """Return the address in the form in which it is stored, and its host.

        Raises:
            InvalidInputError: the address is invalid, or its path seems to contain a secret.
        """
        if not is_reference(wanted.url.strip()):
            url, host = normalised_url(wanted.url, what="receiver")
            if holds_secret(url):
                raise _refused("url", "has a path that looks secret and would be stored in plain text", _URL_ALLOWED)
            return url, host
        reference = wanted.url.strip()
        if not TRAITS[ReceiverKind(wanted.kind)].has_secret_address or not _CREDENTIAL.fullmatch(reference):
            problem = f"is neither an address nor a valid reference to {_WITH_SECRETS}'s address"
            raise _refused("url", problem, _URL_ALLOWED)
        hidden_host = host_of_secret(self._sender.address_at(reference))
        if hidden_host is None:
            raise _refused("url", f"refers to {reference}, which holds no http(s) address", _URL_ALLOWED)
        return reference, hidden_host

    async def remove(self, receiver_id: str) -> None:
        """Remove a receiver, so that no more messages are sent to it.

        Raises:
            UnknownEntityError: there is no receiver with this id.
        """
        async with writing(self._engine) as connection:
            await remove_receiver(connection, receiver_id, at=self._clock.now())

    async def test(self, receiver_id: str) -> wire.ReceiverTestOut:
        """Send a test message once. Nothing is stored.

        Raises:
            UnknownEntityError: there is no receiver with this id.
        """
        async with reading(self._engine) as connection:
            receiver = await get_receiver(connection, receiver_id)
        now = self._clock.now()
        # The test alert ends when it begins. So it shows that an Alertmanager accepts alerts, but usually notifies
        # nobody.
        resolved = Notice(_test_alert(now), DeliveryKind.RESOLVED)
        message = message_to(receiver, [resolved], self._links, now=now, resend_s=0.0)
        # Every test is a message of its own, so it has no key by which the receiver could ignore it.
        sent = await post_to(receiver, replace(message, key=None), self._sender)
        return wire.ReceiverTestOut.model_validate(sent)


async def watch_configured(engine: AsyncEngine, clock: Clock, urls: Sequence[str]) -> None:
    """Make the configured Alertmanagers the only receivers of origin ``configuration``.

    Raises:
        InvalidInputError: an address is invalid.
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    wanted = {normalised_url(url, what="receiver")[0] for url in urls}
    async with writing(engine) as connection:
        known = [r for r in await list_receivers(connection) if r.origin is ReceiverOrigin.CONFIGURATION]
        for receiver in known:
            if receiver.url not in wanted:
                await remove_receiver(connection, receiver.id, at=clock.now())
        for url in sorted(wanted - {r.url for r in known}):
            name = f"alertmanager {urlsplit(url).netloc}"
            try:
                async with connection.begin_nested():
                    new = new_receiver(
                        name, ReceiverKind.ALERTMANAGER, url, None, ReceiverOrigin.CONFIGURATION, clock.now()
                    )
                    await add_receiver(connection, new)
            except ConflictError:
                # A receiver with this name was added through the API, or by another process at the same time. It stays
                # unchanged.
                continue


def new_receiver(
    name: str, kind: ReceiverKind, url: str, credential: str | None, origin: ReceiverOrigin, at: datetime
) -> Receiver:
    """Return a receiver with a new id. If ``name`` is empty, its name is its address."""
    return Receiver("w" + secrets.token_hex(8), name.strip() or shown_url(url), kind, url, credential, origin, at)


def _check_credential(reference: str | None) -> None:
    if reference is not None and not _CREDENTIAL.fullmatch(reference):
        # The error does not repeat the value, because the value may be the credential itself.
        raise _refused("credential", "is not a reference to a credential", _CREDENTIAL_ALLOWED)


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
