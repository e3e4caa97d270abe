"""V1, the fleet board: one row for each job, most urgent first. A click or Enter opens the job."""

from __future__ import annotations

from functools import partial

import dash_ag_grid as dag
from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from backend.contracts.api import JobOut, SparkPointOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.target import TargetState
from backend.domain.verdict import Health
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.live import digest, look_of
from dashboard.palette import HEALTH_ICONS, HEALTH_WORDS, PHASE_WORDS, Tone


def _column(field: str, name: str, renderer: str, width: int, **more: object) -> dict[str, object]:
    return {"field": field, "headerName": name, "cellRenderer": renderer, "width": width, **more}


def _right(field: str, name: str, width: int, hint: str) -> dict[str, object]:
    return _column(field, name, "BsText", width, type="rightAligned", headerTooltip=hint)


# All columns fit a window of 1366 px. In a wider window, the columns with ``flex`` share the rest.
_COLUMNS = [
    _column("name", "Job", "BsJob", 176, flex=3, minWidth=176, filter="agTextColumnFilter"),
    _column("health", "Checkpoints", "BsBadge", 106, headerTooltip="health of the job's checkpoints"),
    _column("verdict", "What limits it", "BsBadge", 154, flex=1, minWidth=154, headerTooltip="the verdict's kind"),
    _column("alerts", "Alerts", "BsBadge", 68, headerTooltip="firing alerts, including silenced ones"),
    _right("age", "Last", 70, "age of the last completed checkpoint, in intervals"),
    _right("success", "Success", 78, "completed share of the finished checkpoints, last 24 hours"),
    _right("p50", "p50", 70, "median end-to-end duration, last 24 hours"),
    _right("p99", "p99", 70, "99th percentile of the end-to-end duration, last 24 hours"),
    _column("phase", "Main phase", "BsChip", 104, headerTooltip="the phase with the largest share of the duration"),
    _column("mode", "Mode", "BsChip", 154, flex=1, minWidth=154),
    _column("advice", "Advice", "BsChip", 82, headerTooltip="open recommendations"),
    _column("pressure", "Pressure", "BsShare", 82, headerTooltip="backpressure of the most backpressured vertex, now"),
    _column(
        "spark",
        "Durations",
        "BsSpark",
        92,
        flex=1,
        minWidth=92,
        sortable=False,
        cellDataType=False,
        headerTooltip="durations of recent checkpoints; a cross marks a failed one",
    ),
]


_ROW_PX = 48
_HEAD_PX = 36


def _height(rows: int) -> dict[str, str]:
    """The height of the grid: that of its rows, but at most that of the window."""
    return {"height": f"min({_HEAD_PX + 4 + _ROW_PX * max(1, rows)}px, max(380px, 100vh - 236px))"}


def layout() -> Component:
    """The board before its first answer."""
    grid = dag.AgGrid(
        id="fleet-grid",
        columnDefs=_COLUMNS,
        rowData=[],
        getRowId="params.data.id",
        defaultColDef={"sortable": True, "resizable": True, "minWidth": 60, "suppressHeaderMenuButton": True},
        dashGridOptions={
            "theme": cards.GRID_THEME,
            "rowHeight": _ROW_PX,
            "headerHeight": _HEAD_PX,
            "tooltipShowDelay": 300,
            "ensureDomOrder": True,
            "animateRows": False,
            "domLayout": "normal",
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
            dcc.Store(id="fleet-title", data="Fleet"),
            html.Div(grid, id="fleet-board"),
            html.Div(id="fleet-empty"),
            html.Div(id="fleet-source"),
        ],
        **attrs({"data-digest": ""}),
        id="fleet-page",
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("fleet-message", "children"),
            "rows": Output("fleet-grid", "rowData"),
            "style": Output("fleet-grid", "style"),
            "counts": Output("fleet-counts", "children"),
            "empty": Output("fleet-empty", "children"),
            "source": Output("fleet-source", "children"),
            "digest": Output("fleet-page", "data-digest"),
        },
        inputs={"tick": Input("tick", "n_intervals"), "look": Input("look", "data")},
        state={"before": State("fleet-page", "data-digest")},
    )


async def refresh(client: ApiClient, *, tick: int | None, look: object, before: str | None) -> Changes:
    """The rows of the board. ``before`` is the ``digest`` output of the previous call."""
    look_of(look)
    jobs = (await client.jobs()).items
    now = digest(*jobs)
    newest = max((j.observed_at for j in jobs if j.observed_at is not None), default=None)
    changes: Changes = {
        "message": None,
        "source": cards.source_line([_source(jobs), cards.age("newest reading", newest)]),
        "digest": now,
    }
    if now == before:
        return changes
    rows = [row(j) for j in jobs]
    return changes | {"rows": rows, "style": _height(len(rows)), "counts": _counts(jobs), "empty": _empty(jobs)}


