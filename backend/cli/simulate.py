"""``barrierscope simulate``: runs a job of the reference runtime from virtual time 0, as fast as the machine allows.

The printed document depends only on the job, the settings, the duration and the seed (rule DET-4 of the runtime).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend.cli import saved_checkpoints
from backend.cli.options import OutputFormat, job_spec, pairs, say, seconds
from backend.domain import restore_effects, spelling
from backend.domain.errors import DomainError, FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.runtime.engine.simulate import SimulationResult

_DURATION_MAX_S = 86_400.0
_RESCALED = "rescaled: "
_COURSE_LEAST = 16
_SEED_MAX = 2**63 - 1


def simulate(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Job file (TOML), or name of a demo job.")],
    duration: Annotated[str, typer.Option(metavar="TIME", help="Virtual time to run.")] = "120s",
    seed: Annotated[
        int | None, typer.Option(min=0, max=_SEED_MAX, help="Seed to use instead of the job file's.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the job; may be repeated.")
    ] = None,
    size_only: Annotated[
        bool,
        typer.Option(
            "--size-only", help="Do not create the bytes of records, only count them: faster, with the same results."
        ),
    ] = False,
    save_checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the newest checkpoint or savepoint of the run in this file."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Continue from the checkpoint in this file.")
    ] = None,
    allow_non_restored: Annotated[
        bool, typer.Option("--allow-non-restored", help="Leave out the state of operators that the job has no longer.")
    ] = False,
    at_own_risk: Annotated[
        bool, typer.Option("--at-own-risk", help="Allow changed operators although data is in flight for them.")
    ] = False,
    claim: Annotated[
        bool | None,
        typer.Option(
            "--claim/--no-claim",
            help="Own the file: continue its incremental state, and delete it when a newer one is saved.",
        ),
    ] = None,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
) -> None:
    """Run a job of the reference runtime as fast as possible. The same seed always gives the same result."""
    from backend.runtime.engine.simulate import simulate as run
    from backend.runtime.snapshot.saved import RestoreOptions

    duration_us = round(seconds(duration, option="--duration", least=0.001, most=_DURATION_MAX_S) * 1e6)
    spec = job_spec(job)
    if set_:
        spec = spec.with_config(pairs(set_, option="--set"))
    begun = saved_checkpoints.restore_of(
        spec, job, from_, allows_non_restored=allow_non_restored, is_at_own_risk=at_own_risk, is_claimed=claim
    )
    origin, options = begun or (None, RestoreOptions())
    begun_from = None if origin is None else saved_checkpoints.read(origin)
    if begun_from is not None and seed not in (None, begun_from.seed):
        # With another seed, the sources would read another log than the one that the offsets belong to.
        problem = f"the checkpoint is of a run with the seed {begun_from.seed}, which its sources need"
        raise InvalidInputError([FieldProblem("--seed", problem, "no --seed")], what="option")
    if save_checkpoint is not None:
        saved_checkpoints.check_target(save_checkpoint)
    with _progress(job, duration_us) as progress:
        result = run(
            spec,
            duration_us=duration_us,
            seed=seed,
            progress=progress,
            is_size_only=size_only,
            begun_from=begun_from,
            options=options,
            saves=save_checkpoint is not None,
        )
    document = result.to_json()
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(document, indent=2))
    else:
        say(*_lines(document))
    claimed = origin if options.is_claimed and result.has_newer else None
    told = _kept(result, save_checkpoint, claimed)
    if output_format is OutputFormat.TEXT:
        say(*told)
    refusals = [rescale["refusal"] for rescale in document["rescales"] if rescale["refusal"] is not None]
    if refusals:
        raise DomainError(f"the job ran on after a rescale was refused: {'; '.join(refusals)}")


def _kept(result: SimulationResult, target: Path | None, claimed: Path | None) -> list[str]:
    """Save the checkpoint of a run, delete the claimed one in whose place it is (IN-16), and say so in lines.

    A run that saves nothing deletes nothing, because its own checkpoints end with it.
    """
    if target is None:
        return []
    saved_checkpoints.write(target, result.saved)
    told = ["", f"{_named(result.saved_as)} is saved in {target}"]
    if claimed is not None and not saved_checkpoints.is_same(claimed, target):
        saved_checkpoints.delete(claimed)
        told.append(f"the claimed checkpoint in {claimed} is deleted: a newer one is saved")
    return told


@contextmanager
def _progress(job: str, duration_us: int) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on standard error, and yield the function that updates it.

    If standard error is not a terminal, show nothing and yield None.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(job, total=duration_us)
        yield lambda at_us: bar.update(task, completed=at_us)


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    counts = document["counts"]
    duration_us = document["virtual_time_us"] - document["began_at_us"]
    yield f"{document['job']}: {_seconds(duration_us)} of virtual time, seed {document['seed']}"
    begun_from, of_them = document["begun_from"], ""
    if begun_from is not None:
        of_them = f", {begun_from['committed_before']} of them before"
        yield f"continued from {_named(begun_from)}"
        if begun_from["at_own_risk"]:
            yield f"at own risk: the operators of {', '.join(begun_from['at_own_risk'])} changed (GR-2)"
        if begun_from["left_out"]:
            yield f"left out: the state of {', '.join(begun_from['left_out'])}, which the job does not have (GR-1)"
    yield (
        f"checkpoints: {counts['completed']} completed, {counts['failed']} failed, {counts['in_progress']} in progress"
        f"; restarts: {document['restart_count']}; records committed: {document['committed_records']}{of_them}"
    )
    yield from _lost(document, {} if begun_from is None else begun_from["lost_before"])
    if document["ended_at_us"] is not None:
        yield f"the job has been {document['status']} since {_seconds(document['ended_at_us'])}"
    yield ""
    width = max([_COURSE_LEAST, *(len(checkpoint["course"]) + 2 for checkpoint in document["checkpoints"])])
    yield _row(
        *("id", "status", f"{'barrier':<{width}}", "triggered", "end to end", "start delay", "alignment", "async"),
        *("written", "full size", "in flight", "last"),
    )
    for checkpoint in document["checkpoints"]:
        yield _row(
            checkpoint["id"],
            checkpoint["reason"] or checkpoint["status"],
            f"{checkpoint['course']:<{width}}",
            *(_seconds(checkpoint[k]) for k in ("triggered_at_us", "end_to_end_us", "start_delay_max_us")),
            *(_seconds(checkpoint[k]) for k in ("alignment_max_us", "async_max_us")),
            spelling.size(checkpoint["written_bytes"] + checkpoint["channel_state"]["written_bytes"]),
            spelling.size(checkpoint["state_bytes"] + checkpoint["persisted_bytes"]),
            spelling.size(checkpoint["persisted_bytes"]),
            checkpoint["last_subtask"] or "-",
        )
    yield from _starts_and_stops(document)
    yield from _channel_files(document)
    yield ""
    yield f"{'vertex':<24} {'busy':>6} {'held back':>10} {'idle':>6} {'records in':>12}"
    for vertex in document["vertices"]:
        shares = (_share(vertex[f"{k}_ratio"]) for k in ("busy", "backpressured", "idle"))
        busy, held, idle = shares
        yield f"{vertex['id']:<24} {busy:>6} {held:>10} {idle:>6} {sum(vertex['records_in']):>12}"


def _channel_files(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sums of the files of channel state. A piece below Flink's limit is in the metadata, not in a file."""
    files = document["channel_files"]
    pieces = sum(checkpoint["channel_state"]["streams"] for checkpoint in document["checkpoints"])
    if not (pieces or files["created"]):
        return
    yield ""
    of_pieces = f" for {pieces} pieces" if pieces else ""
    yield (
        f"files of channel state: {files['created']} created{of_pieces}, {files['deleted']} deleted, "
        f"{spelling.size(files['written_bytes'])} written, {spelling.size(files['stored_bytes'])} stored at the end"
    )


