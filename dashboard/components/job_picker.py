"""Builds a list that chooses one of all jobs. It shows the jobs that match what was typed, never all of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html
from dash.development.base_component import Component

from backend.contracts.api import JobOut
from backend.contracts.board import BoardSort
from backend.contracts.comparing import ComparedJobOut
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient, BoardQuery
from dashboard.components.attributes import attrs

SHOWN_MAX = 20
"""The list has at most this many jobs."""
_BETWEEN = " · "

Option = dict[str, str]


def picker(id_: str, word: str) -> Component:
    """Build the list with its label."""
    return html.Label(
        [
            html.Span(word, className="hint"),
            # ``debounce`` would hold back a choice, which the answer to a search would undo meanwhile.
            dmc.Select(
                id=id_,
                data=[],
                searchable=True,
                allowDeselect=False,
                size="xs",
                maxDropdownHeight=320,
                placeholder="type a name or a target",
                nothingFoundMessage="no such job",
                className="job-picker",
                **attrs({"aria-label": f"{word}: type a name or a target"}),
            ),
        ],
        className="inline-field",
    )


def register(app: Dash, client: ApiClient, id_: str) -> None:
    """Register the callback that searches for jobs."""
    connect(
        app,
        partial(search, client),
        output={"options": Output(id_, "data", allow_duplicate=True)},
        inputs={"typed": Input(id_, "searchValue")},
        state={"value": State(id_, "value"), "options": State(id_, "data")},
        prevent_initial_call=True,
    )


async def search(client: ApiClient, *, typed: str | None, value: str | None, options: list[Option] | None) -> Changes:
    """Return the jobs that match, with the chosen one among them."""
    chosen = [o for o in options or () if o["value"] == value]
    # After a choice, the field has the text of the option, which is nothing that was typed.
    labels = [o["label"] for o in options or ()]
    words = "" if typed is None or typed in labels else typed.split(_BETWEEN)[0].strip()
    query = BoardQuery(0, SHOWN_MAX, sort=BoardSort.NAME, search=words[:200] or None, has_ended=True)
    found = [_option(row) for row in (await client.board(query)).rows]
    return {"options": [*found, *(o for o in chosen if o not in found)]}


def chosen(job: ComparedJobOut) -> tuple[list[Option], str]:
    """Return the options of a list that nobody has opened, and its value: the job that the page shows."""
    return [{"value": job.id, "label": f"{job.name}{_BETWEEN}{job.target_name}"}], job.id


def _option(row: JobOut) -> dict[str, Any]:
    return {"value": row.id, "label": f"{row.name}{_BETWEEN}{row.target_name}"}
