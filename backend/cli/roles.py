"""The commands that run one role in a separate process. They only connect parts of other packages.

The parts outside ``backend`` (the collector, the pages) are loaded through ``entry_points``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend.cli import event_loop
from backend.cli.database import DatabaseUrl, database_url_of, plain_url
from backend.cli.entry_points import load_role
from backend.cli.garbage import collect_garbage_less_often
from backend.cli.heartbeat import beating
from backend.cli.listening import address_rules, bind, is_loopback, listening_token, serve, stop_event, target_limits
from backend.cli.metrics_port import MetricsPort, serving_metrics
from backend.cli.options import TargetsFile, file_of, job_spec, seconds
from backend.cli.role_logging import log_to_stderr
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.settings import Settings, age_rules, load_settings, names, secret_at

if TYPE_CHECKING:
    from backend.live.driver import LiveJob
    from backend.runtime.engine.jobfile import JobSpec
    from backend.store.schema.partitions import Retention

Host = Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")]


def api(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the pages and the API [8050].")] = None,
    host: Host = None,
    database_url: DatabaseUrl = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Serve the API and the pages."""
    settings = _ready_to_log()
    url = database_url_of(database_url, settings)
    host, port = host or settings.host, port or settings.port
    token = listening_token(host, settings)
    from backend.api import server
    from backend.metrics.registry import describe_process

    describe_process("api", metadata.version("barrierscope"))
    parts = server.Parts(load_role("dashboard"), load_role("probe"), load_role("change-settings"), _inspect)
    with bind(host, port, option="--port") as server_socket:
        app = server.build(
            url,
            server.Listening(host, port, token, settings.public_url),
            parts,
            targets=target_limits(host, settings),
            retention=retention_of(settings),
            alerting=server.AlertingOptions(
                base_url=settings.public_url or f"http://127.0.0.1:{port}",
                receiver_rules=address_rules(host, settings, settings.allowed_receivers),
                secrets=partial(secret_at, folder=settings.secrets_dir),
            ),
            auto_roll_back=settings.auto_roll_back,
        )
        serving = serve(app, server_socket, trusted_proxies=names(settings.trusted_proxies))
        event_loop.run(_beating(settings, "api", metrics_port, serving))


async def _inspect(*values: Any, **named: Any) -> Any:
    """Call the part ``inspect``. It is loaded at the first request, because most processes never get one."""
    return await load_role("inspect")(*values, **named)


def retention_of(settings: Settings) -> Retention:
    """Return the limits of stored data that the settings define."""
    from backend.store.schema.partitions import AgeRule, Retention

    return Retention(
        max_age=timedelta(days=settings.retention_max_age_days),
        max_size_bytes=settings.retention_max_size_mib * 2**20,
        rollups_max_age=timedelta(days=settings.rollup_retention_max_age_days),
        arrays_max_age=timedelta(days=settings.retention_arrays_max_age_days),
        rules=tuple(
            AgeRule(label, value, timedelta(days=days)) for label, value, days in age_rules(settings.retention_rules)
        ),
    )


