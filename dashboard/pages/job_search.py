"""Searches for the jobs that a list to choose one of all jobs shows (``components.job_picker``)."""

from __future__ import annotations

from functools import partial

from dash import ClientsideFunction, Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.board import BoardSort
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient, BoardQuery
from dashboard.components import job_picker


def register(app: Dash, client: ApiClient, id_: str) -> None:
    """Register the callback that searches for jobs."""
    connect(
        app,
        partial(search, client),
        output={"found": Output(f"{id_}-found", "data")},
        inputs={"typed": Input(id_, "searchValue")},
        state={"value": State(id_, "value"), "options": State(id_, "data")},
        prevent_initial_call=True,
    )
    # The list takes its value again with its options. An answer that comes just after a choice would undo the choice.
    app.clientside_callback(
        ClientsideFunction("bs", "jobsFound"),
        Output(id_, "data", allow_duplicate=True),
        Input(f"{id_}-found", "data"),
        State(id_, "id"),
        prevent_initial_call=True,
    )


async def search(
    client: ApiClient, *, typed: str | None, value: str | None, options: list[job_picker.Option] | None
) -> Changes:
    """Return the jobs that match, with the chosen one among them."""
    of_text = [o["value"] for o in options or () if o["label"] == typed]
    if of_text and value not in of_text:
        # The viewer has just chosen this job. New options would undo the choice until the list has its value.
        raise PreventUpdate
    chosen = [o for o in options or () if o["value"] == value]
    words = "" if typed is None or of_text else typed.split(job_picker.BETWEEN)[0].strip()
    query = BoardQuery(0, job_picker.SHOWN_MAX, sort=BoardSort.NAME, search=words[:200] or None, has_ended=True)
    found = [job_picker.option(row) for row in (await client.board(query)).rows]
    return {"found": {"typed": typed, "options": [*found, *(o for o in chosen if o not in found)]}}
