"""V1: the fleet page, a grid with one row for each job, most urgent first. A click or Enter on a row opens the job.

The grid requests the rows in blocks while the user scrolls (``fleet-request``, ``fleet-rows``). If one of the rows
that the browser shows has changed, the server reports that over a WebSocket (``dashboard/news.py``). The browser then
sends which rows it shows (``fleet-view``), and gets those that changed (``fleet-delta``). Without a WebSocket, it does
so with each tick. So the cost of a page does not depend on the number of jobs, and a page on which nothing changes
requests nothing. The browser itself keeps the ages current.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import dash_ag_grid as dag
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import JobOut
from backend.contracts.board import BoardOut, BoardSort
from backend.contracts.freshness import FreshnessOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.freshness import FRESHNESS_WORDS, Freshness
from backend.domain.observation import JobState
from backend.domain.replay_debt import origin_words
from backend.domain.target import TargetState
from backend.domain.urgency import URGENCY
from backend.domain.verdict import Health
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient, BoardQuery
from dashboard.components import alerts, cards, freshness, status
from dashboard.components.attributes import attrs
from dashboard.fleet_address import FleetView
from dashboard.live import digest
from dashboard.palette import HEALTH_ICONS, HEALTH_WORDS, PHASE_WORDS, Tone


def _column(field: str, name: str, renderer: str, width: int, **more: object) -> dict[str, object]:
    return {"field": field, "headerName": name, "cellRenderer": renderer, "width": width, **more}


def _right(field: str, name: str, width: int, hint: str) -> dict[str, object]:
    return _column(field, name, "BsText", width, type="rightAligned", headerTooltip=hint)


_FILTER = {"filterOptions": ["contains"], "maxNumConditions": 1}
# All columns fit into a window 1366 px wide. In a wider window, the columns with ``flex`` share the additional width.
_COLUMNS = [
    _column("name", "Job", "BsJob", 150, flex=3, minWidth=150, filter="agTextColumnFilter", filterParams=_FILTER),
    _column("health", "Checkpoints", "BsBadge", 106, headerTooltip="health of the job's checkpoints"),
    _column("verdict", "What limits it", "BsBadge", 176, flex=1, minWidth=176, headerTooltip="the verdict's kind"),
    _column("alerts", "Alerts", "BsBadge", 62, headerTooltip="firing alerts, including silenced ones"),
    _column(
        "debt",
        "Replay",
        "BsDebt",
        70,
        type="rightAligned",
        headerTooltip="replay debt: what a failure now would read again, since the newest completed checkpoint",
    ),
    _right("success", "Success", 76, "completed share of the finished checkpoints, last 24 hours"),
    _right("p50", "p50", 79, "median end-to-end duration, last 24 hours"),
    _right("p99", "p99", 79, "99th percentile of the end-to-end duration, last 24 hours"),
    _column("phase", "Main phase", "BsChip", 109, headerTooltip="the phase with the largest share of the duration"),
    _column("mode", "Mode", "BsChip", 170, flex=1, minWidth=170),
    _column("advice", "Advice", "BsChip", 78, headerTooltip="open recommendations"),
    _column("pressure", "Pressure", "BsShare", 78, headerTooltip="backpressure of the most backpressured vertex, now"),
    _column(
        "spark",
        "Durations",
        "BsSpark",
        80,
        flex=1,
        minWidth=80,
        sortable=False,
        cellDataType=False,
        headerTooltip="durations of recent checkpoints; a cross marks a failed one",
    ),
]


# Rows that the grid requests at once. These are more rows than a screen shows, so that scrolling is smooth.
_BLOCK_ROWS = 50
_BLOCKS_KEPT = 6
# The API returns at most this many rows.
_LIMIT_MAX = 500
_ROW_PX = 48
_HEAD_PX = 36


def _height(rows: int) -> dict[str, str]:
    """Return the height of the grid: that of its rows, but at most that of the window."""
    return {"height": f"min({_HEAD_PX + 4 + _ROW_PX * max(1, rows)}px, max(380px, 100vh - 236px))"}


def _columns(chosen: FleetView) -> list[dict[str, object]]:
    """Return the columns. The column that the address names is sorted."""
    order = "desc" if chosen.is_descending else "asc"
    return [c | {"sort": order} if c["field"] == chosen.column else c for c in _COLUMNS]


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    grid = dag.AgGrid(
        id="fleet-grid",
        columnDefs=_columns(route.fleet),
        eventListeners={"sortChanged": ["bsSorted()"]},
        rowModelType="infinite",
        getRowId="params.data.id",
        defaultColDef={"sortable": True, "resizable": True, "minWidth": 60, "suppressHeaderMenuButton": True},
        dashGridOptions={
            "theme": cards.GRID_THEME,
            "rowHeight": _ROW_PX,
            "headerHeight": _HEAD_PX,
            "tooltipShowDelay": 300,
            "ensureDomOrder": True,
            "tabToNextCell": {"function": "bsLeave()"},
            "tabToNextHeader": {"function": "bsToRows(params)"},
            "animateRows": False,
            "suppressColumnMoveAnimation": True,
            "domLayout": "normal",
            "cacheBlockSize": _BLOCK_ROWS,
            "maxBlocksInCache": _BLOCKS_KEPT,
            "infiniteInitialRowCount": 1,
            "rowClassRules": {"is-stale": "params.data && params.data.was"},
            # ``assets/fleet.js`` provides the rows. It queues the requests.
            "maxConcurrentDatasourceRequests": _BLOCKS_KEPT,
        },
        style=_height(1),
    )
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.H1("Fleet"),
                            html.P(
                                "Most urgent job first. Numbers are measured over the last 24 hours. "
                                "Open a job to see its checkpoints and what delays them.",
                                className="hint",
                            ),
                        ]
                    ),
                    html.Div(id="fleet-counts", className="chips", **attrs({"aria-live": "polite"})),
                ],
                className="page-head",
            ),
            html.Div(id="fleet-message"),
            html.Div(id="fleet-stale"),
            dcc.Store(id="fleet-title", data="Fleet"),
            dcc.Store(id="fleet-view"),
            dcc.Store(id="fleet-delta"),
            dcc.Store(id="fleet-news"),
            dcc.Store(id="fleet-request"),
            dcc.Store(id="fleet-rows"),
            html.Div(grid, id="fleet-board", **attrs({"data-has-rows": ""})),
            html.Button(
                "Ended jobs",
                id="fleet-ended",
                className="button fold",
                hidden=True,
                title="show or hide the jobs that have ended, after all others",
                **attrs({"aria-pressed": "true" if route.fleet.has_ended else "false"}),
            ),
            html.Div(id="fleet-empty"),
            html.Div(id="fleet-source"),
        ],
        **attrs({"data-digest": ""}),
        id="fleet-page",
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(block, client),
        prevent_initial_call=True,
        output={"block": Output("fleet-rows", "data")},
        inputs={"request": Input("fleet-request", "data")},
        state={"ended": State("fleet-ended", "aria-pressed")},
    )
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("fleet-message", "children"),
            "stale": Output("fleet-stale", "children"),
            "delta": Output("fleet-delta", "data"),
            "style": Output("fleet-grid", "style"),
            "counts": Output("fleet-counts", "children"),
            "ended": Output("fleet-ended", "children"),
            "is_ended_hidden": Output("fleet-ended", "hidden"),
            "empty": Output("fleet-empty", "children"),
            "source": Output("fleet-source", "children"),
            "digest": Output("fleet-page", "data-digest"),
        },
        inputs={"view": Input("fleet-view", "data")},
        state={"before": State("fleet-page", "data-digest")},
    )
    in_browser = partial(ClientsideFunction, "fleet")
    app.clientside_callback(
        in_browser("view"),
        Output("fleet-view", "data"),
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("fleet-news", "data"),
        Input("fleet-ended", "aria-pressed"),
    )
    app.clientside_callback(
        ClientsideFunction("bs", "togglePressed"),
        Output("fleet-ended", "aria-pressed"),
        Input("fleet-ended", "n_clicks"),
        State("fleet-ended", "aria-pressed"),
        prevent_initial_call=True,
    )
    # Dash calls a function when the page is opened only if it has an output.
    app.clientside_callback(in_browser("begin"), Output("fleet-board", "data-has-rows"), Input("fleet-board", "id"))
    app.clientside_callback(in_browser("delta"), Input("fleet-delta", "data"))
    app.clientside_callback(in_browser("rows"), Input("fleet-rows", "data"))


async def block(client: ApiClient, *, request: object, ended: str | None) -> Changes:
    """Return the rows of one block, which the grid requested, or None as rows after an error.

    The browser then keeps the rows that it has, and requests the block again. The refresh shows the error.
    """
    if not isinstance(request, dict):
        raise PreventUpdate
    first, end = int(request.get("startRow") or 0), int(request.get("endRow") or _BLOCK_ROWS)
    query = BoardQuery(first, _limit(end - first), *_order_of(request), has_ended=ended == "true")
    number = request.get("number")
    try:
        board = await client.board(query)
    except (ApiRefusedError, ApiUnavailableError):
        return {"block": {"number": number, "rows": None}}
    rows = [row(j, board.version) for j in board.rows]
    return {"block": {"number": number, "rows": rows, "total": board.total}}


async def refresh(client: ApiClient, *, view: object, before: str | None) -> Changes:
    """Return what changed in the rows that the browser shows, and the totals if they changed.

    ``before`` is the ``digest`` output of the previous call.
    """
    if not isinstance(view, dict):
        raise PreventUpdate
    query = query_of(view)
    board = await client.board(query)
    totals, source = totals_of(board, view), digest(board.sources, board.newest_observed_at, bool(board.stale))
    seen_totals, _, seen_source = (before or "").partition(".")
    changes: Changes = {"message": None}
    if (totals, source) != (seen_totals, seen_source):
        changes["digest"] = f"{totals}.{source}"
    if source != seen_source:
        # While some rows are stale, the newest reading says nothing about them.
        newest = cards.age("newest reading of any job" if board.stale else "newest reading", board.newest_observed_at)
        changes["source"] = cards.source_line([_source(board.sources), newest])
    if totals != seen_totals:
        changes |= {
            "style": _height(board.total),
            "counts": _counts(board),
            "stale": freshness.fleet_note(board.stale, board.total),
            "empty": _empty(board),
            "ended": _ended(board.ended_count, is_shown=query.has_ended),
            "is_ended_hidden": board.ended_count == 0,
        }
    if has_changed(board, query.known, view.get("total")):
        known = query.known
        changes["delta"] = {
            "first": query.offset,
            "ids": board.ids if known else [],
            "total": board.total,
            "version": board.version,
            "rows": [row(j, board.version) for j in board.rows] if known else [],
        }
    return changes


def query_of(view: Mapping[str, Any]) -> BoardQuery:
    """Return the request for the rows that the browser shows, without those that it already has."""
    known = [str(job) for job in view.get("ids") or ()][:_LIMIT_MAX]
    since = view.get("since")
    return BoardQuery(
        int(view.get("first") or 0),
        _limit(len(known)),
        *_order_of(view),
        since=since if isinstance(since, str) else None,
        known=known,
        has_ended=view.get("ended") == "true",
    )


def totals_of(board: BoardOut, view: Mapping[str, Any]) -> str:
    """Return a digest of what the page shows about all listed jobs."""
    stale = [(s.state, s.job_count, s.target_names, s.read_at if s.state.is_outage else None) for s in board.stale]
    counts = (board.counts, board.stale_counts, board.unanalysed_count, board.ended_count)
    return digest(board.total, *counts, stale, view.get("ended"))


def has_changed(board: BoardOut, known: Sequence[str], total: object) -> bool:
    """Return whether the rows of ``board`` differ from those that a browser shows.

    The browser shows the jobs ``known``, and ``total`` as the number of rows. ``board`` is the response to the request
    of ``query_of``.
    """
    return bool(known and (board.rows or board.ids != list(known))) or board.total != total


def _ended(count: int, *, is_shown: bool) -> str:
    return f"{'▾' if is_shown else '▸'} {count} ended {'job' if count == 1 else 'jobs'}"


def _limit(rows: int) -> int:
    return min(max(rows, 1), _LIMIT_MAX)


def _order_of(request: Mapping[str, Any]) -> tuple[BoardSort, bool, str | None]:
    """Return the order and the search that the grid's sort model and filter model describe."""
    model: Mapping[str, Any] = next(iter(request.get("sortModel") or ()), {})
    name = model.get("colId")
    sort = BoardSort(name) if name in set(BoardSort) else BoardSort.URGENCY
    search = ((request.get("filterModel") or {}).get("name") or {}).get("filter")
    return sort, model.get("sort") == "desc", search if isinstance(search, str) else None