def runtime(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of its REST [18050].")] = None,
    host: Host = None,
    job: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Job file or name of a demo job; may be repeated. [every demo job]"),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Virtual time to run at the start, so that there is a history [20s]."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed to use instead of each job file's.")] = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Run jobs of the reference runtime in real time, and serve their monitoring REST under /runtime/v1."""
    settings = _ready_to_log()
    host, port = host or settings.runtime_host, port or settings.runtime_port
    warm_up_s = settings.runtime_warm_up_s if warm_up is None else seconds(warm_up, option="--warm-up", most=3600)
    specs = [job_spec(text) for text in job or _demo_names()]
    jobs = _live_jobs(specs, warm_up_s=warm_up_s, seed=seed)
    from backend.live.access import guard_changes
    from backend.live.driver import RuntimeDriver
    from backend.live.rest import create_runtime_app

    driver = RuntimeDriver(jobs)
    hosts = frozenset({host, *names(settings.runtime_allowed_hosts)})
    app = create_runtime_app(driver, version=metadata.version("barrierscope"), hosts=hosts)
    guarded = guard_changes(app, settings.token(), is_local=is_loopback(host))
    with bind(host, port, option="--port") as server_socket:
        asyncio.run(_beating(settings, "runtime", metrics_port, serve(guarded, server_socket, beside=driver.run())))


def collect(
    database_url: DatabaseUrl = None,
    poll_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two readings of a target [2s].")
    ] = None,
    targets: TargetsFile = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Read every registered target, and those of a file, and store the readings."""
    settings = _ready_to_log()
    url = database_url_of(database_url, settings)
    interval_s = settings.poll_interval_s
    if poll_interval is not None:
        interval_s = seconds(poll_interval, option="--poll-interval", least=0.2, most=3600)
    run = load_role("collect")
    from backend.services.checkpoints.judging import judging

    async def until_stopped() -> None:
        async with judging(url) as judge:
            with stop_event() as stop:
                await run(
                    database_url=url,
                    poll_interval_s=interval_s,
                    stop=stop,
                    retention=retention_of(settings),
                    limits=target_limits(settings.host, settings),
                    targets_file=file_of(targets) or settings.targets_file,
                    spool_dir=settings.spool_dir,
                    spool_max_mib=settings.spool_max_mib,
                    judge=judge,
                )

    event_loop.run(_beating(settings, "collect", metrics_port, until_stopped()))


def migrate(
    database_url: DatabaseUrl = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest time to wait for a database that does not answer [0s].")
    ] = None,
) -> None:
    """Migrate the database to the schema of this version. If several run at once, one works and the others wait."""
    settings = _ready_to_log()
    url = database_url_of(database_url, settings)
    wait_s = 0.0 if wait is None else seconds(wait, option="--wait", most=3600)
    from backend.cli.waiting import until_the_store_answers
    from backend.store.schema.migrate import upgrade

    until_the_store_answers(lambda: upgrade(url), wait_s=wait_s)
    if settings.built_in_target is not None:
        from backend.cli.built_in import watch_built_in
        from backend.store.wall_clock import WallClock

        asyncio.run(watch_built_in(url, settings.built_in_target or None, WallClock()))
    if settings.built_in_spark_demo is False:
        _withdraw_spark_demo(url, settings)
    typer.echo("the database is up to date")


def _withdraw_spark_demo(url: str, settings: Settings) -> None:
    from backend.cli.built_in import unwatch_spark_demo
    from backend.cli.spark_demo import Notice
    from backend.store.wall_clock import WallClock

    asyncio.run(unwatch_spark_demo(url, WallClock()))
    Notice(plain_url(url, settings), WallClock()).withdraw()


def _live_jobs(specs: Sequence[JobSpec], *, warm_up_s: float, seed: int | None) -> list[LiveJob]:
    from backend.live.driver import LiveJob
    from backend.live.engine import build_live_engine, job_run_id

    names = [spec.name for spec in specs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        problem = FieldProblem("--job", f"several jobs have the name {doubled[0]!r}", "jobs with different names")
        raise InvalidInputError([problem], what="option")
    if begun := next((spec.name for spec in specs if spec.restore is not None), None):
        why = f"the job {begun!r} begins from a checkpoint, and at its start the runtime has none"
        raise InvalidInputError([FieldProblem("restore", why, "no [restore]")], what="job file")
    origin_s = time.monotonic() - warm_up_s
    origin_epoch_ms = int((time.time() - warm_up_s) * 1000)
    return [
        LiveJob(
            id=job_run_id(spec.name, origin_epoch_ms),
            engine=build_live_engine(spec, seed=seed),
            origin_epoch_ms=origin_epoch_ms,
            origin_s=origin_s,
        )
        for spec in specs
    ]


# Seconds after which a thread that computes lets the event loop run. With Python's default of 5 ms, a short request
# waits several times that long beside a long one, because it gives up its turn at each system call.
_SWITCH_S = 0.001


async def _beating(settings: Settings, name: str, metrics_port: int | None, role: Coroutine[Any, Any, None]) -> None:
    collect_garbage_less_often()
    sys.setswitchinterval(_SWITCH_S)
    async with beating(settings.heartbeat_file), serving_metrics(name, settings, metrics_port):
        await role


def _demo_names() -> Sequence[str]:
    from backend.runtime.demo import demo_names

    return demo_names()


def _ready_to_log() -> Settings:
    settings = load_settings()
    log_to_stderr(settings.log_level)
    return settings
