"""Formats advice as lines of text or markdown, which ``diagnose`` and ``barrierscope advise`` print.

Names in the advice come from the engine and are not trusted. In markdown, each of their characters that could form
markup, a link or a mention is escaped. Lines of settings are never wrapped, so that a person can copy them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from backend.analysis.words import sentences as say
from backend.contracts.advice import (
    AdviceEvidenceOut,
    CardOut,
    ExpectedOut,
    IntervalOut,
    LintOut,
    MeasuredOut,
    RecommendationOut,
    SilenceOut,
)
from backend.domain.advice import Metric
from backend.domain.text import capitalised

_LABEL_WIDTH = 15
_METRIC = {
    Metric.DURATION: "end-to-end duration",
    Metric.PERSISTED: "persisted in-flight data",
    Metric.EXPIRED: "checkpoints that expire",
    Metric.RESTORE: "longer restore",
    Metric.WRITTEN: "written by a checkpoint",
    Metric.OPEN_RATIO: "time with a checkpoint",
    Metric.REPLAYED: "input to replay",
    Metric.RECOVERY: "recovery from a failure",
    Metric.LOST: "time lost",
    Metric.FAILOVERS: "restarts by failed checkpoints",
    Metric.STORED: "retained checkpoints",
    Metric.THROUGHPUT: "throughput",
}
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~$!])")
_LIST_START = re.compile(r"^(\d*)([-+=.)])(?=\s|$)")


def escaped(text: str) -> str:
    """Return ``text`` as one line that CommonMark and GitHub show literally, without markup, links or mentions."""
    flat = " ".join(text.split()).replace("&", "&amp;")
    flat = _MARKUP.sub(r"\\\1", flat)
    flat = _LIST_START.sub(r"\1\\\2", flat)
    return flat.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def metric_words(metric: Metric) -> str:
    """Return the name of a predicted metric as it is shown to people."""
    return _METRIC[metric]


def expected_words(e: ExpectedOut) -> str:
    """Format a prediction, such as ``4.8 s -> 228 ms (202 ms to 441 ms), predicted``."""
    span = _span(e.predicted, e.unit, e.metric)
    before = ""
    if e.before is not None:
        least = "at least " if e.is_before_at_least else ""
        before = f"{least}{say.quantity(e.before, e.unit, e.metric)} -> "
    return f"{before}{say.quantity(e.predicted.value, e.unit, e.metric)} ({span}), predicted"


def state_words(card: CardOut) -> str:
    """Format the state of a card and its reason, such as ``verified: 2 of 2 predictions held over 5 checkpoints``."""
    return f"{card.state.word([m.is_inside for m in card.measured])}: {card.state_reason}"


def measured_words(m: MeasuredOut) -> str:
    """Format a comparison, such as ``predicted 202 ms to 441 ms, measured 231 ms over 5 checkpoints: inside``."""
    span, measured = _span(m.predicted, m.unit, m.metric), say.quantity(m.measured, m.unit, m.metric)
    inside = "inside" if m.is_inside else "outside"
    return f"predicted {span}, measured {measured} over {m.checkpoint_count} checkpoints: {inside}"


def _span(interval: IntervalOut, unit: str, metric: Metric) -> str:
    return f"{say.quantity(interval.low, unit, metric)} to {say.quantity(interval.high, unit, metric)}"


def evidence_words(row: AdviceEvidenceOut) -> str:
    """Format one row of evidence: its statement, value, vertex, subtasks, checkpoints, time window and basis."""
    value = "" if row.value is None else f": {say.quantity(row.value, row.unit, row.metric)}"
    notes = []
    if row.vertex is not None and row.metric != "verdict":
        who = f", {say.subtasks(row.subtasks)}" if row.subtasks else ""
        notes.append(f"{say.vertex(row.vertex)}{who}")
    if row.checkpoint_ids:
        notes.append(ids_words(row.checkpoint_ids))
    if row.since is not None and row.until is not None:
        notes.append(f"{row.since:%H:%M:%S} to {row.until:%H:%M:%S} UTC")
    tail = f" ({'; '.join(notes)})" if notes else ""
    return f"{row.statement}{value}{tail}; {row.metric}, {row.basis.value}"


def ids_words(ids: Sequence[int]) -> str:
    """Format checkpoint ids as ranges, such as ``checkpoints 3-7, 9``."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    text = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"checkpoint{'' if len(ids) == 1 else 's'} {text}"


