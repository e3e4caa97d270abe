"""Shows the links out of Barrierscope: pages of the engine's web UI, and the links that users added to the target."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.links import LinkOut, LinksOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard.client import ApiClient
from dashboard.components import status
from dashboard.components.attributes import attrs


async def read(
    client: ApiClient,
    job: str,
    *,
    run: str | None = None,
    vertex: str | None = None,
    subtask: int | None = None,
    checkpoint: int | None = None,
) -> LinksOut | None:
    """Return the links, or None if the API does not return them. A page without its links is still useful."""
    try:
        return await client.links(job, run=run, vertex=vertex, subtask=subtask, checkpoint=checkpoint)
    except (ApiRefusedError, ApiUnavailableError):
        return None


def row(links: LinksOut | None) -> Component | None:
    """Build a row of the links that can be offered; return None if there are none.

    Links to one engine are grouped: ``Flink: job`` becomes *job* after the word *Flink*.
    """
    offered = [link for link in links.items if link.url] if links is not None else []
    if not offered:
        return None
    parts: list[Component] = [html.Span([status.icon("external"), "Open"], className="links-word")]
    group = ""
    for link in offered:
        head, _, name = link.name.partition(": ") if link.origin == "engine" else ("", "", link.name)
        if head and head != group:
            parts.append(html.Span(f"in {head}:", className="links-word"))
        group = head
        parts.append(_anchor(link, name or link.name))
    return html.Div(parts, className="links-out", **attrs({"role": "group", "aria-label": "Links out"}))


def _anchor(link: LinkOut, word: str) -> Component:
    # With this ``rel``, the opened page gets neither the address of this page nor access to its window.
    return html.A(word, href=link.url, target="_blank", rel="noopener noreferrer", title=f"{link.name}, in a new tab")
