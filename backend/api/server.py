"""Composes the ``api`` role: store, services, API, pages, access control, and the periodic tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata

import httpx
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import ASGIApp

from backend.alerting.payloads import Links
from backend.api.access import Access, AccessRules
from backend.api.app import AppDeps, create_app
from backend.api.deps import Services
from backend.api.health import HealthProbe
from backend.api.splitter import Splitter
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.notify.sender import Secrets, Sender
from backend.services.advice.cards import AdviceService, ChangeSettings
from backend.services.alerts.episodes import AlertService
from backend.services.alerts.receivers import ReceiverService
from backend.services.alerts.rules_and_silences import AlertControlService
from backend.services.checkpoints.progress import ProgressService
from backend.services.checkpoints.reader import CheckpointService
from backend.services.jobs.changes import ChangeService
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import FleetService
from backend.services.jobs.reader import JobService
from backend.services.rollups.reader import RollupService
from backend.services.status import StatusService
from backend.services.targets.spark_push import SparkIngestService
from backend.services.targets.targets import Probe, TargetRules, TargetService
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.schema.version import SchemaCheck
from backend.store.wall_clock import WallClock

_RETENTION_EVERY_S = 1800.0
_RETENTION_RETRY_S = 60.0
_ADVICE_EVERY_S = 15.0

_log = structlog.get_logger(__name__)

DashboardFactory = Callable[..., ASGIApp]


@dataclass(frozen=True, slots=True)
class AlertingOptions:
    """``base_url``: root of the links in alerts. ``secrets``: returns the credential at a reference, or None."""

    base_url: str = "http://127.0.0.1:8050"
    receiver_rules: TargetRules = field(default_factory=lambda: TargetRules(is_everything_allowed=True))
    secrets: Secrets = lambda reference: None


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of the service. ``token``: required in every request, None if only this machine can reach ``host``.

    ``public_url``: the address that browsers use, if a proxy stands in front.
    """

    host: str
    port: int
    token: str | None = None
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What the entry points ``dashboard``, ``probe`` and ``change-settings`` provide."""

    create_dashboard: DashboardFactory
    probe: Probe
    change_settings: ChangeSettings


def build(
    database_url: str,
    listening: Listening,
    parts: Parts,
    *,
    targets: TargetRules,
    retention: Retention,
    alerting: AlertingOptions,
) -> ASGIApp:
    """The whole service as one ASGI application.

    Raises:
        InvalidInputError: ``database_url`` is not a PostgreSQL URL.

    """
    engine = create_store_engine(database_url)
    clock = WallClock()
    version = metadata.version("barrierscope")
    services = build_services(
        engine,
        clock,
        targets,
        parts.probe,
        version,
        alerting,
        retention=retention,
        change_settings=parts.change_settings,
        token=listening.token,
    )
    api = create_app(AppDeps(services, version, partial(_running, engine, clock, retention, services.advice)))
    # The pages call the API inside the process, without a socket. The gate has already checked the page's own request.
    transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
    pages = parts.create_dashboard(
        transport=transport, api_base_url=f"http://127.0.0.1:{listening.port}", token=listening.token
    )
    rules = AccessRules(listening.token, frozenset({listening.host.lower()}), listening.public_url)
    return HealthProbe(Access(Splitter(api=api, pages=pages), rules), SchemaCheck(engine).is_ready)


def build_services(
    engine: AsyncEngine,
    clock: Clock,
    rules: TargetRules,
    probe: Probe,
    version: str,
    alerting: AlertingOptions | None = None,
    *,
    retention: Retention | None = None,
    change_settings: ChangeSettings | None = None,
    token: str | None = None,
) -> Services:
    """Every service over one store. ``token`` is this service's, and the live runtime requires it too."""
    evidence = EvidenceReader(clock)
    fleet = FleetService(engine, clock, evidence)
    checkpoints = CheckpointService(engine, clock, evidence)
    options = alerting or AlertingOptions()
    links = Links(options.base_url.rstrip("/"))
    return Services(
        status=StatusService(engine, clock, version),
        targets=TargetService(engine, clock, rules, probe),
        fleet=fleet,
        jobs=JobService(engine, clock, evidence, fleet),
        checkpoints=checkpoints,
        progress=ProgressService(engine, clock, checkpoints),
        alerts=AlertService(engine, clock, links),
        alert_control=AlertControlService(engine, clock),
        receivers=ReceiverService(engine, clock, options.receiver_rules, Sender(options.secrets), links),
        spark=SparkIngestService(engine, clock, IngestWriter(engine, retention=retention, clock=clock)),
        advice=AdviceService(engine, clock, evidence, rules, change_settings, token),
        rollups=RollupService(engine, clock),
        changes=ChangeService(engine, clock),
    )


@asynccontextmanager
async def _running(
    engine: AsyncEngine, clock: Clock, retention: Retention, advice: AdviceService
) -> AsyncIterator[None]:
    """Run the periodic tasks while the application serves, then close ``engine``."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(task) for task in (_keep(engine, retention, clock), _advise(advice))]
            yield
            for task in tasks:
                task.cancel()
    finally:
        await engine.dispose()


async def _advise(advice: AdviceService) -> None:
    """Keep advice up to date, also while no client reads it."""
    while True:
        await asyncio.sleep(_ADVICE_EVERY_S)
        try:
            await advice.keep_all()
        except StoreUnavailableError as error:
            _log.warning("advice is waiting for the store", reason=error.reason)
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end advice
            _log.exception("advice failed")


async def _keep(engine: AsyncEngine, retention: Retention, clock: Clock) -> None:
    """Apply retention periodically. If it fails, try again sooner."""
    while True:
        pause_s = _RETENTION_EVERY_S
        try:
            await apply_retention(engine, retention, clock.now())
        except StoreUnavailableError as error:
            _log.warning("retention is waiting for the store", reason=error.reason)
            pause_s = _RETENTION_RETRY_S
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end retention
            _log.exception("retention failed")
            pause_s = _RETENTION_RETRY_S
        await asyncio.sleep(pause_s)
