"""Composes the ``api`` role: store, services, API, pages, the gate before both, and retention beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import metadata

import httpx
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import ASGIApp

from backend.alerting.payloads import Links
from backend.api.access import Access, AccessRules
from backend.api.app import AppDeps, create_app
from backend.api.deps import Services
from backend.api.health import Health
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
    """``base_url``: root of the links in alerts. ``secrets``: the credential at a reference, None where none is."""

    base_url: str = "http://127.0.0.1:8050"
    receiver_rules: TargetRules = field(default_factory=lambda: TargetRules(is_everything_allowed=True))
    secrets: Secrets = lambda reference: None


def build(
    *,
    database_url: str,
    host: str,
    port: int,
    token: str | None,
    public_url: str | None,
    trusts_every_target: bool,
    allowed_targets: tuple[str, ...],
    retention_max_age_days: float,
    retention_max_size_mib: int,
    rollup_retention_max_age_days: float = 90.0,
    create_dashboard: DashboardFactory,
    probe: Probe,
    alerting: AlertingOptions,
    change_settings: ChangeSettings,
) -> ASGIApp:
    """The whole service as one ASGI application.

    ``token`` None: no login, for only this machine can reach ``host``. ``public_url``: where browsers find it, when a
    proxy stands before it. ``trusts_every_target``: any address may be watched, not only those of ``allowed_targets``.
    ``create_dashboard``, ``probe`` and ``change_settings`` are what the entry points of their names offer.

    Raises:
        InvalidInputError: ``database_url`` is no PostgreSQL URL.

    """
    engine = create_store_engine(database_url)
    clock = WallClock()
    version = metadata.version("barrierscope")
    retention = Retention(
        timedelta(days=retention_max_age_days),
        retention_max_size_mib * 2**20,
        timedelta(days=rollup_retention_max_age_days),
    )
    rules = TargetRules(is_everything_allowed=trusts_every_target, allowed=allowed_targets)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                beside = (_keep(engine, retention, clock), _advise(services.advice))
                tasks = [group.create_task(task) for task in beside]
                yield
                for task in tasks:
                    task.cancel()
        finally:
            await engine.dispose()

    services = build_services(
        engine,
        clock,
        rules,
        probe,
        version,
        alerting,
        retention=retention,
        change_settings=change_settings,
        token=token,
    )
    api = create_app(AppDeps(services, version, running))
    # In one process: no socket, and no gate, which the page's own request has passed.
    transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
    pages = create_dashboard(transport=transport, api_base_url=f"http://127.0.0.1:{port}", token=token)
    gate = Access(Splitter(api=api, pages=pages), AccessRules(token, frozenset({host.lower()}), public_url))
    return Health(gate, SchemaCheck(engine).is_ready)


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
    """Every service over one store; ``token`` is this service's own, which its runtime asks for as well."""
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


async def _advise(advice: AdviceService) -> None:
    """Keep advice up to date again and again, whether or not anybody looks."""
    while True:
        await asyncio.sleep(_ADVICE_EVERY_S)
        try:
            await advice.keep_all()
        except StoreUnavailableError as error:
            _log.warning("advice waits for the store", reason=error.reason)
        except Exception:  # noqa: BLE001  the top of a task: what nobody foresaw must not end advice for good
            _log.exception("advice failed")


async def _keep(engine: AsyncEngine, retention: Retention, clock: Clock) -> None:
    """Apply retention again and again; a store that is away is tried again soon."""
    while True:
        pause_s = _RETENTION_EVERY_S
        try:
            await apply_retention(engine, retention, clock.now())
        except StoreUnavailableError as error:
            _log.warning("retention waits for the store", reason=error.reason)
            pause_s = _RETENTION_RETRY_S
        except Exception:  # noqa: BLE001  the top of a task: what nobody foresaw must not end retention for good
            _log.exception("retention failed")
            pause_s = _RETENTION_RETRY_S
        await asyncio.sleep(pause_s)
