"""Shows a status as icon, word and colour, always all three together."""

from __future__ import annotations

from typing import Any

from dash import html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointOut, VerdictOut
from backend.contracts.engines import CapabilitiesOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.checkpoint_mode import MODE_WORDS
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind
from dashboard import text
from dashboard.components.attributes import attrs
from dashboard.palette import HEALTH_ICONS, HEALTH_WORDS, PHASE_WORDS, STATUS_ICONS, STATUS_WORDS, Tone

KIND_WORDS: dict[VerdictKind, str] = {
    VerdictKind.NONE: "nothing wrong",
    VerdictKind.CAPACITY: "vertex at capacity",
    VerdictKind.STRAGGLER: "straggler",
    VerdictKind.SKEW: "key skew",
    VerdictKind.SYNC: "slow sync",
    VerdictKind.STORE: "checkpoint store",
    VerdictKind.LATE_INPUT: "late input",
    VerdictKind.FAILING_SUBTASK: "failing subtask",
    VerdictKind.CALLBACK: "long callback",
    VerdictKind.COMMIT: "outside commit",
    VerdictKind.COORDINATOR: "coordinator",
    VerdictKind.REPLAY: "replaying data",
    VerdictKind.SLOW_HOST: "slow host",
    VerdictKind.RESTARTS: "restart loop",
    VerdictKind.LOST_ROWS: "output lost",
    VerdictKind.REFUSED: "refused",
    VerdictKind.GROWTH: "growth",
    VerdictKind.CHECKPOINTING_OFF: "no checkpoints",
    VerdictKind.UNDECIDED: "undecided",
}
KIND_ICONS: dict[VerdictKind, str] = {
    VerdictKind.NONE: "check",
    VerdictKind.CAPACITY: "gauge",
    VerdictKind.STRAGGLER: "straggler",
    VerdictKind.SKEW: "skew",
    VerdictKind.SYNC: "sync",
    VerdictKind.STORE: "store",
    VerdictKind.LATE_INPUT: "clock",
    VerdictKind.FAILING_SUBTASK: "bolt",
    VerdictKind.CALLBACK: "hourglass",
    VerdictKind.COMMIT: "plug",
    VerdictKind.COORDINATOR: "link",
    VerdictKind.REPLAY: "play",
    VerdictKind.SLOW_HOST: "flame",
    VerdictKind.RESTARTS: "swap",
    VerdictKind.LOST_ROWS: "drop",
    VerdictKind.REFUSED: "refused",
    VerdictKind.GROWTH: "growth",
    VerdictKind.CHECKPOINTING_OFF: "pause",
    VerdictKind.UNDECIDED: "question",
}
HEALTH_TONES = {
    Health.HEALTHY: Tone.GOOD,
    Health.SLOW: Tone.WARN,
    Health.FAILING: Tone.BAD,
    Health.RESTARTING: Tone.BAD,
    Health.INTERMITTENT: Tone.WARN,
    Health.TOO_FEW: Tone.QUIET,
    Health.OFF: Tone.WARN,
}
STATUS_TONES = {
    CheckpointStatus.COMPLETED: Tone.GOOD,
    CheckpointStatus.FAILED: Tone.BAD,
    CheckpointStatus.IN_PROGRESS: Tone.INFO,
}
JUDGEMENT_TONES = {"progressing": Tone.GOOD, "slow": Tone.WARN, "stuck": Tone.BAD, "ended": Tone.QUIET}
JUDGEMENT_ICONS = {"progressing": "progress", "slow": "hourglass", "stuck": "cross", "ended": "check"}
_TARGET_STATES = {
    "ok": (Tone.GOOD, "check"),
    "pending": (Tone.QUIET, "progress"),
    "unreachable": (Tone.BAD, "cross"),
    "malformed": (Tone.BAD, "cross"),
    "partial": (Tone.BAD, "warning"),
    "silent": (Tone.BAD, "question"),
    "paused": (Tone.QUIET, "pause"),
}
TARGET_TONES = {state: tone for state, (tone, _) in _TARGET_STATES.items()}
TARGET_ICONS = {state: icon_name for state, (_, icon_name) in _TARGET_STATES.items()}
_BASIS_HINTS = {
    Basis.MEASURED: "reported by the engine",
    Basis.RECONSTRUCTED: "computed from what the engine reported",
    Basis.PREDICTED: "an estimate, not an observation",
}


def icon(name: str) -> html.Span:
    """Build a decorative icon. The caller puts a word with the same meaning next to it."""
    return html.Span(className=f"icon icon-{name}", **attrs({"aria-hidden": "true"}))


