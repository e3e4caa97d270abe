"""``barrierscope whatif JOB``: predicts a job's checkpoints under other settings, through the running API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.dry_runs import lines_of
from backend.cli.options import pairs, say
from backend.cli.targets import Api, Client
from backend.domain.engines import SettingsFormat
from backend.domain.errors import BarrierscopeError, FieldProblem, InvalidInputError
from backend.domain.text import printable

if TYPE_CHECKING:
    from backend.contracts.advice import IntervalOut
    from backend.contracts.whatif import (
        CalibrationOut,
        ConfirmationOut,
        EstimateOut,
        MeasuredNowOut,
        PredictionOut,
        WhatIfIn,
        WhatIfOut,
    )

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
    from backend.contracts.whatif import WhatIfOut

    if dry_run:
        _refuse_beside_dry_run({"--vary": vary is not None, "--confirm": confirm, "--export": export is not None})
    wanted = _wanted(settings or [], vary, steps, confirm=confirm)
    if dry_run:
        _try_out(job, wanted, api, as_json=as_json)
        return
    with Client(api) as client:
        root = f"/api/v1/jobs/{client.job_id(job)}/whatif"
        try:
            answer = client.post(root, wanted, WhatIfOut)
        except KeyboardInterrupt:
            if confirm:
                _warn("interrupted before the server answered; a confirmation may still run there, and ends by itself")
            raise
        if answer.confirmation is not None:
            path = f"{root}/confirmations/{answer.confirmation.id}"
            answer = answer.model_copy(update={"confirmation": _awaited(client, path)})
    if export is not None:
        typer.echo(_exported(answer, export))
    elif as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        say(*_text(answer))
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

    changed = pairs(settings, option="--set")
    if len(changed) < len(settings):
        names = [text.partition("=")[0].strip() for text in settings]
        twice = ", ".join(name for name in changed if names.count(name) > 1)
        raise InvalidInputError([FieldProblem("--set", f"{twice} is set twice", "one value")], what="option")
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
                found = client.get(path, ConfirmationOut)
                show(found.progress_ratio)
                if found.state.is_terminal:
                    return found
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


def _text(answer: WhatIfOut) -> list[str]:
    lines = [f"{answer.job} ({answer.job_id}), {len(answer.checkpoint_ids)} checkpoints under the current settings", ""]
    lines.append(f"{'':<24} {'measured':>34} {'as it is':>30} {'changed':>30} {'model error':>12}")
    measured = {m.measure: m for m in answer.measured}
    as_is = {e.measure: e for e in answer.current.estimates}
    for estimate in answer.asked.estimates:
        now = measured.get(estimate.measure)
        lines.append(
            f"{estimate.measure.value:<24} {_measured(now, len(answer.checkpoint_ids)):>34}"
            f" {_span(as_is.get(estimate.measure)):>30} {_span(estimate):>30}"
            f" {_error(estimate, answer.calibration):>12}"
        )
    lines += _failures(answer)
    if answer.asked.problem is not None:
        lines.append(f"no prediction: {answer.asked.problem}")
    lines += ["", f"predicted by the tier {answer.asked.tier.value}; an interval holds 90 % of the next checkpoints"]
    lines.append("measured: the interval of a share is Wilson's at 90 %; any other holds the middle 90 %")
    lines += [f"note: {note}" for note in (*answer.asked.notes, *_unscored(answer))]
    if answer.others:
        lines += ["", *_table([answer.current, answer.asked, *answer.others])]
    lines += ["", *_trust(answer), *_how(answer)]
    if answer.confirmation is not None:
        lines += ["", *_confirmed(answer.confirmation)]
    return lines


def _measured(now: MeasuredNowOut | None, count: int) -> str:
    """Return a measured value with its interval. A share says of how many checkpoints it is.

    A share of few checkpoints is their count, because it says little about the next.
    """
    from backend.contracts.whatif import FEW_COUNT, Measure

    if now is None or now.value is None:
        return "-"
    words = _number(now.value, now.unit)
    if now.measure is Measure.EXPIRED and count:
        counted = f"{round(now.value * count)} of {count}"
        words = counted if count < FEW_COUNT else f"{words}, {counted}"
    if now.low is None or now.high is None:
        return words
    return f"{words} ({_number(now.low, now.unit)} to {_number(now.high, now.unit)})"


def _failures(answer: WhatIfOut) -> Iterator[str]:
    as_is = {f.failure: f for f in answer.current.failures}
    for cost in answer.asked.failures:
        before = as_is.get(cost.failure)
        yield ""
        yield f"if a {cost.failure.value} fails ({cost.how}):"
        for words, name in (
            ("outage", "outage_ms"),
            ("input read again", "replay_ms"),
            ("catch-up", "catch_up_ms"),
            ("until caught up", "recovery_ms"),
        ):
            was, would = getattr(before, name, None), getattr(cost, name)
            yield f"  {words:<22} {'-':>34} {_interval(was, 'ms'):>30} {_interval(would, 'ms'):>30} {'-':>12}"


def _table(rows: Sequence[PredictionOut]) -> Iterator[str]:
    yield f"{'what-if':<52} {'duration':>30} {'persisted':>30} {'expire':>8}  front"
    for row in rows:
        name = ", ".join(f"{k}={v}" for k, v in row.settings.items()) or "as it is"
        if row.problem is not None:
            yield f"{name:<52} {row.problem}"
            continue
        by_name = {e.measure.value: e for e in row.estimates}
        expired = by_name["expired_ratio"].predicted
        share = "-" if expired is None else f"{100 * expired.value:.0f} %"
        yield (
            f"{name:<52} {_span(by_name['end_to_end_duration_ms']):>30} {_span(by_name['persisted_bytes']):>30}"
            f" {share:>8}  {'*' if row.is_on_front else ''}"
        )


def _trust(answer: WhatIfOut) -> Iterator[str]:
    from backend.contracts.whatif_scores import error_words

    scored = answer.calibration
    if scored is None:
        yield "the model could not be scored on checkpoints that it was not fitted on"
    else:
        yield f"fitted on {len(scored.fitted_ids)} checkpoints, scored on {len(scored.scored_ids)} later ones:"
        for e in scored.errors:
            error = error_words(e) or "-"
            yield f"  {e.measure}: {e.predicted:.6g} {e.unit} predicted, {e.measured:.6g} measured ({error})"
    for assumed in answer.assumptions:
        yield f"assumed: {assumed.subject}: {assumed.taken} ({assumed.reason})"


def _how(answer: WhatIfOut) -> Iterator[str]:
    if answer.changes:
        yield ""
        yield f"to make the change ({answer.how_to.file}):"
        yield from (f"  {line}" for line in answer.how_to.lines)
    yield from answer.by_hand


def _confirmed(found: ConfirmationOut) -> Iterator[str]:
    if not found.predictions:
        yield f"confirmation {found.state.value}: {found.reason or 'no result'}"
        return
    yield "confirmed on the reference runtime:"
    before, after = ({e.measure: e for e in p.estimates} for p in found.predictions)
    for measure, estimate in after.items():
        error = _error(estimate, found.calibration)
        yield f"{measure.value:<24} {'':>34} {_span(before.get(measure)):>30} {_span(estimate):>30} {error:>12}"
    scored = found.calibration
    if scored is not None:
        yield f"The errors are those of the runtime, scored on {len(scored.scored_ids)} later checkpoints."


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 1e6:.3g} MB" if value >= 1e5 else f"{value:.0f} B"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _span(estimate: EstimateOut | None) -> str:
    if estimate is None or estimate.predicted is None:
        return "-"
    return _interval(estimate.predicted, estimate.unit)


def _interval(found: IntervalOut | None, unit: str) -> str:
    if found is None:
        return "-"
    return f"{_number(found.value, unit)} ({_number(found.low, unit)} to {_number(found.high, unit)})"


def _error(estimate: EstimateOut, scored: CalibrationOut | None) -> str:
    from backend.contracts.whatif_scores import error_of

    return "-" if estimate.predicted is None else error_of(estimate.measure, scored) or "not scored"


def _unscored(answer: WhatIfOut) -> Iterator[str]:
    """Return a sentence for each reason why predicted measures have no error of the model."""
    from backend.contracts.whatif_scores import error_of, why_not_scored

    by_reason: dict[str, list[str]] = {}
    for estimate in answer.asked.estimates:
        if estimate.predicted is not None and error_of(estimate.measure, answer.calibration) is None:
            why = why_not_scored(estimate.measure, answer.calibration)
            by_reason.setdefault(why, []).append(estimate.measure.value)
    for why, names in by_reason.items():
        yield f"not scored ({', '.join(names)}): {why}"
