"""What the parts of the reports share: names, limits, and the form of numbers."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from backend.backtest.jobs import JobResult
from backend.backtest.scores import Counts
from backend.domain import spelling
from backend.domain.text import shortened

Named = tuple[str, JobResult]
"""The name of a job, and its result."""
NAME_WIDTH: Final = 28
EPISODES_SHOWN: Final = 30
LEGEND: Final[dict[str, Any]] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
"""The legend of a chart: above it, so that it takes no width from a narrow one."""
CARDS_SHOWN: Final = 30
JOBS_DRAWN: Final = 25

_Score = TypeVar("_Score", bound=Counts)
_ScoreOut = TypeVar("_ScoreOut", bound=Counts, covariant=True)


class _Replay(Protocol[_ScoreOut]):
    @property
    def score(self) -> _ScoreOut: ...


def scores_of(parts: Sequence[tuple[str, _Replay[_Score]]], kind: type[_Score]) -> list[tuple[str, _Score]]:
    """Return the score of each job by its name, and then that of all of them if there are several jobs or none."""
    scores = [(name, replay.score) for name, replay in parts]
    return scores if len(scores) == 1 else [*scores, ("all", kind.sum_of(score for _, score in scores))]


def short(name: str) -> str:
    """Return a name that fits into its column."""
    return shortened(name, NAME_WIDTH - 1)


def percent(ratio: float | None) -> str:
    """Return a share as text; a dash if it is not known."""
    return "–" if ratio is None else spelling.percent(ratio)


def instant(at: str) -> str:
    """Return an instant without fractions of a second."""
    return f"{at[:19].replace('T', ' ')}Z"


def number(value: float | None, unit: str) -> str:
    """Return a value with its unit; a dash if it is not known."""
    return "–" if value is None else spelling.quantity(value, unit)


def cells(name: str, *values: object) -> str:
    """Return a row of a table of HTML. Texts are escaped."""
    return f"<tr><td>{html.escape(name)}" + "".join(f"<td>{html.escape(str(value))}" for value in values)