def badge(word: str, icon_name: str, tone: Tone, *, hint: str | None = None) -> html.Span:
    """Build a badge: an icon and a word in the colour of ``tone``."""
    more: dict[str, Any] = {"title": hint} if hint else {}
    return html.Span([icon(icon_name), html.Span(word)], className=f"badge tone-{tone}", **more)


def clock(offset_ms: int | None) -> list[Component]:
    """Return a badge if the engine's clock differs from ours so much that times would be misread, or else nothing."""
    words = text.clock_difference(offset_ms)
    hint = "the times of checkpoints and events are on the engine's clock, all ages are corrected"
    return [] if words is None else [badge(words, "clock", Tone.WARN, hint=hint)]


def health(value: Health) -> html.Span:
    """Build a badge with the health of a job's checkpoints."""
    return badge(HEALTH_WORDS[value], HEALTH_ICONS[value], HEALTH_TONES[value], hint="health of the checkpoints")


def checkpoint_status(value: CheckpointStatus) -> html.Span:
    """Build a badge with the status of a checkpoint."""
    return badge(STATUS_WORDS[value], STATUS_ICONS[value], STATUS_TONES[value])


def checkpoint(value: CheckpointOut) -> html.Span:
    """Build a badge with the status of a checkpoint.

    If the run ended before the checkpoint did, the badge states that the end of the checkpoint was not seen.
    """
    if value.is_lost:
        return badge("end not seen", "question", Tone.QUIET, hint="its run ended while it was in progress")
    return checkpoint_status(value.status)


def verdict_tone(verdict: VerdictOut, health_value: Health | None = None) -> Tone:
    """Return the tone of a verdict. It is ``BAD`` only if the checkpoints fail or the job restarts all the time.

    A snapshot part that takes most of the time of healthy checkpoints is no warning.
    """
    if verdict.kind is VerdictKind.NONE:
        return Tone.GOOD
    is_leisurely = health_value is Health.HEALTHY and verdict.kind in (VerdictKind.SYNC, VerdictKind.STORE)
    if verdict.kind is VerdictKind.UNDECIDED or is_leisurely:
        return Tone.QUIET
    return Tone.BAD if health_value in (Health.FAILING, Health.RESTARTING) else Tone.WARN


def kind_word(value: VerdictKind, engine: CapabilitiesOut | None = None) -> str:
    """Return the words for what limits the job.

    A query that runs in micro-batches has no vertices, so other words are used for it.
    """
    is_query = engine is not None and engine.is_micro_batched and value is VerdictKind.CAPACITY
    return "query at capacity" if is_query else KIND_WORDS[value]


def kind(verdict: VerdictOut, tone: Tone, engine: CapabilitiesOut | None = None) -> html.Span:
    """Build a badge with the kind of a verdict."""
    return badge(kind_word(verdict.kind, engine), KIND_ICONS[verdict.kind], tone, hint="what limits the job")


def mode(value: str | None, course: str | None = None) -> html.Span:
    """Build a chip with the alignment mode of a checkpoint or job, or with how the checkpoint went (``course``)."""
    if value is None:
        return html.Span("mode not reported", className="chip", title="not reported by the engine")
    words = course or mode_word(value)
    return html.Span(
        [html.Span(className=f"swatch mode-{value}"), words], className="chip chip-wraps" if course else "chip"
    )


def mode_word(value: str) -> str:
    """Return the words for an alignment mode."""
    return MODE_WORDS.get(value, value)


def phase(value: Phase | None) -> html.Span:
    """Build a chip with a phase and its colour."""
    if value is None:
        return html.Span("–", className="missing", title="no phase stands out, or none was reported")
    return html.Span([html.Span(className=f"swatch phase-{value.value}"), PHASE_WORDS[value]], className="chip")


def basis(value: Basis) -> html.Span:
    """Build the mark of a number that was reconstructed or predicted. A measured number has no mark."""
    if value is Basis.MEASURED:
        return html.Span(hidden=True)
    return html.Span(value.value, className=f"basis basis-{value.value}", title=_BASIS_HINTS[value])


def confidence(value: Confidence) -> html.Span:
    """Build a chip that states how strong the evidence is."""
    return html.Span(f"{value.value} confidence", className="chip", title="how strong the evidence is")


def failure(checkpoint: CheckpointOut) -> html.Span | None:
    """Build a chip with the reason why a checkpoint failed. Return None if it did not fail."""
    if checkpoint.status is not CheckpointStatus.FAILED:
        return None
    reason = checkpoint.failure_reason.value if checkpoint.failure_reason else "no reason given"
    return html.Span(reason, className="chip", title=checkpoint.failure_message or "the engine gave no message")
