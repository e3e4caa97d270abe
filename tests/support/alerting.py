"""The evaluator, delivery and runner of the alert role, with a real store and a clock that the test advances."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.alerting.delivery import ReceiverOrigin
from backend.alerting.payloads import Links
from backend.alerting.rules import RuleChange, changed
from backend.domain.address_rules import EVERYWHERE
from backend.domain.receivers import ReceiverKind
from backend.notify.sender import Sender
from backend.services.alerts.deliveries import AlertDelivery, DeliveryOptions, no_failpoint
from backend.services.alerts.evaluation import AlertEvaluator
from backend.services.alerts.receivers import new_receiver
from backend.services.alerts.running import AlertRunner
from backend.services.alerts.signals import SignalReader
from backend.services.jobs.evidence import EvidenceReader
from backend.store.alerts.receivers import Receiver, add_receiver
from backend.store.alerts.rules import rules_in_force, save_rule
from backend.store.postgres.connections import writing
from backend.store.schema.partitions import Retention
from tests.support.observations import NOW, SteppingClock

BASE_URL = "https://barrierscope.example"


class Alerting:
    """One run of the alert role. To restart the role, create another instance over the same store."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: SteppingClock,
        *,
        holder: str = "one",
        secrets: Callable[[str], str | None] = lambda reference: None,
        failpoint: Callable[[str], None] = no_failpoint,
        options: DeliveryOptions | None = None,
        timeout_s: float = 5.0,
        retention: Retention | None = None,
    ) -> None:
        self.engine, self.clock = engine, clock
        self.sender = Sender(secrets, EVERYWHERE, timeout_s=timeout_s)
        self.evaluator = AlertEvaluator(engine, clock, SignalReader(engine, clock, EvidenceReader(clock), retention))
        self.delivery = AlertDelivery(
            engine, clock, self.sender, Links(BASE_URL), options=options, random=lambda: 1.0, failpoint=failpoint
        )
        self.runner = AlertRunner(engine, clock, self.evaluator, self.delivery, holder=holder)

    async def round(self, *, seconds: float = 5.0) -> None:
        """Advance the clock by ``seconds``, evaluate the rules once, and deliver the messages that are due."""
        self.clock.at += timedelta(seconds=seconds)
        await self.runner.evaluate_once()
        await self.runner.deliver_once()


async def receiver_at(
    engine: AsyncEngine,
    clock: SteppingClock,
    url: str,
    *,
    kind: ReceiverKind = ReceiverKind.WEBHOOK,
    name: str = "on-call",
) -> Receiver:
    """Store a receiver with this URL, and return it."""
    receiver = new_receiver(name, kind, url, None, ReceiverOrigin.API, clock.now())
    async with writing(engine) as connection:
        await add_receiver(connection, receiver)
    return receiver


async def rows(engine: AsyncEngine, query: str) -> list[tuple]:
    """Return the rows that a query selects."""
    async with engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


async def switch_off_rules_but(engine: AsyncEngine, *kept: str) -> None:
    """Disable all rules except ``kept``, because the other rules would fire too."""
    async with writing(engine) as connection:
        for settings in await rules_in_force(connection):
            if settings.rule.name not in kept:
                await save_rule(connection, changed(settings, RuleChange(is_enabled=False)), at=NOW)
