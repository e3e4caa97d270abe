"""Draw other queries of Spark with the trouble of a case: other times, rows, sizes of state and batch numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.support.described_spark import Document

_NAMES: Final = ("clicks-to-table", "meter readings", "q-17", "enrich_orders")
_NUMBERS_STEP: Final = 10
"""Logs are compacted in batches with certain last digits, so a drawn number keeps its last digit."""
_STATE_SCALED: Final = re.compile("rows|bytes", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn for one case."""

    name: str
    times: float
    rows: float
    state: float
    numbers: int


def drawn(case: Document, rng: random.Random) -> Document:
    """Return another query with the trouble of ``case``."""
    draw = Draw(
        name=rng.choice(_NAMES),
        times=rng.uniform(0.7, 1.5),
        rows=rng.uniform(0.5, 3.0),
        state=rng.uniform(0.5, 3.0),
        numbers=_NUMBERS_STEP * rng.randrange(500),
    )
    told = {**case["spark"], "runs": [_run(run, draw) for run in case["spark"]["runs"]]}
    if told.get("trigger_interval_ms"):
        told["trigger_interval_ms"] = round(told["trigger_interval_ms"] * draw.times)
    return {**case, "spark": told}


def _run(told: Document, draw: Draw) -> Document:
    made = {**told, "query": draw.name, "batches": [_batch(batch, draw) for batch in told["batches"]]}
    if told.get("end"):
        made["end"] = {**told["end"], "at_s": told["end"]["at_s"] * draw.times, "exception": _error(told["end"], draw)}
    return made


def _error(end: Document, draw: Draw) -> str:
    """Return the text of the error with the drawn number of its batch."""
    return re.sub(r"(?<=detected for )\d+", lambda found: str(int(found[0]) + draw.numbers), end["exception"])


def _batch(told: Document, draw: Draw) -> Document:
    phases = {name: round(ms * draw.times) for name, ms in told["phases"].items()}
    made = {
        **told,
        "n": told["n"] + draw.numbers,
        "at_s": told["at_s"] * draw.times,
        "ms": round(told["ms"] * draw.times),
        "phases": phases,
        "rows": round(told.get("rows", 0) * draw.rows),
        "sources": [_rows(source, draw.rows) for source in told.get("sources", [])],
    }
    if "state" in told:
        made["state"] = [_state(operator, draw) for operator in told["state"]]
    return made


def _rows(value: Any, factor: float) -> Any:
    """Return a source with all its numbers multiplied: the offsets and the rows that were read."""
    if isinstance(value, Mapping):
        return {key: _rows(one, factor) for key, one in value.items()}
    return round(value * factor) if isinstance(value, int) else value


def _state(told: Document, draw: Draw) -> Document:
    """Return a stateful operator with its rows, bytes and times multiplied."""

    def scaled(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _state(dict(value), draw)
        if not isinstance(value, int):
            return value
        if key.endswith("TimeMs"):
            return round(value * draw.times)
        return round(value * draw.state) if _STATE_SCALED.search(key) else value

    return {key: scaled(key, value) for key, value in told.items()}


@dataclass(frozen=True, slots=True)
class QueryFamily:
    """One kind of trouble of a query: its case, and what the answer to each drawn query must be."""

    base: str
    health: str
    kind: str
    words: str


FAMILIES: Final = (
    QueryFamily("spark-far-behind", "slow", "capacity", "The backlog at the sources is"),
    QueryFamily("spark-log-compaction", "intermittent", "store", "Every 10th batch takes"),
    QueryFamily("spark-offset-logs", "healthy", "none", "asynchronous progress tracking can avoid it"),
    QueryFamily("spark-shared-checkpoint", "failing", "undecided", "Two runs use the same checkpoint folder"),
    QueryFamily("spark-slower-with-table", "slow", "growth", "rows grew from"),
    QueryFamily("spark-state-never-cleaned", "healthy", "growth", "no row was removed"),
)
