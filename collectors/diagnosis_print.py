"""Formats the diagnosis of ``barrierscope diagnose`` as text, JSON or markdown.

The short text contains the verdict, its three strongest facts and the change to make. With ``--verbose``, the text
contains everything. Names come from a foreign engine. So the markdown format escapes every character that could start
markup, a link or a mention, and the text format interprets no markup. ``document.clean`` has already removed control
characters.
"""

from __future__ import annotations

import io
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backend.advisor.advice import Advice
from backend.analysis.words import sentences as say
from backend.contracts import advice_text
from backend.contracts.advice import AdviceOut, ExpectedOut
from backend.contracts.advice_text import escaped
from backend.contracts.api import DiagnosisOut, VerdictOut
from backend.contracts.replay_debt import ReplayDebtOut
from backend.domain.advice import LintLevel
from backend.domain.checkpoint_mode import AT_LEAST_ONCE, MODE_WORDS, AnyMode
from backend.domain.replay_debt import ReplayDebt, debt_sentence, origin_words
from backend.domain.verdict import Diagnosis, Evidence, Health, Verdict, VerdictKind

_WIDTH_MAX = 100
_WIDTH_MIN = 40
FACTS_MAX: Final = 3
"""Rows of evidence in the short text. They are the first rows, because a verdict lists its strongest evidence first."""
_SEEN = (
    "Each verdict is on the checkpoints that the target lists, by default the newest ten. Growth over days is not in"
    " them: a running Barrierscope stores the history, and the page of a job shows it."
)
_MORE = "More with --verbose: all evidence, and the reasons, risks and rollback of each change."

# Health is shown as an icon, a word and a colour, so that a reader who cannot see one of them still has the others.
HEALTH_WORDS = {
    Health.HEALTHY: ("✔", "healthy", "green"),
    Health.SLOW: ("▲", "slow", "yellow"),
    Health.FAILING: ("✖", "failing", "red"),
    Health.RESTARTING: ("✖", "restarting", "red"),
    Health.INTERMITTENT: ("▲", "intermittent", "yellow"),
    Health.TOO_FEW: ("?", "too few checkpoints", "cyan"),
    Health.OFF: ("▲", "checkpointing off", "yellow"),
}
_UNKNOWN_WORDS = ("?", "unknown", "cyan")
KIND_WORDS = {
    VerdictKind.NONE: "nothing holds the barrier",
    VerdictKind.CAPACITY: "vertex at capacity",
    VerdictKind.STRAGGLER: "straggler",
    VerdictKind.SKEW: "key skew",
    VerdictKind.SYNC: "slow sync part",
    VerdictKind.STORE: "checkpoint store",
    VerdictKind.LATE_INPUT: "late input",
    VerdictKind.FAILING_SUBTASK: "failing subtask",
    VerdictKind.CALLBACK: "long callback",
    VerdictKind.COMMIT: "waiting for an outside commit",
    VerdictKind.COORDINATOR: "coordinator",
    VerdictKind.REPLAY: "replaying in-flight data",
    VerdictKind.SLOW_HOST: "slow host",
    VerdictKind.RESTARTS: "restart loop",
    VerdictKind.LOST_ROWS: "output is lost",
    VerdictKind.REFUSED: "checkpoints are refused",
    VerdictKind.GROWTH: "something grows with each checkpoint",
    VerdictKind.CHECKPOINTING_OFF: "no checkpoint protects the state",
    VerdictKind.UNDECIDED: "not decided",
}