def row(job: JobOut, version: str) -> dict[str, object]:
    """Return one row of the grid, as of the board's ``version``.

    It contains the texts and badges that the grid displays.
    """
    durations = [p.duration_ms for p in job.sparkline if p.duration_ms is not None]
    return {
        "id": job.id,
        "version": version,
        "href": routes.job(job.id),
        "name": job.name,
        "target": _target(job),
        **(_analysed(job) | _past(job)),
        "alerts": job.alerts_firing_count,
        "alerts_badge": _alerts_badge(job),
        "debt": job.replay_debt_ms,
        "debt_is_least": job.replay_debt is not None and job.replay_debt.is_at_least,
        "debt_hint": _debt_hint(job),
        "success": job.success_24h_ratio,
        "success_text": text.percent(job.success_24h_ratio),
        "success_hint": _success_hint(job),
        "p50": job.duration_p50_ms,
        "p50_text": text.bounded(text.duration(job.duration_p50_ms), is_lower_bound=job.is_p50_lower_bound),
        "p99": job.duration_p99_ms,
        "p99_text": text.bounded(text.duration(job.duration_p99_ms), is_lower_bound=job.is_p99_lower_bound),
        "phase": None if job.dominant_phase is None else PHASE_WORDS[job.dominant_phase],
        "phase_chip": None
        if job.dominant_phase is None
        else {"word": PHASE_WORDS[job.dominant_phase], "swatch": f"phase-{job.dominant_phase.value}", "hint": None},
        "mode": job.mode,
        "mode_chip": None
        if job.mode is None
        else {"word": status.mode_word(job.mode), "swatch": f"mode-{job.mode}", "hint": None},
        "advice": job.open_advice_count,
        "advice_chip": _advice(job),
        "pressure": job.backpressured_max_ratio,
        "pressure_text": text.percent(job.backpressured_max_ratio),
        "spark": [[p.duration_ms, p.status.value] for p in job.sparkline],
        "spark_text": _spark_text(job, durations),
    }