def silence_lines(silences: Sequence[SilenceOut]) -> list[str]:
    """Format the reasons why there is no recommendation, one line for all topics with the same reason."""
    topics: dict[tuple[str, str], list[str]] = {}
    for silence in silences:
        topics.setdefault((silence.reason, silence.rule), []).append(silence.topic.value.replace("-", " "))
    return [f"nothing on {say.listed(names)}: {reason} ({rule})" for (reason, rule), names in topics.items()]


def facts(advice: RecommendationOut) -> list[tuple[str, str]]:
    """Return (label, text) for each fact of a recommendation except its settings, in reading order."""
    found = [("why", advice.reason)]
    found += [(metric_words(e.metric), expected_words(e)) for e in advice.expected]
    found += [("no prediction", text) for text in advice.unpredicted]
    found += [("do", text) for text in advice.how_to.steps]
    found += [("restart", "needed" if advice.how_to.needs_restart else "not needed, it changes while it runs")]
    found += [("confidence", f"{advice.confidence.value}: {advice.confidence_reason}")]
    found += [("needs", _precondition(p.text, is_met=p.is_met)) for p in advice.preconditions]
    found += [("risk", text) for text in advice.risks]
    found += [("will not cure", text) for text in advice.will_not_cure]
    found += [("withdrawn if", text) for text in advice.withdrawn_if]
    found += [("evidence", evidence_words(row)) for row in advice.evidence]
    found += [(f"how, {metric_words(e.metric)}", e.method) for e in advice.expected]
    return found


def lint_words(lint: LintOut) -> str:
    """Format a lint as one line, without the explanation."""
    return f"{lint.headline}. {lint.cure} ({lint.code})"


def as_text(
    recommendations: Sequence[RecommendationOut],
    silences: Sequence[SilenceOut],
    lints: Sequence[LintOut] = (),
    *,
    width: int,
) -> list[str]:
    """Return the advice on one job as lines of at most ``width`` characters. Only lines with settings may be longer."""
    lines: list[str] = []
    for advice in recommendations:
        lines += _wrapped(f"advice: {advice.headline} ({', '.join(advice.rules)})", "", width)
        if advice.changes:
            lines += ["", *_wrapped(f"in {advice.how_to.file}", "  ", width)]
        lines += [f"  - {c.key}: {c.current}" for c in advice.changes if c.current is not None]
        lines += [f"  + {c.key}: {c.proposed}" for c in advice.changes]
        if advice.how_to.rollback_lines:
            lines += ["", "  to undo it", *(f"    {line}" for line in advice.how_to.rollback_lines)]
        lines.append("")
        for label, text in facts(advice):
            lines += _labelled(label, text, width)
        lines.append("")
    for line in silence_lines(silences):
        lines += _wrapped(f"advice: {line}", "", width)
    for lint in lints:
        lines += _wrapped(f"{lint.level.value}: {lint_words(lint)}", "", width)
        lines += _wrapped(lint.detail, "  ", width)
    return lines


def as_markdown(
    recommendations: Sequence[RecommendationOut], silences: Sequence[SilenceOut], lints: Sequence[LintOut] = ()
) -> list[str]:
    """Return the advice on one job as markdown for a change ticket. Its headings have level four."""
    lines: list[str] = []
    for advice in recommendations:
        lines += [f"#### Advice: {escaped(advice.headline)}", "", escaped(advice.reason), ""]
        if advice.changes:
            lines += ["```diff"]
            lines += [f"- {c.key}: {c.current}" for c in advice.changes if c.current is not None]
            lines += [f"+ {c.key}: {c.proposed}" for c in advice.changes]
            lines += ["```", "", f"In {escaped(advice.how_to.file)}. To undo it:", "", "```yaml"]
            lines += [*advice.how_to.rollback_lines, "```", ""]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {capitalised(label)} | {escaped(text)} |" for label, text in facts(advice)[1:]]
        lines.append(f"| Rules | {escaped(', '.join(advice.rules))} |")
        lines.append("")
    for line in silence_lines(silences):
        lines += [f"Advice: {escaped(line)}", ""]
    for lint in lints:
        words = f"{escaped(lint_words(lint))} {escaped(lint.detail)} Source: {lint.source}"
        lines += [f"{lint.level.value.capitalize()}: {words}", ""]
    return lines


def _precondition(text: str, *, is_met: bool | None) -> str:
    state = {True: "met", False: "NOT met", None: "check it: not readable from here"}[is_met]
    return f"{text} ({state})"


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ") or [""]


def _labelled(label: str, text: str, width: int) -> list[str]:
    first = f"  {label.ljust(_LABEL_WIDTH)} "
    if len(label) > _LABEL_WIDTH:
        return [f"  {label}", *_wrapped(text, " " * (_LABEL_WIDTH + 3), width)]
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first)) or [first]
