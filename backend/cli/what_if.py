"""``barrierscope whatif JOB``: predicts a job's checkpoints under other settings, through the running API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli import what_if_text
from backend.cli.dry_runs import lines_of
from backend.cli.options import pairs, say
from backend.cli.targets import Api, Client
from backend.domain.engines import SettingsFormat
from backend.domain.errors import BarrierscopeError, FieldProblem, InvalidInputError
from backend.domain.text import printable

if TYPE_CHECKING:
    from backend.contracts.whatif import ConfirmationOut, WhatIfIn, WhatIfOut

_POLL_S = 0.5
_FAILED = 1
_STEPS = 9


def what_if(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name or id of the job.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A changed setting, by its name or engine key; may be repeated."
        ),
    ] = None,
    vary: Annotated[
        str | None, typer.Option("--vary", metavar="KEY=FROM..TO", help="Compare values of a setting, in steps.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=2, max=24, help="Number of values for --vary.")] = _STEPS,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Also simulate the change on the reference runtime. Ctrl-C cancels it.")
    ] = False,
    export: Annotated[
        SettingsFormat | None,
        typer.Option("--export", help="Print only the changed settings, in a form to copy or to pipe."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print only what applying it would send where, and what refuses it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    api: Api = None,
) -> None:
    """Predict the checkpoints of a job under other settings, from a model of it.

    Names of settings: mode, aligned-timeout, in-flight-cap, debloating, interval, min-pause, checkpoint-timeout, load,
    without-skew, without-slow-host, and parallelism.VERTEX.
    """
    from backend.contracts.api import JobDetailOut
    from backend.contracts.freshness import stale_line
    from backend.contracts.whatif import WhatIfOut

    if dry_run:
        _refuse_beside_dry_run({"--vary": vary is not None, "--confirm": confirm, "--export": export is not None})
    wanted = _wanted(settings or [], vary, steps, confirm=confirm)
    if dry_run:
        _try_out(job, wanted, api, as_json=as_json)
        return
    with Client(api) as client:
        path = f"/api/v1/jobs/{client.job_id(job)}"
        root = f"{path}/whatif"
        try:
            answer = client.post(root, wanted, WhatIfOut)
        except KeyboardInterrupt:
            if confirm:
                _warn("interrupted before the server answered; a confirmation may still run there, and ends by itself")
            raise
        if answer.confirmation is not None:
            confirmed = _awaited(client, f"{root}/confirmations/{answer.confirmation.id}")
            answer = answer.model_copy(update={"confirmation": confirmed})
        old = stale_line(client.get(path, JobDetailOut).freshness)
    if old is not None:
        _warn(f"the job is {old}")
    if export is not None:
        typer.echo(_exported(answer, export))
    elif as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        say(*what_if_text.lines_of(answer))
    if answer.confirmation is not None and not answer.confirmation.predictions:
        raise typer.Exit(_FAILED)


def _refuse_beside_dry_run(given: Mapping[str, bool]) -> None:
    problems = [FieldProblem(o, "it cannot be combined with --dry-run", "one of the two") for o in given if given[o]]
    if problems:
        raise InvalidInputError(problems, what="option")


def _try_out(job: str, wanted: WhatIfIn, api: str | None, *, as_json: bool) -> None:
    from backend.contracts.advice import DryRunOut
    from backend.contracts.whatif import WhatIfApplyIn

    if not wanted.settings:
        problem = FieldProblem("--dry-run", "no setting would change", "add --set KEY=VALUE")
        raise InvalidInputError([problem], what="option")
    with Client(api) as client:
        path = f"/api/v1/jobs/{client.job_id(job)}/whatif/dry-run"
        tried = client.post(path, WhatIfApplyIn(settings=wanted.settings), DryRunOut)
    if as_json:
        typer.echo(tried.model_dump_json(indent=2))
    else:
        say(*lines_of(tried, ", ".join(f"{k}={v}" for k, v in wanted.settings.items())))


def _exported(answer: WhatIfOut, wanted: SettingsFormat) -> str:
    text = next((e.text for e in answer.exports if e.format is wanted), None)
    if text is None:
        known = ", ".join(e.format.value for e in answer.exports) or "none, because no setting changes"
        problem = FieldProblem("--export", f"{wanted.value} has none of these changes for {answer.engine}", known)
        raise InvalidInputError([problem], what="option")
    return text


def _wanted(settings: Sequence[str], vary: str | None, steps: int, *, confirm: bool) -> WhatIfIn:
    """Return the what-if. Raises InvalidInputError if an option cannot be read, or if a setting has two values."""
    from pydantic import ValidationError

    from backend.contracts.whatif import WhatIfIn

    changed = pairs(settings, option="--set", is_once=True)
    try:
        return WhatIfIn.model_validate(
            {"settings": changed, "vary": None if vary is None else _vary(vary, steps), "confirm": confirm}
        )
    except ValidationError as error:
        problems = [
            FieldProblem(
                f"--{'vary' if e['loc'][0] == 'vary' else 'set'}",
                f"{' '.join(str(part) for part in e['loc'][1:2])}: {e['msg']}".lstrip(": "),
                "at most 24 of KEY=VALUE, with a value of 1 to 50 characters",
            )
            for e in error.errors()
        ]
        raise InvalidInputError(problems, what="option") from None


def _vary(text: str, steps: int) -> Mapping[str, object]:
    key, sign, ends = text.partition("=")
    low, dots, high = ends.partition("..")
    if not (sign and dots and key.strip() and low.strip() and high.strip()):
        problem = FieldProblem("--vary", f"{text!r} is not KEY=FROM..TO", 'such as "interval=1 s..60 s"')
        raise InvalidInputError([problem], what="option")
    return {"key": key.strip(), "low": low.strip(), "high": high.strip(), "count": steps}


def _awaited(client: Client, path: str) -> ConfirmationOut:
    """Wait until the confirmation has ended, and show its progress. Ctrl-C cancels it."""
    from backend.contracts.whatif import ConfirmationOut

    try:
        with _progress() as show:
            while True:
                confirmation = client.get(path, ConfirmationOut)
                show(confirmation.progress_ratio)
                if confirmation.state.is_terminal:
                    return confirmation
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        try:
            client.delete(path)
        except (BarrierscopeError, KeyboardInterrupt) as error:
            why = str(error) or "it was interrupted once more"
            _warn(f"interrupted; the confirmation could not be cancelled, and may still run on the server: {why}")
        else:
            _warn("interrupted; the confirmation is cancelled, and the server stops it within seconds")
        raise


def _warn(words: str) -> None:
    typer.echo(f"barrierscope: {printable(words)}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reference runtime", total=1.0)
        yield lambda ratio: bar.update(task, completed=ratio)
