"""Builds the card that stands first on both pages of comparison: what differs in the settings and in the job graphs."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from backend.contracts.comparing import ComparedJobOut, SettingPairOut, SettingValue
from backend.domain.text import capitalised
from dashboard import text
from dashboard.components import cards, status
from dashboard.palette import Tone

_WORDS = {
    "alignment": "Alignment of barriers",
    "mode": "Mode",
    "interval_ms": "Interval",
    "timeout_ms": "Timeout",
    "min_pause_ms": "Min pause",
    "max_concurrent": "Max concurrent",
    "is_unaligned_enabled": "Unaligned",
    "aligned_timeout_ms": "Aligned timeout",
    "tolerable_failed_count": "Tolerable failures",
    "state_backend": "State backend",
    "checkpoint_storage": "Storage",
    "inflight_cap_bytes": "In-flight cap",
    "debloat_target_ms": "Debloating target",
    "protocol": "Protocol",
    "spilling": "Spilling",
    "is_off": "Periodic checkpoints off",
    "ends_with_first_task": "Ends with the first task",
    "engine": "Engine",
    "engine_version": "Engine version",
}
_UNLIMITED = 2**31 - 1

Pair = tuple[str, str]
"""How the page calls the two sides."""


def card(
    settings: Sequence[SettingPairOut], names: Pair, jobs: tuple[ComparedJobOut, ComparedJobOut], *, hint: str
) -> Component:
    """Build the card: settings that differ, those that are not known on a side, and the same ones folded."""
    differing = [s for s in settings if s.is_different]
    same = [s for s in settings if s.is_known and not s.is_different]
    unknown = [s for s in settings if not s.is_known]
    parts: list[Component] = [_headline(differing, same, names, jobs)]
    heads = ("Setting", *names)
    if differing:
        table = cards.table(heads, [row(s) for s in differing])
        parts.append(html.Div(table, className="table-scroll", id="settings-differing"))
    parts += _only(names, jobs)
    parts += _folded(heads, same, "1 setting is the same", "{} settings are the same")
    parts += _folded(heads, unknown, "1 is not known on one side", "{} are not known on one side")
    return cards.card("Settings", parts, hint=hint)


def _headline(
    differing: Sequence[SettingPairOut],
    same: Sequence[SettingPairOut],
    names: Pair,
    jobs: tuple[ComparedJobOut, ComparedJobOut],
) -> Component:
    missing = [name for name, job in zip(names, jobs, strict=True) if not job.are_settings_known]
    known = text.counted(len(differing), "setting") + (" differs" if len(differing) == 1 else " differ")
    parts: list[Component] = []
    if missing:
        words = f"settings of {' and '.join(missing)} not known"
        parts.append(status.badge(words, "question", Tone.QUIET))
    if differing:
        parts.append(status.badge(known, "warning", Tone.WARN))
    elif same and not missing:
        parts.append(status.badge("same settings", "check", Tone.GOOD))
    elif not missing:
        parts.append(status.badge("no setting is known on both sides", "question", Tone.QUIET))
    return html.P(parts, className="settings-headline")


def _only(names: Pair, jobs: tuple[ComparedJobOut, ComparedJobOut]) -> list[Component]:
    found: list[Component] = []
    for name, job in zip(names, jobs, strict=True):
        if job.only_vertex_count:
            listed = ", ".join(text.short(v, 40) for v in job.only_vertices[:10])
            rest = job.only_vertex_count - min(10, len(job.only_vertices))
            more = f" and {rest} others" if rest else ""
            number = text.counted(job.only_vertex_count, "vertex", "vertices")
            found.append(html.P(f"Only {name} has {number}: {listed}{more}.", className="hint"))
    return found


def _folded(heads: Sequence[str], pairs: Sequence[SettingPairOut], one: str, many: str) -> list[Component]:
    if not pairs:
        return []
    summary = html.Summary(one if len(pairs) == 1 else many.format(len(pairs)))
    table = cards.table(heads, [row(s) for s in pairs])
    return [html.Details([summary, html.Div(table, className="table-scroll")], className="events")]


def row(pair: SettingPairOut) -> html.Tr:
    """Build the row of one setting."""
    cells: list[Component] = [html.Td(_WORDS.get(pair.name, capitalised(pair.name)))]
    for value in (pair.a, pair.b):
        words = _value(pair.name, value, is_known=pair.is_known)
        cells.append(html.Td(html.B(words) if pair.is_different else words, className="number"))
    return html.Tr(cells, className="is-different" if pair.is_different else "")


def _value(name: str, value: SettingValue, *, is_known: bool) -> str:
    if value is None:
        return "off" if is_known else "not known"
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    if isinstance(value, str):
        return value.replace("_", " ").replace("-", " ") if name in ("mode", "alignment") else value
    if name.endswith("_ms"):
        return text.duration(value)
    if name.endswith("_bytes"):
        return text.size(value)
    return "unlimited" if value >= _UNLIMITED else text.count(value)
