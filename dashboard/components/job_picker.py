"""Builds a list that chooses one of all jobs. It shows the jobs that match what was typed, never all of them."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import JobOut
from backend.contracts.comparing import ComparedJobOut
from dashboard.components.attributes import attrs

SHOWN_MAX = 20
"""The list has at most this many jobs."""
BETWEEN = " · "
"""What stands between the name of a job and that of its target."""

Option = dict[str, str]


def picker(id_: str, word: str) -> Component:
    """Build the list with its label."""
    return html.Label(
        [
            html.Span(word, className="hint"),
            # The newest answer to a search, and what was typed for it.
            dcc.Store(id=f"{id_}-found"),
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


def chosen(job: ComparedJobOut) -> tuple[list[Option], str]:
    """Return the options of a list that nobody has opened, and its value: the job that the page shows."""
    return [{"value": job.id, "label": f"{job.name}{BETWEEN}{job.target_name}"}], job.id


def option(row: JobOut) -> Option:
    """Return the option of a job."""
    return {"value": row.id, "label": f"{row.name}{BETWEEN}{row.target_name}"}
