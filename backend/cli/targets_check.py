"""``barrierscope targets check``: checks a file of targets, and connects to each of its targets from this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from backend.cli.entry_points import load_role
from backend.cli.options import OutputFormat, say, seconds

if TYPE_CHECKING:
    from backend.domain.declared_target import DeclaredTarget
    from backend.domain.discovery import DeclaredFile

_AT_ONCE_MAX: Final = 8
EXIT_UNREADABLE: Final = 1

File = Annotated[str, typer.Argument(metavar="FILE", help="File such as targets.yaml.")]


def check(
    file: File,
    is_offline: Annotated[
        bool, typer.Option("--offline", help="Check the file only, and connect to no target.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="Longest time for each request.")] = "8s",
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
) -> None:
    """Check a file of targets, and read each target once from this machine. Paused targets are not read.

    Exit code 0: the file is right, and each target answers. 1: the file is right, and a target does not answer. 2: the
    file is wrong.
    """
    from backend.contracts.targets_file import read_targets_file

    timeout_s = seconds(timeout, option="--timeout", least=0.1, most=600)
    declared = read_targets_file(Path(file).expanduser())
    rows = [_row(t, "not asked") for t in declared.targets]
    if not is_offline:
        rows = asyncio.run(_asked(declared.targets, timeout_s))
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"source": declared.source, "targets": rows, "discovery": _sections(declared)}, indent=2))
    else:
        for row in rows:
            say(_line(row))
        count = len(rows)
        for section in declared.discoveries:
            say(f"section {section.name}: not asked here, the collector reads {section.place}")
        say(f"{file} is right: {count} target{'s' if count != 1 else ''}, source {declared.source}")
    if any(row["state"] == "failed" for row in rows):
        raise typer.Exit(EXIT_UNREADABLE)


async def _asked(targets: tuple[DeclaredTarget, ...], timeout_s: float) -> list[dict[str, Any]]:
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def ask(target: DeclaredTarget) -> dict[str, Any]:
        if target.is_paused:
            return _row(target, "paused")
        async with places:
            return await _ask(target, timeout_s)

    return list(await asyncio.gather(*(ask(t) for t in targets)))


async def _ask(target: DeclaredTarget, timeout_s: float) -> dict[str, Any]:
    from backend.cli.connection_options import reach_of
    from backend.domain.connection_failure import CURES
    from backend.domain.errors import BarrierscopeError, WrongRootError

    try:
        probed = await load_role("probe")(target.url, timeout_s, kind=target.kind, reach=reach_of(target.connection))
    except BarrierscopeError as error:
        failure = getattr(error, "failure", None)
        # If the server answers at another path, the problem names it, and the host and the port are right.
        root = error.root if isinstance(error, WrongRootError) else None
        cure = None if failure is None or root is not None else CURES[failure]
        return _row(target, "failed", problem=str(error), failure=failure, cure=cure, root=root)
    return _row(target, "ok", engine=probed.engine.kind, version=probed.version, jobs=list(probed.running_jobs))


def _sections(declared: DeclaredFile) -> list[dict[str, str]]:
    return [{"name": section.name, "place": section.place} for section in declared.discoveries]


def _row(target: DeclaredTarget, state: str, **more: Any) -> dict[str, Any]:
    return {"name": target.name, "url": target.url, "kind": target.kind, "state": state} | more


def _line(row: dict[str, Any]) -> str:
    name = row["name"] if row["url"].endswith(row["name"]) else f"{row['name']} ({row['url']})"
    match row["state"]:
        case "ok":
            return f"ok      {name}: {row['engine']} {row['version'] or ''}, running jobs: {len(row['jobs'])}"
        case "failed":
            cure = f"; {row['cure']}" if row["cure"] else ""
            return f"failed  {name}: {row['problem'].removeprefix(row['url']).removeprefix(': ')}{cure}"
        case "paused":
            return f"paused  {name}"
    return f"read    {name}"
