"""The role ``alert``: takes the lease, evaluates and delivers concurrently, and releases the lease when it stops.

Any number of processes may have this role. One of them evaluates and delivers, and the others wait until its lease
ends. Delivery is a separate task, so a slow receiver never delays an evaluation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.clock import Clock
from backend.domain.errors import LeadershipLostError, StoreUnavailableError
from backend.metrics.registry import counter, gauge, histogram
from backend.services.alerts.deliveries import AlertDelivery
from backend.services.alerts.evaluation import AlertEvaluator
from backend.store.alerts.lease import Term, release_term, take_term

_log = structlog.get_logger(__name__)

_EVALUATION = histogram("barrierscope_alert_evaluation_duration_seconds", "The time that one evaluation took.")
_EVALUATED_AT = gauge(
    "barrierscope_alert_last_evaluation_timestamp_seconds",
    "When this process last evaluated the alert rules; 0 if it has not yet.",
)
_BROKEN = counter("barrierscope_alert_rounds_failed", "Rounds of alerting that ended with an unexpected error.")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Intervals in seconds.

    The lease lasts for several evaluations, so that it does not expire if one evaluation is late.
    """

    interval_s: float = 5.0
    delivery_interval_s: float = 1.0
    renewal_interval_s: float = 3.0
    """The lease is renewed this often, also during an evaluation, which may last longer than the lease."""

    @property
    def lease_ttl_s(self) -> float:
        """How long the lease lasts without being renewed."""
        return max(10.0, 3 * self.interval_s, 3 * self.renewal_interval_s)


class AlertRunner:
    """Evaluates the alert rules and delivers messages until it is stopped."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        evaluator: AlertEvaluator,
        delivery: AlertDelivery,
        *,
        holder: str,
        options: RunOptions | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._evaluator = evaluator
        self._delivery = delivery
        self._holder = holder
        self._options = options or RunOptions()
        self._term: Term | None = None
        self.broken_count = 0
        """The number of rounds that failed with an unexpected error."""

    @property
    def is_leading(self) -> bool:
        """Whether this process evaluates the rules."""
        return self._term is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Evaluate and deliver until ``stop`` is set, then release the lease."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self.evaluate_once, self._options.interval_s, stop))
            group.create_task(self._repeat(self.deliver_once, self._options.delivery_interval_s, stop))
            group.create_task(self._repeat(self.renew_once, self._options.renewal_interval_s, stop))
        term, self._term = self._term, None
        if term is not None:
            with suppress(StoreUnavailableError):
                await release_term(self._engine, term)

    async def evaluate_once(self) -> None:
        """Take or renew the lease. If this process holds the lease, evaluate once."""
        before = self._term
        self._term = await take_term(self._engine, holder=self._holder, ttl_s=self._options.lease_ttl_s)
        if self._term is None:
            self._delivery.forget()
            if before is not None:
                _log.info("another process evaluates alerts now")
            return
        if before is None:
            _log.info("evaluating alerts", holder=self._holder, term=self._term.number)
        with _EVALUATION.time():
            report = await self._evaluator.evaluate(self._term)
        _EVALUATED_AT.set(self._clock.now().timestamp())
        for reason in report.fired:
            _log.info("alert fires", reason=reason)
        for reason in report.resolved:
            _log.info("alert resolved", reason=reason)

    async def renew_once(self) -> None:
        """Renew the lease, if this process holds it.

        If another process has taken the lease, nothing happens here: an evaluation writes only while its term is the
        newest.
        """
        if self._term is not None:
            await take_term(self._engine, holder=self._holder, ttl_s=self._options.lease_ttl_s)

    async def deliver_once(self) -> None:
        """Deliver due messages, and send alerts that are still firing to Alertmanager again."""
        term = self._term
        if term is None:
            return
        try:
            await self._delivery.deliver_due(term)
            await self._delivery.resend(term)
        except StoreUnavailableError:
            await self._delivery.resend_from_memory()
            raise

    async def _repeat(self, once: Callable[[], Awaitable[None]], interval_s: float, stop: asyncio.Event) -> None:
        was_away = False
        while not stop.is_set():
            try:
                await once()
                was_away = False
            except StoreUnavailableError as error:
                if not was_away:
                    _log.warning("alerts wait for the store; none is resolved meanwhile", reason=error.reason)
                was_away = True
            except LeadershipLostError as error:
                _log.info("another process evaluates alerts now", former=error.holder)
                self._term = None
                self._delivery.forget()
            except Exception:  # noqa: BLE001  the top of a task: one failed round must not end alerting
                self.broken_count += 1
                _BROKEN.inc()
                _log.exception("a round of alerting failed", broken_count=self.broken_count)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), interval_s)