class DiagnosisFormat(StrEnum):
    """The output formats of ``barrierscope diagnose``."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """The diagnosis of one job and the advice for it.

    ``is_read`` is False if what the target reports about the job could not be read.
    """

    name: str
    engine_state: str
    diagnosis: Diagnosis
    considered_count: int
    as_of: datetime
    advice: Advice
    is_read: bool = True
    has_ended: bool = False

    debt: ReplayDebt | None = None
    """What a failure would restore; None if this is not known, or if the job has ended."""
    debt_ms: float | None = None
    """The age of ``debt`` when the job was read."""
    input_per_s: float | None = None
    """The records that all sources read in a second; None if this is not known."""
    mode: AnyMode | None = None
    """The checkpoint mode of its settings; None if they are unknown, or if the engine has no barriers."""
    is_micro_batched: bool = False
    is_batch: bool = False
    is_heard: bool = True
    """False if nothing was heard of the job for so long that it is not known whether it runs."""
    newest_ago: timedelta | None = None
    """The age of the newest micro-batch when a server was asked for it; None if this is not known."""
    is_advised: bool = True
    """Whether the advice was worked out in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The diagnoses of the jobs of one target.

    ``problems`` describes what could not be read. ``limits`` says what these readings cannot tell.
    """

    url: str
    engine: str
    jobs: tuple[JobAnswer, ...]
    problems: tuple[str, ...]
    request_count: int
    took_s: float
    as_of: datetime
    limits: tuple[str, ...] = ()
    unread_count: int = 0
    """The jobs without an answer: the time was over, or they could not be read."""


def printed(
    answer: Answer, output_format: DiagnosisFormat, *, is_terminal: bool = False, is_verbose: bool = False
) -> str:
    """Return the whole output in ``output_format``. It ends with a line break."""
    match output_format:
        case DiagnosisFormat.JSON:
            return as_json(answer)
        case DiagnosisFormat.MARKDOWN:
            return as_markdown(answer)
        case DiagnosisFormat.TEXT:
            return as_text(answer, is_terminal=is_terminal, is_verbose=is_verbose)


# --- json -----------------------------------------------------------------------------------------------------------


def as_json(answer: Answer) -> str:
    """Return ``{"jobs": [...], "limits": [...]}``.

    Each job is a ``DiagnosisOut`` of the API, with an ``AdviceOut`` under ``advice``.
    """
    jobs = [
        {
            **_diagnosis_out(job).model_dump(mode="json", exclude={"job_id"}),
            "mode": job.mode,
            "advice": _advice_out(job).model_dump(mode="json"),
        }
        for job in answer.jobs
    ]
    return orjson.dumps({"jobs": jobs, "limits": answer.limits}, option=orjson.OPT_INDENT_2).decode() + "\n"


def _diagnosis_out(job: JobAnswer) -> DiagnosisOut:
    return DiagnosisOut(
        job=job.name,
        health=job.diagnosis.health,
        verdict=VerdictOut.model_validate(job.diagnosis.verdict, from_attributes=True),
        as_of=job.as_of,
        checkpoints_considered=job.considered_count,
        **_debt_fields(job),
    )


def _debt_fields(job: JobAnswer) -> dict[str, Any]:
    if job.debt is None or job.debt_ms is None:
        return {}
    rate = job.input_per_s
    return {
        "replay_debt": ReplayDebtOut.of(job.debt, input_per_s=rate),
        "replay_debt_ms": job.debt_ms,
        "replay_debt_records": None if rate is None else rate * job.debt_ms / 1000,
    }


def _advice_out(job: JobAnswer) -> AdviceOut:
    return AdviceOut.model_validate(job.advice)


# --- text -----------------------------------------------------------------------------------------------------------


def as_text(answer: Answer, *, is_terminal: bool, is_verbose: bool) -> str:
    """Return a summary of at most 100 columns, in colours on a terminal."""
    columns = shutil.get_terminal_size((_WIDTH_MAX, 24)).columns if is_terminal else _WIDTH_MAX
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(_WIDTH_MIN, min(columns, _WIDTH_MAX)),
        force_terminal=is_terminal,
        color_system="auto" if is_terminal else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(Text(_headline(answer), style="dim"))
    for limit in answer.limits:
        console.print(Text(f"note: {limit}", style="dim"))
    for job in answer.jobs:
        console.print()
        if is_verbose:
            _print_job(console, job)
        else:
            _print_short(console, job)
    if answer.jobs:
        console.print()
        console.print(Text(_SEEN if is_verbose else _MORE, style="dim"))
    # A table pads its last column with blanks. They are removed, because a log or a mail would keep them.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _headline(answer: Answer) -> str:
    jobs = f"{len(answer.jobs)} job{'' if len(answer.jobs) == 1 else 's'}"
    took = say.duration(1000 * answer.took_s)
    read = f"{answer.request_count} requests in {took}" if answer.request_count else f"read in {took}"
    return f"{answer.url} · {answer.engine} · {jobs} · {read}"


def _print_short(console: Console, job: JobAnswer) -> None:
    verdict = job.diagnosis.verdict
    title = _title(job)
    title.append(f"  ({verdict.confidence.value} confidence)", style="dim")
    console.print(title)
    console.print(Padding(Text(verdict.sentence), (0, 0, 0, 2)))
    if verdict.evidence:
        console.print(Padding(_evidence_table(verdict.evidence[:FACTS_MAX], has_basis=False), (1, 0, 0, 2)))
    console.print()
    # If checkpoints complete, the debt is about an interval, and no reader needs to be told.
    shown = () if job.diagnosis.health in (Health.HEALTHY, Health.SLOW) else _debt(job)
    for label, text in (*shown, *_missing(job)):
        console.print(Padding(Text(f"{label}: {text}"), (0, 0, 0, 2)))
    for line in _change_lines(_advice_out(job), width=console.width - 2):
        # Lines with settings are not wrapped, so that they can be copied.
        console.print(Text(f"  {line}"), soft_wrap=True)


def _change_lines(advice: AdviceOut, *, width: int) -> list[str]:
    """Return the recommended changes with their predicted effects, and the lints that are no mere notes, as lines.

    If no change is recommended, the reason for the first topic that has one comes first.
    """
    lines: list[str] = []
    for change in advice.recommendations:
        restart = " (needs a restart)" if change.how_to.needs_restart else ""
        lines += textwrap.wrap(f"change: {change.headline}{restart}", width, subsequent_indent="  ")
        lines += [f"  + {c.key}: {c.proposed}" for c in change.changes]
        for step in change.how_to.steps:
            lines += textwrap.wrap(f"do: {step}", width, initial_indent="  ", subsequent_indent="    ")
        lines += [
            f"  {advice_text.metric_words(e.metric)}: {advice_text.expected_words(e)}"
            for e in change.expected
            if not _is_same(e)
        ]
    if not lines and advice.silences:
        lines = textwrap.wrap(f"change: none, {advice.silences[0].reason}", width, subsequent_indent="  ")
    for lint in advice.lints:
        if lint.level is not LintLevel.NOTE:
            lines += textwrap.wrap(f"{lint.level.value}: {advice_text.lint_words(lint)}", width, subsequent_indent="  ")
    return lines


def _is_same(expected: ExpectedOut) -> bool:
    """Return whether the prediction is that the value does not change."""
    predicted = expected.predicted
    return expected.before == predicted.value == predicted.low == predicted.high


def _health_words(job: JobAnswer) -> tuple[str, str, str]:
    return HEALTH_WORDS[job.diagnosis.health] if job.is_heard else _UNKNOWN_WORDS


def _title(job: JobAnswer) -> Text:
    icon, word, colour = _health_words(job)
    title = Text(f"{icon} {say.vertex(job.name)}", style="bold")
    title.append("  ")
    title.append(word, style=f"bold {colour}")
    title.append(f"  {KIND_WORDS[job.diagnosis.verdict.kind]}", style="bold")
    if job.mode == AT_LEAST_ONCE:
        # The other modes are told by the settings. This one changes what a failure costs.
        title.append(f"  {MODE_WORDS[job.mode]}", style="dim")
    return title


def _print_job(console: Console, job: JobAnswer) -> None:
    verdict = job.diagnosis.verdict
    console.print(_title(job))
    console.print(Padding(Text(verdict.sentence), (0, 0, 0, 2)))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in _facts(job):
        facts.add_row(Text(label), Text(value))
    console.print(Padding(facts, (1, 0, 0, 2)))
    if verdict.evidence:
        console.print(Padding(_evidence_table(verdict.evidence), (1, 0, 0, 2)))
    console.print()
    advice = _advice_out(job)
    for line in advice_text.as_text(advice.recommendations, advice.silences, advice.lints, width=console.width - 2):
        # Lines with settings are not wrapped, so that they can be copied.
        console.print(Text(f"  {line}" if line else ""), soft_wrap=True)


def _facts(job: JobAnswer) -> list[tuple[str, str]]:
    verdict = job.diagnosis.verdict
    rows = [("culprit", _culprit(verdict))] if verdict.vertex is not None else []
    if verdict.phase is not None:
        rows.append(("phase", verdict.phase.value.replace("-", " ")))
    if job.mode is not None:
        rows.append(("mode", MODE_WORDS[job.mode]))
    considered = say.checkpoints(job.considered_count)
    considered = (
        considered.replace("checkpoint", "micro-batch" if job.considered_count == 1 else "micro-batche")
        if job.is_micro_batched
        else considered
    )
    rows.append(("confidence", f"{verdict.confidence.value}, {considered} considered"))
    return [*rows, *_debt(job), *_missing(job)]


def _debt(job: JobAnswer) -> list[tuple[str, str]]:
    """Return the row on what a failure now would replay, and from where; none if this is not known."""
    if job.debt is None or job.debt_ms is None:
        return []
    words = debt_sentence(job.debt_ms, is_at_least=job.debt.is_at_least)
    return [("replay debt", f"{words}, {origin_words(job.debt.origin, job.debt.checkpoint_id)}")]


def _missing(job: JobAnswer) -> list[tuple[str, str]]:
    """Return labels and texts for the data that would decide the verdict but could not be read."""
    rows = []
    if job.newest_ago is not None:
        rows.append(("newest batch", f"{say.duration(job.newest_ago / timedelta(milliseconds=1))} ago"))
    if job.engine_state != "RUNNING" and not job.is_micro_batched:
        rows.append(("state", f"{job.engine_state}: the job does not run, so back-pressure could not be read"))
    rows.extend(("would decide", what) for what in job.diagnosis.verdict.would_decide)
    return rows


def _culprit(verdict: Verdict) -> str:
    # The sentence has the name without its middle. Here, where all facts stand, is the whole of it.
    name = " ".join((verdict.vertex or "").replace("<br/>", " ").split())
    who = f"{name}, {_ranges(verdict.subtasks)}" if verdict.subtasks else name
    who += f" ({verdict.last.subtask} last)" if verdict.last is not None else ""
    return f"{who} on {say.listed(verdict.hosts)}" if verdict.hosts else who


def _ranges(subtasks: Sequence[int]) -> str:
    """Return the subtasks as text, such as ``subtask 2`` or ``subtasks 0-3, 7``."""
    runs: list[list[int]] = []
    for i in sorted(subtasks):
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    text = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"subtask{'' if len(subtasks) == 1 else 's'} {text}"


def _evidence_table(rows: Sequence[Evidence], *, has_basis: bool = True) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    for row in rows:
        table.add_row(Text(_value(row), style="bold"), Text(row.statement), Text(row.basis.value if has_basis else ""))
    return table


def _value(row: Evidence) -> str:
    least = "> " if row.is_lower_bound else ""
    return "·" if row.value is None else f"{least}{say.quantity(row.value, row.unit, row.metric)}"


# --- markdown -------------------------------------------------------------------------------------------------------


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', '').split())}`"


def as_markdown(answer: Answer) -> str:
    """Return a markdown section for each job, to paste into a change ticket."""
    lines = [f"## Checkpoint diagnosis of {_code(answer.url)}", ""]
    seconds = say.duration(1000 * answer.took_s)
    lines += [
        f"{escaped(answer.engine)}, read {answer.as_of:%Y-%m-%d %H:%M:%S} UTC, "
        f"{answer.request_count} requests in {seconds}."
        if answer.request_count
        else f"read in {seconds}.",
        "",
    ]
    lines += [line for limit in answer.limits for line in (f"Note: {escaped(limit)}.", "")]
    if not answer.jobs:
        lines += ["No job.", ""]
    for job in answer.jobs:
        lines += _job_markdown(job)
    return "\n".join(lines).rstrip("\n") + "\n"


def _job_markdown(job: JobAnswer) -> list[str]:
    verdict = job.diagnosis.verdict
    _, word, _ = _health_words(job)
    lines = [
        f"### {escaped(say.vertex(job.name))}: {word}, {KIND_WORDS[verdict.kind]}",
        "",
        escaped(verdict.sentence),
        "",
        "| | |",
        "|---|---|",
        f"| Health | {word} |",
        f"| Cause | {KIND_WORDS[verdict.kind]} |",
    ]
    lines += [f"| {label.capitalize()} | {escaped(value)} |" for label, value in _facts(job)]
    if verdict.evidence:
        lines += ["", "| Evidence | Value | Basis |", "|---|---:|---|"]
        lines += [f"| {escaped(r.statement)} | {escaped(_value(r))} | {r.basis.value} |" for r in verdict.evidence]
    advice = _advice_out(job)
    return [*lines, "", *advice_text.as_markdown(advice.recommendations, advice.silences, advice.lints)]
