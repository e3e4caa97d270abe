"""The role ``alert``, which evaluates the alert rules and delivers alerts. This module only composes other parts."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated

import structlog
import typer

from backend.cli import event_loop
from backend.cli.database import DatabaseUrl, database_url_of
from backend.cli.garbage import collect_garbage_less_often
from backend.cli.heartbeat import beating
from backend.cli.listening import address_rules, stop_event
from backend.cli.metrics_port import MetricsPort, serving_metrics
from backend.cli.options import seconds
from backend.cli.role_logging import log_to_stderr
from backend.cli.roles import retention_of
from backend.domain.errors import StoreUnavailableError
from backend.settings import Settings, load_settings, names, secret_at

_STORE_PAUSE_S = 2.0

_log = structlog.get_logger(__name__)


def alert(
    database_url: DatabaseUrl = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two evaluations of the rules [5s].")
    ] = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Evaluate the alert rules, and deliver alerts. If several run, one evaluates and the others stand by."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = database_url_of(database_url, settings)
    interval_s = settings.alert_interval_s
    if interval is not None:
        interval_s = seconds(interval, option="--interval", least=0.2, most=3600)
    event_loop.run(_until_stopped(url, interval_s, settings, metrics_port))


async def _until_stopped(url: str, interval_s: float, settings: Settings, metrics_port: int | None) -> None:
    from backend.alerting.payloads import Links
    from backend.metrics.registry import register
    from backend.notify.sender import Sender
    from backend.services.alerts.deliveries import AlertDelivery
    from backend.services.alerts.evaluation import AlertEvaluator
    from backend.services.alerts.receivers import watch_configured
    from backend.services.alerts.running import AlertRunner, RunOptions
    from backend.services.alerts.signals import SignalReader
    from backend.services.history_forecast import HistoryForecast
    from backend.services.jobs.analysed import AnalysedJobs
    from backend.services.jobs.evidence import EvidenceReader
    from backend.services.jobs.fleet import FleetService
    from backend.services.metrics.fleet import FleetMetrics, Sources
    from backend.store.postgres.connections import create_store_engine
    from backend.store.wall_clock import WallClock

    clock, engine = WallClock(), create_store_engine(url)
    rules = address_rules(settings.host, settings, settings.allowed_receivers)
    sender = Sender(partial(secret_at, folder=settings.secrets_dir), rules)
    retention = retention_of(settings)
    evaluator = AlertEvaluator(engine, clock, SignalReader(engine, clock, EvidenceReader(clock), retention))
    jobs = AnalysedJobs(clock, EvidenceReader(clock))
    history = HistoryForecast(engine, clock, retention)
    sources = Sources(jobs, FleetService(engine, clock, jobs), history, lambda: evaluator.signals)
    try:
        runner = AlertRunner(
            engine,
            clock,
            evaluator,
            AlertDelivery(
                engine,
                clock,
                sender,
                Links((settings.public_url or settings.api_url).rstrip("/")),
                random=random.random,
            ),
            holder=f"{socket.gethostname()}:{os.getpid()}",
            options=RunOptions(interval_s=interval_s, delivery_interval_s=min(1.0, interval_s)),
        )
        fleet = FleetMetrics(engine, clock, sources, lambda: runner.is_leading)
        register(fleet.collect)
        configured = names(settings.alertmanager_urls)
        collect_garbage_less_often()
        with stop_event() as stop:
            async with (
                beating(settings.heartbeat_file),
                serving_metrics("alert", settings, metrics_port, refresh=fleet.refresh),
            ):
                await _once_stored(lambda: watch_configured(engine, clock, configured), stop)
                async with asyncio.TaskGroup() as group:
                    renewing = group.create_task(fleet.run(), name="metrics")
                    await runner.run(stop)
                    renewing.cancel()
    finally:
        await sender.aclose()
        await engine.dispose()


async def _once_stored(
    action: Callable[[], Awaitable[None]], stop: asyncio.Event, pause_s: float = _STORE_PAUSE_S
) -> None:
    """Call ``action``. While the store does not respond, call it again, until ``stop`` is set."""
    while not stop.is_set():
        try:
            await action()
        except StoreUnavailableError as error:
            _log.warning("alerts are waiting for the store", reason=error.reason)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
        else:
            return
