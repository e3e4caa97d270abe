"""Delivers messages about alerts to their receivers: at least once, in order, with back-off. Logs every attempt.

The messages to deliver are in an outbox in PostgreSQL. Receivers are served concurrently, so a slow one does not
delay the others.

A firing alert is sent to Alertmanager again and again, before Alertmanager's resolve timeout ends. While PostgreSQL
is unreachable, the alert is sent from memory, because it must not seem resolved only because this service cannot read
its own state.

At least once can mean twice: a process can terminate after a receiver accepted a message and before the acceptance is
recorded. The next process sends the message again, with the same ``Idempotency-Key`` (episode and kind).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.alerting.delivery import DeliveryKind, ReceiverOrigin
from backend.alerting.lifecycle import Alert, AlertState
from backend.alerting.payloads import Links
from backend.domain.clock import Clock
from backend.domain.receivers import TRAITS
from backend.metrics.registry import counter
from backend.notify.kinds.port import Destination, Message, Notice
from backend.notify.kinds.registry import KINDS
from backend.notify.sender import Sender, Sent
from backend.services.alerts.actions import with_actions
from backend.store.alerts import deliveries
from backend.store.alerts.deliveries import Attempt, Claim
from backend.store.alerts.episodes import get_alerts, open_alerts
from backend.store.alerts.lease import Term, fence
from backend.store.alerts.receivers import Receiver, list_receivers
from backend.store.alerts.silences import silences_at
from backend.store.postgres.connections import reading, writing

_log = structlog.get_logger(__name__)

_SENT = counter(
    "barrierscope_alert_delivery_attempts",
    "Attempts to deliver a message to a receiver, by kind of receiver and result.",
    ("kind", "result"),
)

RESOLUTION_KEPT: Final = timedelta(days=3)
"""A message that its receiver has not accepted for this long is abandoned. The delivery log records that."""

_BATCH = 100
# How often the store is read within ``resend_s`` to find the alerts that must be sent again.
_LOOKS_PER_RESEND = 6
# Alerts are sent from memory for at most this long, because another process may reach the store and have newer
# alerts.
_FROM_MEMORY_MAX = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Times in seconds. ``resend_s`` is well below Alertmanager's resolve timeout of five minutes."""

    resend_s: float = 60.0
    backoff_first_s: float = 2.0
    backoff_most_s: float = 300.0
    claim_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The firing alerts that each receiver that is sent them again had accepted at the last read, by receiver id."""

    read_at: datetime
    alerts: Mapping[str, tuple[Receiver, tuple[Alert, ...]]]


def no_failpoint(name: str) -> None:
    """Do nothing. Tests replace this function to terminate the process between two steps."""


class AlertDelivery:
    """Delivers due messages. Each process has one instance."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        sender: Sender,
        links: Links,
        *,
        options: DeliveryOptions | None = None,
        random: Callable[[], float] = lambda: 0.5,
        failpoint: Callable[[str], None] = no_failpoint,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sender = sender
        self._links = links
        self._options = options or DeliveryOptions()
        self._random = random
        self._failpoint = failpoint
        self._accepted: _Accepted | None = None
        self._has_delivered = False
        self._unrecorded: dict[int, tuple[Claim, Attempt, datetime]] = {}
        self._resent_from_memory_at: datetime | None = None

    async def deliver_due(self, term: Term) -> int:
        """Attempt to deliver every due message once. Return how many messages the receivers accepted.

        Raises:
            LeadershipLostError: another process delivers now.
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now = self._clock.now()
        await self._write_outcomes()
        async with reading(self._engine) as connection:
            if not await deliveries.is_any_due(connection, now):
                return 0
        async with writing(self._engine) as connection:
            await fence(connection, term)
            silences = await silences_at(connection, now)
            opened = await open_alerts(connection) if silences else []
            silenced = [a.id for a in opened if any(s.hides(a.identity.matched, now) for s in silences)]
            await deliveries.abandon(connection, added_before=now - RESOLUTION_KEPT)
            claimed = await deliveries.claim(
                connection,
                silenced=silenced,
                now=now,
                retry_after=timedelta(seconds=self._options.claim_s),
                limit=_BATCH,
            )
            alerts = await with_actions(connection, await get_alerts(connection, [c.alert_id for c in claimed]))
            receivers = {r.id: r for r in await list_receivers(connection)}
        self._failpoint("claimed")
        taken: list[int] = []
        async with anyio.create_task_group() as group:
            for receiver_id in dict.fromkeys(c.receiver_id for c in claimed):
                own = [(c, alerts[c.alert_id]) for c in claimed if c.receiver_id == receiver_id]
                group.start_soon(self._serve, receivers[receiver_id], own, taken)
        return sum(taken)

    async def _serve(self, receiver: Receiver, claimed: Sequence[tuple[Claim, Alert]], taken: list[int]) -> None:
        groups = [claimed] if TRAITS[receiver.kind].is_sent_again else [[c] for c in claimed]
        deadline_s = self._clock.monotonic_s() + self._options.claim_s / 2
        for group in groups:
            # Stop serving a slow receiver for now, before the claims on its remaining messages expire.
            if self._clock.monotonic_s() > deadline_s:
                return
            at = self._clock.now()
            sent = await self._send(receiver, [Notice(alert, claim.kind) for claim, alert in group], at)
            self._failpoint("sent")
            for claim, _ in group:
                taken.append(await self._record(receiver, claim, at, sent))
            self._failpoint("recorded")

    async def _write_outcomes(self) -> None:
        """Store the outcomes that are not stored yet, such as those that arrived while the store was unreachable."""
        for delivery_id, (claim, attempt, next_at) in list(self._unrecorded.items()):
            async with writing(self._engine) as connection:
                await deliveries.record(connection, claim, attempt, next_attempt_at=next_at)
            self._unrecorded.pop(delivery_id, None)

    async def _send(self, receiver: Receiver, notices: Sequence[Notice], at: datetime) -> Sent:
        message = message_to(receiver, notices, self._links, now=at, resend_s=self._options.resend_s)
        return await post_to(receiver, message, self._sender)

    async def _send_again(self, receiver: Receiver, alerts: Sequence[Alert], at: datetime) -> Sent:
        return await self._send(receiver, [Notice(alert, DeliveryKind.FIRING) for alert in alerts], at)

    async def _record(self, receiver: Receiver, claim: Claim, at: datetime, sent: Sent) -> bool:
        attempt = Attempt(claim.number, at, sent.duration_ms, sent.is_ok, sent.result)
        pause_s = self._backoff_s(claim.number)
        next_at = self._clock.now() + timedelta(seconds=pause_s)
        self._unrecorded[claim.delivery_id] = (claim, attempt, next_at)
        self._has_delivered |= sent.is_ok
        _SENT.labels(receiver.kind.value, "accepted" if sent.is_ok else "failed").inc()
        await self._write_outcomes()
        if not sent.is_ok:
            _log.warning(
                "alert not delivered yet",
                receiver=receiver.name,
                alert=claim.alert_id,
                kind=claim.kind,
                attempt=claim.number,
                result=sent.result,
                retry_in_s=round(pause_s, 1),
            )
        return sent.is_ok

    def _backoff_s(self, number: int) -> float:
        # Half of the pause is random, so that messages that failed at the same time are retried at different times.
        full = min(self._options.backoff_most_s, self._options.backoff_first_s * 2.0 ** min(number - 1, 30))
        return full * (0.5 + 0.5 * self._random())

    # --- sending firing alerts again ------------------------------------------------------------------------------

    async def resend(self, term: Term) -> int:
        """Send firing alerts again to each receiver that needs it and last got them at least ``resend_s`` seconds ago.

        Return how many alerts were accepted.

        Raises:
            LeadershipLostError: another process delivers now.
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now = self._clock.now()
        last = self._accepted
        look_after = timedelta(seconds=self._options.resend_s / _LOOKS_PER_RESEND)
        if last is not None and not self._has_delivered and timedelta() <= now - last.read_at < look_after:
            return 0
        async with reading(self._engine) as connection:
            await fence(connection, term)
            accepted = await deliveries.accepted_to_send_again(connection)
            stored_alerts = await get_alerts(connection, [alert_id for _, alert_id, _, _ in accepted])
            alerts = await with_actions(connection, stored_alerts)
            receivers = {r.id: r for r in await list_receivers(connection)}
        self._accepted, self._has_delivered = _Accepted(now, _by_receiver(accepted, alerts, receivers)), False
        count = 0
        for receiver_id in dict.fromkeys(r for _, _, r, _ in accepted):
            own = [(i, alerts[a]) for i, a, r, at in accepted if r == receiver_id and self._is_time(at, now)]
            if not own:
                continue
            sent = await self._send_again(receivers[receiver_id], [a for _, a in own], now)
            if not sent.is_ok:
                # There is no back-off: each further round tries again, until the receiver accepts the alerts.
                _log.warning("alerts not sent again", receiver=receivers[receiver_id].name, result=sent.result)
                continue
            async with writing(self._engine) as connection:
                await fence(connection, term)
                await deliveries.note_resent(connection, [i for i, _ in own], at=now)
            count += len(own)
        return count

    async def resend_from_memory(self) -> int:
        """Send again the alerts that were firing when the store was last read. Return how many were accepted.

        Without this, the receivers would resolve these alerts while the store is unreachable.
        """
        now, accepted = self._clock.now(), self._accepted
        last = self._resent_from_memory_at
        if (
            accepted is None
            or now - accepted.read_at > _FROM_MEMORY_MAX
            or (last is not None and not self._is_time(last, now))
        ):
            return 0
        self._resent_from_memory_at = now
        count = 0
        for receiver, alerts in accepted.alerts.values():
            sent = await self._send_again(receiver, alerts, now)
            count += len(alerts) if sent.is_ok else 0
        return count

    def forget(self) -> None:
        """Discard the alerts in memory, because another process delivers now."""
        self._accepted = None

    def _is_time(self, last: datetime, now: datetime) -> bool:
        return now - last >= timedelta(seconds=self._options.resend_s)


def message_to(
    receiver: Receiver, notices: Sequence[Notice], links: Links, *, now: datetime, resend_s: float
) -> Message:
    """Return the message that reports ``notices`` to ``receiver``."""
    to = Destination(receiver.name, receiver.url, links, now, resend_s)
    return KINDS[receiver.kind].message(notices, to)


async def post_to(receiver: Receiver, message: Message, sender: Sender) -> Sent:
    """Send a message to ``receiver``. The allow-list does not apply to configured receivers."""
    is_configured = receiver.origin is ReceiverOrigin.CONFIGURATION
    return await sender.post(message, credential=receiver.credential, is_configured=is_configured)


def _by_receiver(
    accepted: Sequence[tuple[int, str, str, datetime]], alerts: Mapping[str, Alert], receivers: Mapping[str, Receiver]
) -> dict[str, tuple[Receiver, tuple[Alert, ...]]]:
    found: dict[str, list[Alert]] = {}
    for _, alert_id, receiver_id, _ in accepted:
        if alerts[alert_id].state is AlertState.FIRING:
            found.setdefault(receiver_id, []).append(alerts[alert_id])
    return {r: (receivers[r], tuple(own)) for r, own in found.items()}