_STATE_WORDS = {
    JobState.ENDED: " · ended",
    JobState.STARTING: " · starting",
    JobState.UNREADABLE: " · cannot be read",
}


def _target(job: JobOut) -> str:
    """Return the line below the name: the target with its labels, and the reason if the data of the row is old."""
    labels = "".join(f" · {name}={value}" for name, value in sorted(job.labels.items()))
    now = _STATE_WORDS.get(job.state, "")
    state = "" if job.target_state == TargetState.OK else f" ({job.target_state}: old data)"
    if job.freshness is not None and job.freshness.is_stale:
        state = f" ({FRESHNESS_WORDS[job.freshness.state]})"
        now = "" if job.freshness.state is Freshness.JOB_UNREADABLE else now
    return f"{job.target_name}{state}{now}{labels}"


def _past(job: JobOut) -> dict[str, object]:
    """Return the values of a stale row that differ from those of a current one: all are grey and in the past tense."""
    found = job.freshness
    if found is None or not found.is_stale:
        return {}
    hint = f"stale: {found.reason}"
    values: dict[str, object] = {
        "was": _was(job, found),
        "was_at": None if found.read_at is None else found.read_at.isoformat(),
        "health_badge": _badge("stale", "clock", Tone.QUIET, hint),
    }
    if job.verdict is None:
        return values
    word = status.kind_word(job.verdict.kind, job.capabilities)
    told = f"at the last reading ({found.reason}): {job.verdict.sentence}"
    if found.state.is_judged:
        told = job.verdict.sentence
    badge = _badge(word, status.KIND_ICONS[job.verdict.kind], Tone.QUIET, told)
    return values | {"verdict_badge": badge, "sentence": told}


