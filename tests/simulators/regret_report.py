"""The report on the regret of chosen settings: a table of text, and a page of HTML that needs no other file."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, Self

import numpy as np

from backend.contracts.chart_page import chart_page
from backend.experiments.report import style
from tests.simulators.regret_jobs import KINDS, UNKNOWN

MEDIAN_ASKED: Final = 0.02
P95_ASKED: Final = 0.08
OURS: Final = ("rules", "advisor", "twin", "twin, 3 tried")
_COLORS: Final = ("#8a93a3", "#56b4e9", "#e69f00", "#b59f00", "#cc79a7", "#0072b2", "#d55e00", "#009e73")
_UNKNOWN: Final = {f.__name__ for f in UNKNOWN}
_LEAST: Final = 0.0005
"""The axes of regret are logarithmic. A smaller regret is drawn here."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one chooser chose for a job, and how it fared."""

    settings: str
    loss: float
    regret: float
    is_broken: bool
    expired: float
    over: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judged:
    """One job: the best setting that keeps the bounds, and what each chooser chose."""

    name: str
    best: str
    best_loss: float
    best_expired: float
    best_over: float
    chosen: dict[str, Chosen]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Read what ``dataclasses.asdict`` wrote."""
        values = {k: v for k, v in row.items() if k not in ("code", "chosen")}
        return cls(**values, chosen={who: Chosen(**one) for who, one in row["chosen"].items()})

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return self.name.partition("/")[0]


def table(rows: Sequence[Judged]) -> tuple[str, bool]:
    """Return the tables, and whether one of our choosers reaches everything that is asked for."""
    lines = [f"{'':<18}{'median':>9}{'95th pct':>10}{'largest':>10}{'bounds broken':>15}{'lost more':>11}"]
    is_good = False
    for who in rows[0].chosen:
        regrets = [r.chosen[who].regret for r in rows]
        median, high = (float(v) for v in np.quantile(regrets, (0.5, 0.95)))
        broken = sum(r.chosen[who].is_broken for r in rows)
        word = ""
        if who in OURS:
            good = median <= MEDIAN_ASKED and high <= P95_ASKED and not broken
            is_good |= good
            word = "  reached" if good else "  MISSED"
        more = float(np.mean([r.chosen[who].loss - r.best_loss for r in rows]))
        lines.append(
            f"{who:<18}{median:>9.1%}{high:>10.1%}{max(regrets):>10.1%}{f'{broken} of {len(rows)}':>15}{more:>11.2%}"
            f"{word}"
        )
    lines += [
        "",
        "lost more: mean of the additional loss, as a share of the time",
        "",
        f"asked: median at most {MEDIAN_ASKED:.0%}, 95th percentile at most {P95_ASKED:.0%}, no bound broken",
        "",
        f"{'median regret':<18}" + "".join(f"{who:>17}" for who in rows[0].chosen),
    ]
    for kind in (k for k in KINDS if any(r.kind == k for r in rows)):
        group = [r for r in rows if r.kind == kind]
        medians = [float(np.median([r.chosen[who].regret for r in group])) for who in rows[0].chosen]
        mark = " *" if kind in _UNKNOWN else ""
        lines.append(f"{kind + mark:<18}" + "".join(f"{m:>17.1%}" for m in medians))
    lines.append("* has a mechanism that the model does not know")
    return "\n".join(lines), is_good


def one_job(row: Judged) -> Iterator[str]:
    """Yield lines about one job: the best settings, and each choice."""
    yield f"{row.name}: least loss {row.best_loss:.2%} with {row.best}"
    for who, one in row.chosen.items():
        bound = f", BREAKS A BOUND: {one.expired:.0%} expired, {one.over:.0%} over the limit" if one.is_broken else ""
        yield f"{who:<18}{one.loss:>8.2%}{one.regret:>+9.1%}{bound}  {one.settings}"
        yield from (f"{'':<18}{note}" for note in one.notes)


# --- the page ---------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Judged], *, asked: int, command: str, code: str) -> str:
    """Return the page."""
    text, _ = table(rows)
    charts = (
        ("Share of jobs with at most this regret", _distribution(rows)),
        ("Regret by kind of job", _by_kind(rows)),
    )
    sections = "".join(
        f"<section><h2>{html.escape(title)}</h2><div class='chart' id='chart-{n}' role='img'"
        f" aria-label='{html.escape(title, quote=True)}; the table has the values'></div></section>"
        for n, (title, _) in enumerate(charts)
    )
    missing = "" if len(rows) == asked else f" {asked - len(rows)} of {asked} jobs have not run."
    title = "Regret of chosen settings"
    body = (
        f"<main><h1>{title}</h1>"
        "<p>What a job loses under chosen settings, beyond the least loss of an exhaustive grid, as a share of that"
        " loss. Measured on runs of the reference runtime.</p>"
        f"<p class='how'>{len(rows)} drawn jobs.{missing} <code>{html.escape(command)}</code>, code {code}.</p>"
        f"<section><h2>Table</h2><pre>{html.escape(text)}</pre></section>{sections}{_jobs(rows)}</main>"
    )
    figures = [{"id": f"chart-{n}"} | figure for n, (_, figure) in enumerate(charts)]
    return chart_page(title, body, figures, style=f"{style()} pre {{ overflow-x: auto; }}", script=_plotly())


def _plotly() -> str:
    """Return the source of the part of plotly.js that the dashboard serves."""
    vendor = resources.files("dashboard") / "vendor"
    (bundle,) = (f for f in vendor.iterdir() if f.name.startswith("plotly-") and f.name.endswith(".min.js"))
    return bundle.read_text(encoding="utf-8")


_LAYOUT: Final[dict[str, Any]] = {
    "height": 420,
    "margin": {"l": 70, "r": 20, "t": 10, "b": 50},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
}
_REGRET_AXIS: Final = {
    "title": {"text": "regret"},
    "type": "log",
    "tickvals": [0.001, 0.01, 0.02, 0.08, 0.2, 0.5, 1, 2, 5, 10],
    "ticktext": ["0.1 %", "1 %", "2 %", "8 %", "20 %", "50 %", "100 %", "200 %", "500 %", "1000 %"],
}


def _distribution(rows: Sequence[Judged]) -> dict[str, Any]:
    traces = []
    for n, who in enumerate(rows[0].chosen):
        values = sorted(max(_LEAST, r.chosen[who].regret) for r in rows)
        shares = [(i + 1) / len(values) for i in range(len(values))]
        line = {"color": _COLORS[n % len(_COLORS)], "shape": "hv", "width": 3 if who in OURS else 1.5}
        hover = f"{who}: %{{x:.1%}}<extra></extra>"
        traces.append(
            {"type": "scatter", "mode": "lines", "name": who, "x": values, "y": shares, "line": line}
            | {"hovertemplate": hover}
        )
    axis = {"title": {"text": "share of the jobs"}, "tickformat": ".0%", "range": [0, 1.02]}
    return {"data": traces, "layout": {**_LAYOUT, "xaxis": _REGRET_AXIS, "yaxis": axis}}


def _by_kind(rows: Sequence[Judged]) -> dict[str, Any]:
    kinds = [k for k in KINDS if any(r.kind == k for r in rows)]
    traces = []
    for n, who in enumerate(o for o in OURS if o in rows[0].chosen):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": who,
                "x": [kinds.index(r.kind) + (n - 1.5) * 0.18 for r in rows],
                "y": [max(_LEAST, r.chosen[who].regret) for r in rows],
                "marker": {
                    "color": _COLORS[4 + n],
                    "size": 9,
                    "symbol": ["x" if r.chosen[who].is_broken else "circle-open" for r in rows],
                },
                "text": [f"{r.name}: {who}" for r in rows],
                "hovertemplate": "%{text}, %{y:.1%}<extra></extra>",
            }
        )
    names = [f"{k} *" if k in _UNKNOWN else k for k in kinds]
    axis = {"tickvals": list(range(len(kinds))), "ticktext": names, "range": [-0.6, len(kinds) - 0.4]}
    return {"data": traces, "layout": {**_LAYOUT, "xaxis": axis | {"zeroline": False}, "yaxis": _REGRET_AXIS}}


def _jobs(rows: Sequence[Judged]) -> str:
    heads = "".join(f"<th>{h}</th>" for h in ("job", "chooser", "regret", "bound", "settings"))
    lines = []
    for row in rows:
        lines.append(f"<tr><td>{row.name}</td><td>best</td><td></td><td></td><td>{html.escape(row.best)}</td></tr>")
        for who in (o for o in OURS if o in row.chosen):
            one = row.chosen[who]
            why = html.escape("; ".join(one.notes))
            lines.append(
                f"<tr><td></td><td title='{html.escape(why, quote=True)}'>{who}</td><td>{one.regret:.1%}</td>"
                f"<td>{'broken' if one.is_broken else ''}</td><td>{html.escape(one.settings)}</td></tr>"
            )
    body = f"<table><tr>{heads}</tr>{''.join(lines)}</table>"
    return f"<section><details><summary>All jobs</summary>{body}</details></section>"
