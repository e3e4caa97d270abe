"""Composes the ``api`` role: store, services, API, pages, access control, and the periodic tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata

import httpx
import structlog
from brotli_asgi import BrotliMiddleware
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import ASGIApp

from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.alerting.payloads import Links
from backend.api.access import Access, AccessRules
from backend.api.app import AppDeps, BoundedBody, create_app
from backend.api.deps import Services
from backend.api.health import HealthProbe
from backend.api.metering import Metered
from backend.api.splitter import PAGES, Splitter
from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.errors import StoreUnavailableError
from backend.metrics.page import MetricsPage
from backend.notify.sender import Secrets, Sender
from backend.services.advice.cards import AdviceService
from backend.services.alerts.episodes import AlertService
from backend.services.alerts.incidents import IncidentService
from backend.services.alerts.receivers import ReceiverService
from backend.services.alerts.rules_and_silences import AlertControlService
from backend.services.backtests.requests import BacktestService
from backend.services.checkpoints.actions import ActionService
from backend.services.checkpoints.comparing import ComparisonService
from backend.services.checkpoints.comparing_windows import WindowComparisonService
from backend.services.checkpoints.history import HistoryService
from backend.services.checkpoints.judging import Judge
from backend.services.checkpoints.progress import ProgressService
from backend.services.checkpoints.reader import CheckpointService
from backend.services.checkpoints.space_time import SpaceTimeService
from backend.services.checkpoints.subtask_matrix import SubtaskMatrixService
from backend.services.checkpoints.subtasks import SubtaskService
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.annotations import AnnotationService
from backend.services.jobs.changes import ChangeService
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import FleetService
from backend.services.jobs.pressure_history import PressureHistoryService
from backend.services.jobs.reader import JobService
from backend.services.rollups.reader import RollupService
from backend.services.simulations.cap_curves import CapCurveService
from backend.services.simulations.queueing import SimulationQueue
from backend.services.simulations.requests import SimulationService
from backend.services.status import StatusService
from backend.services.targets.changing import ChangeSettings, JobChanger
from backend.services.targets.inspecting import Inspect, InspectionService
from backend.services.targets.links import LinkService
from backend.services.targets.spark_push import SparkIngestService
from backend.services.targets.targets import Probe, TargetService
from backend.services.whatif.answering import WhatIfService
from backend.services.whatif.choosing import SettingChooser
from backend.services.whatif.confirming import KIND
from backend.services.whatif.models import JobModels
from backend.services.whatif.preparing import prepare_fast_tier
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.schema.version import SchemaCheck
from backend.store.wall_clock import WallClock

_RETENTION_EVERY_S = 1800.0
_RETENTION_RETRY_S = 60.0
_ADVICE_EVERY_S = 15.0
_ANALYSIS_PAUSE_S = 1.0
_BOARD_EVERY_S = 1.0
_PROBE_TIMEOUT_S = 1.0
# The caller that the API sees for requests of the pages.
_PAGES = "pages"
# Level 5 compresses the scripts of a page to a quarter in about 0.2 s. Each further level saves 2 % more and takes
# twice the time.
_BROTLI_QUALITY = 5
# This limit is higher than that of the API, because pages send their state back with each request.
_PAGE_BODY_MAX_BYTES = 4 * 2**20

_log = structlog.get_logger(__name__)

DashboardFactory = Callable[..., ASGIApp]


@dataclass(frozen=True, slots=True)
class AlertingOptions:
    """The options for sending alerts.

    ``base_url`` is the root of the links in alerts. ``secrets`` returns the credential for a reference, or None.
    """

    base_url: str = "http://127.0.0.1:8050"
    receiver_rules: AddressRules = EVERYWHERE
    secrets: Secrets = lambda reference: None


@dataclass(frozen=True, slots=True)
class Listening:
    """The address at which the service listens, and its token.

    ``token`` is required in every request; it is None if only this machine can reach ``host``. ``public_url`` is the
    address that browsers use if there is a proxy in front of the service.
    """

    host: str
    port: int
    token: str | None = None
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that the entry points ``dashboard``, ``probe``, ``change-settings`` and ``inspect`` provide."""

    create_dashboard: DashboardFactory
    probe: Probe
    change_settings: ChangeSettings
    inspect: Inspect | None = None