def _lost(document: Mapping[str, Any], before: Mapping[str, int]) -> Iterator[str]:
    """Yield a line on the output that was lost, and one on output that will be, if there is any.

    ``before`` is what the run had lost from whose checkpoint this one began. It is a part of the sum.
    """
    timeout = f"their timeout of {document['settings']['runtime.transaction-timeout']}"
    lost, overdue = document["lost_records"], document["overdue"]
    if lost:
        rows = _rows(lost, document["lost_transactions"])
        of_them = f" ({before['records']} of them before this run)" if before.get("records") else ""
        yield f"LOST: {rows}{of_them}, committed after {timeout} (runtime.transaction-timeout)"
    if overdue["transactions"]:
        rows = _rows(overdue["records"], overdue["transactions"])
        yield f"will be lost: {rows}, not committed yet and past {timeout}"


def _rows(rows: int, transactions: int) -> str:
    return f"{rows} record{'' if rows == 1 else 's'} in {transactions} transaction{'' if transactions == 1 else 's'}"


def _named(saved: Mapping[str, Any]) -> str:
    """Return a checkpoint in words: its id, kind, job and in-flight data, and when it was saved."""
    in_flight = f", {spelling.size(saved['persisted_bytes'])} in flight" if saved["persisted_bytes"] else ""
    when = f"triggered at {_seconds(saved['triggered_at_us'])}, saved at {_seconds(saved['saved_at_us'])}"
    return f"{saved['kind']} {saved['id']} of {saved['job']}{in_flight} ({when})"