def _was(job: JobOut, past: FreshnessOut) -> str:
    """Return what the row says before the age of the job's newest reading."""
    if past.state is Freshness.JOB_SILENT:
        return "last event"
    if past.state.is_judged:
        return FRESHNESS_WORDS[past.state]
    return "not analysed then" if job.health is None else freshness.was(job.health, is_short=True)


def _analysed(job: JobOut) -> dict[str, object]:
    """Return the values of a row that follow from the analysis of the job."""
    if job.health is None or job.verdict is None:
        badge = _badge("not yet", "hourglass", Tone.QUIET, _UNANALYSED)
        return {
            "sentence": _UNANALYSED,
            "health": None,
            "health_badge": badge,
            "verdict": None,
            "verdict_badge": _badge("not analysed yet", "hourglass", Tone.QUIET, _UNANALYSED),
        }
    word = status.kind_word(job.verdict.kind, job.capabilities)
    return {
        "sentence": job.verdict.sentence,
        "health": -URGENCY[job.health],
        "health_badge": _badge(
            SHORT_HEALTH.get(job.health, HEALTH_WORDS[job.health]),
            HEALTH_ICONS[job.health],
            status.HEALTH_TONES[job.health],
            "health of the checkpoints",
        ),
        "verdict": word,
        "verdict_badge": _badge(
            word,
            status.KIND_ICONS[job.verdict.kind],
            status.verdict_tone(job.verdict, job.health),
            job.verdict.sentence,
        ),
    }