def build(
    database_url: str,
    listening: Listening,
    parts: Parts,
    *,
    targets: Reach,
    retention: Retention,
    alerting: AlertingOptions,
    auto_roll_back: bool = False,
) -> ASGIApp:
    """Build the whole service as one ASGI application.

    With ``auto_roll_back``, a change that made the checkpoints of a job worse is rolled back.

    Raises:
        InvalidInputError: ``database_url`` is not a PostgreSQL URL.
    """
    engine = create_store_engine(database_url)
    # The readiness probe has its own connection, so it does not wait when all other connections are in use. It has
    # short timeouts, so it does not wait for a database server that has stopped responding.
    probing = create_store_engine(
        database_url, pool_size=1, pool_overflow=0, connect_timeout_s=2, answer_timeout_s=_PROBE_TIMEOUT_S
    )
    clock = WallClock()
    version = metadata.version("barrierscope")
    judge = Judge(engine, clock)
    quick = QuickTiers()
    services = build_services(
        engine,
        clock,
        targets,
        parts.probe,
        version,
        alerting,
        retention=retention,
        change_settings=parts.change_settings,
        inspect=parts.inspect,
        token=listening.token,
        judge=judge,
        auto_roll_back=auto_roll_back,
        quick=quick,
    )
    api = create_app(
        AppDeps(services, version, partial(_running, (engine, probing), clock, retention, services, judge, quick))
    )
    # The pages call the API inside the process, without a socket. The access control has already checked the request
    # for the page itself.
    transport = httpx.ASGITransport(app=api, raise_app_exceptions=False, client=(_PAGES, 0))
    pages = parts.create_dashboard(
        transport=transport, api_base_url=f"http://127.0.0.1:{listening.port}", token=listening.token
    )
    rules = AccessRules(listening.token, frozenset({listening.host.lower()}), listening.public_url)
    # An application without this function has no addresses that people know.
    is_page = getattr(pages, "is_page", lambda _: False)
    split = Splitter(api=Metered(api), pages=Metered(pages, f"{PAGES}/*"), is_page=is_page)
    inside = MetricsPage(BoundedBody(split, _PAGE_BODY_MAX_BYTES))
    compressed = BrotliMiddleware(inside, quality=_BROTLI_QUALITY)
    return HealthProbe(Access(compressed, rules, is_page=is_page), SchemaCheck(probing).is_ready)


