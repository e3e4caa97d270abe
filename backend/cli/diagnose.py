"""The command ``diagnose``. It connects its options with the part ``diagnose``, which is in ``collectors``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli import connection_options
from backend.cli.entry_points import load_role
from backend.cli.options import ReportFormat, seconds
from backend.domain.connection import PLAIN
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.fail_on import FailOn

if TYPE_CHECKING:
    from backend.contracts.spark import SparkPushIn
    from backend.domain.observation import JobObservation


def diagnose(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="REST root of a Flink JobManager, a history server or a driver of Spark, or the name of an own target."
            " It may be left out with --log.",
        ),
    ] = "",
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name or id of a job; other jobs are left out.")
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Log of a JobManager or TaskManager, plain or .gz, a folder of them, or -. May be repeated.",
        ),
    ] = None,
    event_logs: Annotated[
        list[str] | None,
        typer.Option(
            "--event-log",
            metavar="FILE",
            help="Event log of a Spark application, plain, .gz or zstd, or a folder (rolling), also s3://BUCKET/PREFIX"
            " and webhdfs://USER@HOST:PORT/PATH. May be repeated.",
        ),
    ] = None,
    spark_checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-checkpoint",
            metavar="FOLDER",
            help="Checkpoint folder of a Spark query, on this machine; it is read alone. May be repeated.",
        ),
    ] = None,
    output_format: Annotated[ReportFormat, typer.Option("--format", help="text, json or markdown")] = ReportFormat.TEXT,
    is_verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print all evidence, and the reason, risks and rollback of each change."),
    ] = False,
    is_quick: Annotated[
        bool,
        typer.Option("--quick", help="Do not wait for a second reading of the metrics; say what is then not known."),
    ] = False,
    deadline: Annotated[
        str, typer.Option(metavar="DURATION", help="Print what is known by then, and say what was left out.")
    ] = "60s",
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="Exit with code 3 if a job is failing, or also slow, or also if a change is recommended."),
    ] = None,
    is_watch: Annotated[
        bool, typer.Option("--watch", help="Show the target live in the terminal, until q is pressed.")
    ] = False,
    bearer: connection_options.Bearer = None,
    user: connection_options.User = None,
    headers: connection_options.Headers = None,
    ca: connection_options.Ca = None,
    cert: connection_options.Cert = None,
    key: connection_options.Key = None,
    server_name: connection_options.ServerName = None,
    proxy: connection_options.ProxyUrl = None,
    proxy_user: connection_options.ProxyUser = None,
) -> None:
    """Read a cluster's checkpoints once, and print which subtask holds the barrier, in which phase, and why.

    A target in ~/.config/barrierscope/targets.yaml may be named instead of its address, and gives its credentials.

    Exit codes: 0 it could be read, 1 it could not (with --fail-on: or not all of it), 2 the command line is wrong,
    3 --fail-on is met, 130 interrupted.
    """
    from backend.settings import load_settings

    if is_watch:
        files = {"--log": logs, "--event-log": event_logs, "--spark-checkpoint": spark_checkpoints}
        _refuse_beside_watch(url, files, output_format, is_quick=is_quick, fail_on=fail_on)
    if spark_checkpoints:
        raise typer.Exit(
            load_role("diagnose-spark-checkpoint")(
                spark_checkpoints,
                job=job,
                output_format=output_format.value,
                fail_on=fail_on,
                is_alone=not (url or logs or event_logs),
            )
        )
    given = connection_options.Given(
        *(bearer, user, headers or (), ca, cert, key, server_name, proxy), proxy_user=proxy_user
    )
    own = connection_options.own_target(url, load_settings())
    url = url if own is None else own.url
    options = connection_options.checked(given.options(PLAIN if own is None else own.connection), url)
    code = load_role("diagnose")(
        url,
        job=job,
        output_format=output_format.value,
        is_verbose=is_verbose,
        is_quick=is_quick,
        deadline_s=seconds(deadline, option="--deadline", least=1.0, most=86_400.0),
        logs=logs or (),
        event_logs=event_logs or (),
        observe=_parser_of_spark() if event_logs else None,
        reach=connection_options.reach_of(options),
        fail_on=fail_on,
        is_watch=is_watch,
    )
    raise typer.Exit(code)


def _refuse_beside_watch(
    url: str,
    files: Mapping[str, list[str] | None],
    output_format: ReportFormat,
    *,
    is_quick: bool,
    fail_on: FailOn | None,
) -> None:
    """Refuse what a view that goes on has no use for."""
    others = {
        **{name: bool(given) for name, given in files.items()},
        "--format": output_format is not ReportFormat.TEXT,
        "--quick": is_quick,
        "--fail-on": fail_on is not None,
    }
    problems = [
        FieldProblem(name, "cannot be used with --watch", f"{name} or --watch")
        for name, is_set in others.items()
        if is_set
    ]
    if not url:
        problems.append(FieldProblem("URL", "is missing", "the address of a target, with --watch"))
    if problems:
        raise InvalidInputError(problems, what="option")


def _parser_of_spark() -> Callable[[SparkPushIn], list[JobObservation]]:
    """Return the parser of the ingest API. The services are imported only if needed, because that takes a while."""
    from backend.contracts.spark_events import job_observation, runs_of

    return lambda push: [job_observation(run, push, None) for run in runs_of(push.events)]