def _debt_hint(job: JobOut) -> str:
    debt = job.replay_debt
    if debt is None:
        return _UNREAD if job.completed_24h_count is None else "not known what a failure would restore"
    is_past = freshness.is_stale(job.freshness)
    when = "would have replayed at the last reading" if is_past else "now would replay"
    return f"what a failure {when}, {origin_words(debt.origin, debt.checkpoint_id)}"


def _success_hint(job: JobOut) -> str:
    if job.completed_24h_count is None or job.failed_24h_count is None:
        return _UNREAD
    finished = job.completed_24h_count + job.failed_24h_count
    return f"{job.completed_24h_count} of {finished} completed in 24 hours (measured)"


def _source(sources: Sequence[str]) -> str:
    return f"Source: {', '.join([*sources, 'through the API of this service'])}"


_UNANALYSED = "This job is being analysed; the service has just started."
_UNREAD = "not read yet; the service has just started"
# The words of a row stand in a narrow column, under the heading *Checkpoints*.
SHORT_HEALTH = {Health.TOO_FEW: "too few", Health.OFF: "off"}


def _alerts_badge(job: JobOut) -> dict[str, str] | None:
    if not job.alerts_firing_count:
        return None
    seen = ", all silenced or seen" if job.alerts_severity is None else ""
    hint = f"firing alerts: {job.alerts_firing_count}{seen}; click to open"
    badge = _badge(str(job.alerts_firing_count), "bolt", alerts.tone_of(job.alerts_severity), hint)
    return badge | {"href": routes.alerts()}


def _advice(job: JobOut) -> dict[str, str]:
    count = job.open_advice_count
    if count:
        hint = "open recommendations; click to open"
        return {"word": f"{count} open", "swatch": "advice-open", "hint": hint, "href": routes.advice(job.id)}
    return {"word": "none", "swatch": "advice-none", "hint": "no open recommendation"}


def _badge(word: str, icon: str, tone: Tone, hint: str) -> dict[str, str]:
    return {"word": word, "icon": icon, "tone": tone, "hint": hint}


def _spark_text(job: JobOut, durations: list[int]) -> str:
    points = job.sparkline
    if not points:
        return _UNREAD if job.completed_24h_count is None else "no finished checkpoint yet"
    failed = sum(p.status is CheckpointStatus.FAILED for p in points)
    if not durations:
        return f"{len(points)} checkpoints, {failed} failed"
    return (
        f"last {len(points)} checkpoints: {text.duration(min(durations))} to {text.duration(max(durations))}, "
        f"{failed} failed"
    )


def _counts(board: BoardOut) -> list[Component]:
    """Build the number of current rows by health, and the numbers of the stale rows and of those not analysed yet."""
    counts: list[Component] = [
        status.badge(f"{number} {HEALTH_WORDS[health]}", HEALTH_ICONS[health], status.HEALTH_TONES[health])
        for health in sorted(Health, key=URGENCY.__getitem__)
        if (number := board.counts.get(health, 0) - board.stale_counts.get(health, 0))
    ]
    if stale_count := sum(s.job_count for s in board.stale):
        counts.append(status.badge(f"{stale_count} stale", "clock", Tone.QUIET, hint="not read lately"))
    if board.unanalysed_count:
        counts.append(status.badge(f"{board.unanalysed_count} not analysed yet", "hourglass", Tone.QUIET))
    return counts


def _empty(board: BoardOut) -> Component | None:
    # The counts are of the listed rows, and a search may list none. Without any source there is no job at all.
    if board.sources:
        return None
    return html.P(
        ["No job has been seen yet. Add a Flink cluster under ", dcc.Link("Targets", href=routes.targets()), "."],
        className="empty-state",
    )