def build_services(
    engine: AsyncEngine,
    clock: Clock,
    limits: Reach,
    probe: Probe,
    version: str,
    alerting: AlertingOptions | None = None,
    *,
    retention: Retention | None = None,
    change_settings: ChangeSettings | None = None,
    inspect: Inspect | None = None,
    token: str | None = None,
    judge: Judge | None = None,
    auto_roll_back: bool = False,
    quick: QuickTiers | None = None,
) -> Services:
    """Build every service over one store.

    ``limits`` apply to the addresses and the credentials of targets that are added through the API. ``token`` is this
    service's token, which the live runtime requires too. ``judge`` is notified of each commit of
    pushed events.
    """
    writer = IngestWriter(engine, retention=retention, clock=clock, on_commit=None if judge is None else judge.note)
    evidence = EvidenceReader(clock)
    jobs = AnalysedJobs(clock, evidence)
    fleet = FleetService(engine, clock, jobs)
    checkpoints = CheckpointService(engine, clock, evidence)
    annotations = AnnotationService(engine, clock)
    advice = AdviceService(engine, clock, evidence, limits, change_settings, token, jobs, auto_roll_back=auto_roll_back)
    tiers = quick or QuickTiers()
    models = JobModels(engine, clock, evidence, tiers)
    options = alerting or AlertingOptions()
    links = Links(options.base_url.rstrip("/"))
    return Services(
        status=StatusService(engine, clock, version, retention),
        targets=TargetService(engine, clock, limits, probe),
        fleet=fleet,
        jobs=JobService(engine, clock, evidence, fleet),
        checkpoints=checkpoints,
        progress=ProgressService(engine, clock, checkpoints),
        space_time=SpaceTimeService(engine, checkpoints),
        actions=ActionService(
            engine, clock, checkpoints, JobChanger(engine, limits, change_settings, token), annotations
        ),
        alerts=AlertService(engine, clock, links),
        incidents=IncidentService(engine, clock, links),
        alert_control=AlertControlService(engine, clock),
        receivers=ReceiverService(
            engine, clock, options.receiver_rules, Sender(options.secrets, options.receiver_rules), links
        ),
        spark=SparkIngestService(engine, clock, writer),
        advice=advice,
        chooser=SettingChooser(engine, clock, evidence, jobs, tiers),
        rollups=RollupService(engine, clock),
        changes=ChangeService(engine, clock),
        subtask_matrix=SubtaskMatrixService(engine, clock),
        subtasks=SubtaskService(engine, checkpoints),
        annotations=annotations,
        comparison=ComparisonService(engine, clock, evidence),
        pressure_history=PressureHistoryService(engine, clock),
        history=HistoryService(engine, clock),
        window_comparison=WindowComparisonService(engine, clock),
        simulations=SimulationService(engine, clock),
        cap_curves=CapCurveService(engine, clock),
        links=LinkService(engine, clock),
        inspection=InspectionService(engine, clock, limits, inspect),
        what_if=WhatIfService(clock, models, SimulationQueue(engine, clock, KIND), advice),
        backtests=BacktestService(engine, clock),
    )


@asynccontextmanager
async def _running(
    engines: Sequence[AsyncEngine],
    clock: Clock,
    retention: Retention,
    services: Services,
    judge: Judge,
    quick: QuickTiers,
) -> AsyncIterator[None]:
    """Run the periodic tasks while the application serves, and then close ``engines``. The tasks use the first one."""
    try:
        async with asyncio.TaskGroup() as group:
            work = (
                _keep(engines[0], retention, clock),
                _advise(services.advice),
                services.chooser.run(),
                _watch(services.fleet),
                judge.run(),
                prepare_fast_tier(quick),
            )
            tasks = [group.create_task(task) for task in work]
            yield
            for task in tasks:
                task.cancel()
    finally:
        for engine in engines:
            await engine.dispose()


async def _advise(advice: AdviceService) -> None:
    """Keep advice up to date, even while no client reads it.

    While jobs are left that have not been analysed, go on after a short pause, which leaves time for requests.
    """
    pause_s = _ADVICE_EVERY_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = _ADVICE_EVERY_S
        try:
            if await advice.keep_all():
                pause_s = _ANALYSIS_PAUSE_S
        except StoreUnavailableError as error:
            _log.warning("advice is waiting for the store", reason=error.reason)
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end advice
            _log.exception("advice failed")


async def _watch(fleet: FleetService) -> None:
    """Keep the fleet board up to date while clients look at it."""
    while True:
        await asyncio.sleep(_BOARD_EVERY_S)
        try:
            await fleet.refresh_if_viewed()
        except StoreUnavailableError:
            # The error is ignored here, because the next request for the board reports it.
            continue
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end the refreshes
            _log.exception("the refresh of the fleet board failed")


async def _keep(engine: AsyncEngine, retention: Retention, clock: Clock) -> None:
    """Apply retention periodically. If it fails, try again sooner."""
    while True:
        pause_s = _RETENTION_EVERY_S
        try:
            if (await apply_retention(engine, retention, clock.now())).is_blocked:
                pause_s = _RETENTION_RETRY_S
        except StoreUnavailableError as error:
            _log.warning("retention is waiting for the store", reason=error.reason)
            pause_s = _RETENTION_RETRY_S
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end retention
            _log.exception("retention failed")
            pause_s = _RETENTION_RETRY_S
        await asyncio.sleep(pause_s)
