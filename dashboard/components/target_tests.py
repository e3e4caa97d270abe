"""Shows the result of a connection test of a target."""

from __future__ import annotations

from dash.development.base_component import Component

from backend.contracts.api import TargetTestOut
from backend.domain.text import capitalised
from dashboard import text
from dashboard.components import cards

_NAMES_MAX = 6
_THIS_FORM = "The form now has this address: test or add it."


def answer(result: TargetTestOut, *, on_other_root: str = _THIS_FORM) -> Component:
    """Build the answer to a test. ``on_other_root`` is what follows if the target answers at another path."""
    if result.root is not None:
        return cards.answer(False, f"{result.problem}. {on_other_root}")
    if not result.is_ok:
        cure = f" {capitalised(result.cure)}." if result.cure else ""
        problem = (result.problem or "No answer").rstrip(".")
        return cards.answer(False, f"{problem} (after {text.duration(result.duration_ms)}).{cure}")
    engine = result.summary or " ".join(p for p in (result.engine or "engine", result.engine_version) if p)
    names = ", ".join(text.short(j, 40) for j in result.running_jobs[:_NAMES_MAX])
    more = f" and {len(result.running_jobs) - _NAMES_MAX} more" if len(result.running_jobs) > _NAMES_MAX else ""
    jobs = f"running: {names}{more}" if result.running_jobs else "no running job"
    return cards.answer(True, f"Connected: {engine}, {jobs} ({text.duration(result.duration_ms)}).")
