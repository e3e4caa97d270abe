"""``barrierscope up``: runs everything on one machine until Ctrl-C.

This module decides from the options and the settings what to run. Module ``stack`` runs it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from backend.cli.instance import Instance
from backend.cli.listening import listening_token
from backend.cli.options import TargetsFile, file_of, folder_of, job_spec, seconds
from backend.cli.stack import Plan, Stack
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.settings import load_settings

# The default port of the runtime is `--port` plus this offset. Two instances with different ports then do not
# collide.
_RUNTIME_PORT_OFFSET = 10_000

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the pages and the API [8050].")]
Host = Annotated[
    str | None, typer.Option(help="Address to listen on [127.0.0.1]; any other than loopback needs a token.")
]
Folder = Annotated[
    str | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the database, logs and run files.")
]
Demo = Annotated[bool, typer.Option(help="Run the live demo jobs of the embedded runtime.")]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job",
        metavar="NAME",
        help="Live job to run too: a job file, the name of a demo job, or `all` demo jobs; may be repeated.",
    ),
]
SparkDemo = Annotated[bool, typer.Option(help="Run a small streaming query on Spark, if Java is available.")]
RuntimePort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of the demo jobs' REST [port of the pages + 10000].")
]
Interval = Annotated[str | None, typer.Option(metavar="TIME", help="Time between two readings of a target [2s].")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=1, max=65531, help="Port of the API's /metrics; collect, alert, lab and runtime have the next four. [none]"
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the logs of the roles too.")]


def up(
    port: Port = None,
    host: Host = None,
    folder: Folder = None,
    demo: Demo = True,
    job: Jobs = None,
    spark_demo: SparkDemo = True,
    runtime_port: RuntimePort = None,
    poll_interval: Interval = None,
    targets: TargetsFile = None,
    metrics_port: MetricsPort = None,
    verbose: Verbose = False,
) -> None:
    """Run everything: embedded PostgreSQL, live demo jobs, collector, API and pages. Ctrl-C stops it.

    With --no-demo, only the jobs of --job run live.
    """
    settings = load_settings()
    jobs = _live_jobs(job or [], with_demo=demo)
    chosen = port or settings.port
    interval_s = settings.poll_interval_s
    if poll_interval is not None:
        interval_s = seconds(poll_interval, option="--poll-interval", least=0.2, most=3600)
    plan = Plan(
        folder=settings.data_dir_or_default() if folder is None else folder_of(folder),
        host=host or settings.host,
        port=chosen,
        runtime_port=(runtime_port or _runtime_port(chosen)) if jobs else None,
        runtime_jobs=jobs,
        poll_interval_s=interval_s,
        is_verbose=verbose,
        metrics_port=metrics_port or settings.metrics_port,
        has_spark_demo=demo and spark_demo,
        targets_file=file_of(targets) or settings.targets_file,
        settings=settings,
    )
    check_targets_file(plan.targets_file)
    # This call raises an error if a token is required but not set. It is made before anything is started.
    listening_token(plan.host, settings)
    if plan.runtime_port == plan.port:
        problem = FieldProblem("--runtime-port", f"{plan.port} is already the port of the pages", "another port")
        raise InvalidInputError([problem], what="option")
    with _asked_to_stop() as stop, Instance(plan.folder) as instance:
        Stack(plan, instance, stop).run()


def check_targets_file(path: Path | None) -> None:
    """Raise ``InvalidInputError`` if the file is wrong, before anything is started. Later, the last good list stays."""
    if path is not None:
        from backend.contracts.targets_file import read_targets_file

        read_targets_file(path)


def _live_jobs(asked: list[str], *, with_demo: bool) -> tuple[str, ...]:
    """Return the live jobs: the demo jobs, and those that are asked for.

    Raises:
        InvalidInputError: a job is asked for that does not exist.
    """
    from backend.runtime.demo import demo_names, job_names

    jobs = list(demo_names()) if with_demo else []
    for text in asked:
        if text != "all":
            job_spec(text)
        jobs += job_names() if text == "all" else [text]
    return tuple(dict.fromkeys(jobs))


def _runtime_port(port: int) -> int:
    return port + _RUNTIME_PORT_OFFSET if port + _RUNTIME_PORT_OFFSET <= 65535 else port - _RUNTIME_PORT_OFFSET


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C, SIGTERM or SIGHUP sets. A second Ctrl-C raises KeyboardInterrupt."""
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
