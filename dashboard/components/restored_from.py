"""Shows from which checkpoint a run was last restored, by which job it was taken, and what was left out."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import RestoredFromOut
from dashboard import routes, text
from dashboard.components.attributes import attrs

_SHOWN_MAX = 5


def restored_from(origin: RestoredFromOut, job_id: str) -> html.P:
    """Build the sentences on what a run of the job ``job_id`` was restored from, with a link if it is stored."""
    name = f"{'savepoint' if origin.is_savepoint else 'checkpoint'} {origin.checkpoint_id}"
    place = {"title": origin.location} if origin.location else {}
    named: Component = html.Span(name, **attrs(place))
    if origin.job_id is not None and origin.run_id is not None:
        href = routes.checkpoint(origin.job_id, origin.run_id, origin.checkpoint_id)
        named = dcc.Link(name, href=href, **attrs(place))
    words = ""
    if origin.job and origin.job_id != job_id:
        words += f" of the job {origin.job}"
    kind = (origin.kind or "").strip()
    if kind:
        words += f", {_article(kind)} {kind}"
    if origin.is_claimed is not None:
        words += ", which it claimed and owns now" if origin.is_claimed else ", which it did not claim"
    return html.P(
        ["Last restored from ", named, f"{words}. {_left_out(origin.left_out, origin.left_out_more)}".rstrip()],
        className="hint restored-from",
    )


def _article(words: str) -> str:
    return "an" if words[0] in "aeiou" else "a"


def _left_out(operators: list[str] | None, unlisted: int) -> str:
    if operators is None:
        return ""
    if not operators:
        return "No state was left out."
    shown = ", ".join(operators[:_SHOWN_MAX])
    count = len(operators) + unlisted
    more = f" and {count - _SHOWN_MAX} more" if count > _SHOWN_MAX else ""
    return f"The state of {text.counted(count, 'operator')} was left out: {shown}{more}."