def row(job: JobOut) -> dict[str, object]:
    """One row of the grid. Columns sort by the raw values and show the texts and badges."""
    tone = status.verdict_tone(job.verdict, job.health)
    age = job.last_completed_age_intervals
    durations = [p.duration_ms for p in job.sparkline if p.duration_ms is not None]
    finished = job.completed_24h_count + job.failed_24h_count
    return {
        "id": job.id,
        "href": routes.job(job.id),
        "name": job.name,
        "target": job.target_name
        if job.target_state == TargetState.OK
        else f"{job.target_name} ({job.target_state}: old data)",
        "sentence": job.verdict.sentence,
        "health": _URGENCY[job.health],
        "health_badge": _badge(
            HEALTH_WORDS[job.health] if job.health is not Health.TOO_FEW else "too few",
            HEALTH_ICONS[job.health],
            status.HEALTH_TONES[job.health],
            "health of the checkpoints",
        ),
        "verdict": status.kind_word(job.verdict.kind, job.capabilities),
        "verdict_badge": _badge(
            status.kind_word(job.verdict.kind, job.capabilities),
            status.KIND_ICONS[job.verdict.kind],
            tone,
            job.verdict.sentence,
        ),
        "alerts": job.alerts_firing_count,
        "alerts_badge": _alerts_badge(job),
        "age": age,
        "age_text": text.MISSING if age is None else f"{age:.1f} ×" if age < 100 else f"{age:.0f} ×",
        "age_hint": "no checkpoint has completed yet"
        if age is None
        else f"times the interval of {text.duration(job.interval_ms)}",
        "success": job.success_24h_ratio,
        "success_text": text.percent(job.success_24h_ratio),
        "success_hint": f"{job.completed_24h_count} of {finished} completed in 24 hours (measured)",
        "p50": job.duration_p50_ms,
        "p50_text": text.duration(job.duration_p50_ms),
        "p99": job.duration_p99_ms,
        "p99_text": text.duration(job.duration_p99_ms),
        "phase": None if job.dominant_phase is None else PHASE_WORDS[job.dominant_phase],
        "phase_chip": None
        if job.dominant_phase is None
        else {"word": PHASE_WORDS[job.dominant_phase], "swatch": f"phase-{job.dominant_phase.value}", "hint": None},
        "mode": job.mode,
        "mode_chip": None
        if job.mode is None
        else {"word": job.mode.replace("-", " "), "swatch": f"mode-{job.mode}", "hint": None},
        "advice": job.open_advice_count,
        "advice_chip": _advice(job),
        "pressure": job.backpressured_max_ratio,
        "pressure_text": text.percent(job.backpressured_max_ratio),
        "spark": [[p.duration_ms, p.status.value] for p in job.sparkline],
        "spark_text": _spark_text(job.sparkline, durations),
    }


def _source(jobs: list[JobOut]) -> str:
    sources = dict.fromkeys(j.capabilities.source for j in jobs)
    return f"Source: {', '.join([*sources, 'through the API of this service'])}"


_URGENCY = {Health.FAILING: 3, Health.SLOW: 2, Health.TOO_FEW: 1, Health.HEALTHY: 0}


def _alerts_badge(job: JobOut) -> dict[str, str] | None:
    if not job.alerts_firing_count:
        return None
    tone = Tone.BAD if job.alerts_severity == "critical" else Tone.WARN
    badge = _badge(
        str(job.alerts_firing_count), "bolt", tone, f"firing alerts: {job.alerts_firing_count}; click to open"
    )
    return badge | {"href": routes.alerts()}


def _advice(job: JobOut) -> dict[str, str]:
    count = job.open_advice_count
    if count:
        hint = "open recommendations; click to open"
        return {"word": f"{count} open", "swatch": "advice-open", "hint": hint, "href": routes.advice(job.id)}
    return {"word": "none", "swatch": "advice-none", "hint": "no open recommendation"}


def _badge(word: str, icon: str, tone: Tone, hint: str) -> dict[str, str]:
    return {"word": word, "icon": icon, "tone": tone, "hint": hint}


def _spark_text(points: list[SparkPointOut], durations: list[int]) -> str:
    failed = sum(p.status is CheckpointStatus.FAILED for p in points)
    if not durations:
        return f"{len(points)} checkpoints, {failed} failed"
    return (
        f"last {len(points)} checkpoints: {text.duration(min(durations))} to {text.duration(max(durations))}, "
        f"{failed} failed"
    )


def _counts(jobs: list[JobOut]) -> list[Component]:
    found: list[Component] = []
    for health in (Health.FAILING, Health.SLOW, Health.TOO_FEW, Health.HEALTHY):
        number = sum(j.health is health for j in jobs)
        if number:
            found.append(
                status.badge(f"{number} {HEALTH_WORDS[health]}", HEALTH_ICONS[health], status.HEALTH_TONES[health])
            )
    return found


def _empty(jobs: list[JobOut]) -> Component | None:
    if jobs:
        return None
    return html.P(
        ["No job has been seen yet. Add a Flink cluster under ", dcc.Link("Targets", href=routes.targets()), "."],
        className="empty-state",
    )
