"""Writes the results of an experiment: a table of text, a page of HTML with charts, and every row as Parquet or CSV.

The page needs no other file and no network: it contains the charts' script.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO, Final

from backend.contracts.chart_page import chart_page
from backend.experiments.model import Experiment, Found, Judgement, Key, Ordering, Row, judged, medians

_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a93a3", "#b59f00")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_LOG_FROM: Final = 50
"""If the largest value is this many times the smallest one, the axis is logarithmic."""


def _by_measure(rows: Sequence[Row], found: Found) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yield each measure with its unit, its settings and its variants, in the order of the rows."""
    units = {row.measure: row.unit for row in rows}
    for measure, unit in units.items():
        settings = list(dict.fromkeys(r.setting for r in rows if r.measure == measure))
        variants = list(dict.fromkeys(r.variant for r in rows if r.measure == measure))
        yield measure, unit, settings, [v for v in variants if any((measure, s, v) in found for s in settings)]


def table(experiment: Experiment, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the table: the medians with their intervals, then the orderings."""
    by_variant = medians(rows)
    width = max([24, *(len(row.variant) for row in rows)])
    for measure, unit, settings, variants in _by_measure(rows, by_variant):
        for setting in settings:
            yield f"{measure}{', ' if setting else ''}{setting} ({unit})"
            for variant in variants:
                one = by_variant.get((measure, setting, variant))
                if one is not None:
                    yield f"  {variant:<{width}} {one.value:10.4g}   {one.low:10.4g} to {one.high:10.4g}"
    yield ""
    yield "what the literature reports"
    for ordering in experiment.orderings:
        result = judged(ordering, by_variant)
        yield f"  {_word(result)}: {ordering.claim} [{ordering.source}]"
        if ordering.says:
            yield f"    the source{_quoted(ordering)}"
        yield f"    {result.why}"


def _quoted(ordering: Ordering) -> str:
    return f': "{ordering.says}"' if ordering.says else ""


def _word(result: Judgement) -> str:
    return {True: "came out", False: "did not come out", None: "not decided"}[result.came_out]


# --- the page ---------------------------------------------------------------------------------------------------------


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a figure for each measure: the medians by setting, a mark for each variant, with the intervals."""
    by_variant = medians(rows)
    return [_figure(*parts, by_variant) for parts in _by_measure(rows, by_variant)]


def _figure(measure: str, unit: str, settings: list[str], variants: list[str], median: Found) -> dict[str, Any]:
    by_setting = len(settings) > 1 or settings[0] != ""
    traces: list[dict[str, Any]] = []
    for index, variant in enumerate(variants):
        keys: list[Key] = [(measure, s, variant) for s in settings if (measure, s, variant) in median]
        values = [median[key] for key in keys]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": variant,
                # The marks of one setting are drawn side by side, so that their intervals do not overlap.
                "x": [settings.index(k[1]) + _aside(index, len(variants)) for k in keys] if by_setting else [index],
                "y": [v.value for v in values],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [v.high - v.value for v in values],
                    "arrayminus": [v.value - v.low for v in values],
                    "thickness": 1.5,
                    "width": 5,
                },
                "marker": {"color": _COLORS[index % 8], "symbol": _SYMBOLS[index % 8], "size": 10},
                "hovertemplate": f"{html.escape(variant)}: %{{y:.4g}} {html.escape(unit)}<extra></extra>",
            }
        )
    names = settings if by_setting else variants
    positive = [v for t in traces for v in t["y"] if v > 0]
    is_log = bool(positive) and min(v for t in traces for v in t["y"]) > 0 and max(positive) > _LOG_FROM * min(positive)
    axis = {"title": {"text": unit}, "type": "log"} if is_log else {"title": {"text": unit}, "rangemode": "tozero"}
    layout = {
        "height": 380,
        "margin": {"l": 70, "r": 20, "t": 10, "b": 50},
        "xaxis": {
            "zeroline": False,
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [-0.6, len(names) - 0.4],
        },
        "yaxis": axis | ({"dtick": 1 if max(positive) > 100 * min(positive) else "D2"} if is_log else {}),
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "showlegend": by_setting,
    }
    return {"title": measure, "unit": unit, "data": traces, "layout": layout}


def _aside(index: int, count: int) -> float:
    return 0.0 if count == 1 else 0.6 * (index / (count - 1) - 0.5)


def page(experiment: Experiment, rows: Sequence[Row], *, seeds: int, command: str, code: str, script: str) -> str:
    """Return the page. ``script`` is the source of plotly.js, which the page contains."""
    by_variant = medians(rows)
    orderings = "".join(
        f"<li class='{_word(result).replace(' ', '-')}'><b>{_word(result)}</b> {html.escape(o.claim)}"
        f" <cite>{html.escape(o.source)}{html.escape(_quoted(o))}</cite><br><span>{html.escape(result.why)}</span></li>"
        for o in experiment.orderings
        for result in [judged(o, by_variant)]
    )
    drawn = figures(rows)
    charts = "".join(
        f"<section><h2>{html.escape(f['title'])} <small>{html.escape(f['unit'])}, simulated</small></h2>"
        f"<div class='chart' id='chart-{i}' role='img' aria-label='{html.escape(f['title'], quote=True)}; the table has"
        f" the values'></div>{_html_table(f['title'], rows, by_variant)}</section>"
        for i, f in enumerate(drawn)
    )
    body = (
        f"<main><h1>{html.escape(experiment.title)}</h1><p>{html.escape(experiment.sentence)}</p>"
        f"<p class='how'>Medians over {seeds} seed{'' if seeds == 1 else 's'} of the reference runtime, with their 95 %"
        f" intervals. <code>{html.escape(command)}</code>, code {html.escape(code)}.</p>"
        f"<section><h2>What the literature reports</h2><ul>{orderings}</ul></section>{charts}</main>"
    )
    parts = [{"id": f"chart-{i}", "data": f["data"], "layout": f["layout"]} for i, f in enumerate(drawn)]
    return chart_page(experiment.title, body, parts, style=style(), script=script)


def style() -> str:
    """Return the style sheet of the page."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def _html_table(measure: str, rows: Sequence[Row], found: Found) -> str:
    settings = list(dict.fromkeys(r.setting for r in rows if r.measure == measure))
    variants = list(dict.fromkeys(r.variant for r in rows if r.measure == measure))
    lines = []
    for setting in settings:
        for variant in variants:
            one = found.get((measure, setting, variant))
            if one is not None:
                cells = (setting, variant, f"{one.value:.4g}", f"{one.low:.4g} to {one.high:.4g}")
                lines.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    heads = "".join(f"<th>{h}</th>" for h in ("setting", "variant", "median", "95 % interval"))
    return f"<details><summary>Table</summary><table><tr>{heads}</tr>{''.join(lines)}</table></details>"


# --- rows -------------------------------------------------------------------------------------------------------------

_COLUMNS: Final = tuple(field.name for field in fields(Row))


def write_csv(rows: Sequence[Row], file: BinaryIO) -> None:
    """Write all rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    file.write(text.getvalue().encode())


def write_parquet(rows: Sequence[Row], file: BinaryIO) -> None:
    """Write all rows as Parquet.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow as pa
    from pyarrow import parquet

    types = {"seed": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])
    parquet.write_table(pa.Table.from_pylist([asdict(row) for row in rows], schema=schema), file)