def _starts_and_stops(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of the job's start from a checkpoint, restarts, rescales and stops, in time order."""
    start = None if document["begun_from"] is None else document["begun_from"]["cost"]
    rows = [] if start is None else [(start["stopped_at_us"], _restarted(start, "started"))]
    rows += [(r["stopped_at_us"], _restarted(r)) for r in document["restarts"]]
    rows += [(s["requested_at_us"], _stopped(s)) for s in document["stops"]]
    rows += [(r["requested_at_us"], _refused(r)) for r in document["rescales"] if r["refusal"] is not None]
    if not rows:
        return
    yield ""
    yield _event("at", "what", "resumed from", "ran after", "replayed", "caught up", "why")
    for _, row in sorted(rows, key=lambda each: each[0]):
        yield row
    if start is not None:
        yield from restore_effects.told(start, f"after the start from id {start['restored_id']}")
    for restart in document["restarts"]:
        yield from restore_effects.told(restart, f"after the restart at {_seconds(restart['stopped_at_us'])}")
    hidden = document["restart_count"] - len(document["restarts"])
    if hidden > 0:
        yield f"{hidden} earlier restarts are not shown"


def _restarted(restart: Mapping[str, Any], kind: str = "restarted") -> str:
    cause = restart["cause"]
    if cause.startswith(_RESCALED):
        kind, cause = "rescaled", cause.removeprefix(_RESCALED)
    source = "the beginning" if restart["restored_id"] is None else f"id {restart['restored_id']}"
    durations = (_seconds(restart[k]) for k in ("until_running_us", "source_replay_us", "catch_up_us"))
    return _event(_seconds(restart["stopped_at_us"]), kind, source, *durations, cause)


def _stopped(stop: Mapping[str, Any]) -> str:
    word = "drained" if stop["drains"] else "suspended"
    if stop["ended_at_us"] is None:
        why = "in progress"
    elif stop["reason"] is not None:
        why = f"failed: {stop['message']}"
    else:
        took_us = stop["ended_at_us"] - stop["requested_at_us"]
        why = f"{word} with savepoint {stop['savepoint_id']} after {_seconds(took_us)}"
    return _event(_seconds(stop["requested_at_us"]), "stop", "-", "-", "-", "-", why)


def _refused(rescale: Mapping[str, Any]) -> str:
    return _event(_seconds(rescale["requested_at_us"]), "refused", "-", "-", "-", "-", f"rescale: {rescale['refusal']}")


def _event(*cells: object) -> str:
    widths = (11, 10, 14, 10, 10, 10, 0)
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _row(*cells: object) -> str:
    widths = (5, 22, 0, 10, 11, 12, 10, 9, 10, 10, 10, 0)
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _seconds(value_us: int | None) -> str:
    return "-" if value_us is None else spelling.duration(value_us / 1000)


def _share(ratios: list[float]) -> str:
    return spelling.percent(sum(ratios) / len(ratios)) if ratios else "-"
