"""Merges many failures in a row into a band with their count, because their marks would cover each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

from backend.contracts.api import CheckpointOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.base import note
from dashboard.figures.timeline.marks import shown_duration_ms
from dashboard.palette import FAILED, Theme

# At least this many failures in a row become a band.
_IN_A_ROW_MIN = 6


def failures_in_a_row(checkpoints: Sequence[CheckpointOut]) -> list[list[CheckpointOut]]:
    """Return the rows of failed checkpoints without a completed one between them, oldest first in each row.

    Checkpoints in progress do not end a row.
    """
    ended = sorted((c for c in checkpoints if c.status.is_terminal), key=lambda c: c.triggered_at)
    rows = (
        list(members)
        for is_failed, members in groupby(ended, key=lambda c: c.status is CheckpointStatus.FAILED)
        if is_failed
    )
    return [row for row in rows if len(row) >= _IN_A_ROW_MIN]


def failure_bands(
    rows: Sequence[Sequence[CheckpointOut]], theme: Theme, where: tzinfo, now: datetime
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return a band from the first trigger of each row to its last end, and a label with the count."""
    bands: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for row in rows:
        first, last = row[0].triggered_at, row[-1]
        end = last.triggered_at + timedelta(milliseconds=shown_duration_ms(last, now))
        bands.append(
            {
                "type": "rect", "x0": text.axis_instant(first, where), "x1": text.axis_instant(end, where),
                "yref": "paper", "y0": 0, "y1": 1, "fillcolor": FAILED, "opacity": 0.14, "line": {"width": 0},
                "layer": "below",
            }
        )  # fmt: skip
        middle = text.axis_instant(first + (end - first) / 2, where)
        place = {
            "yref": "paper",
            "yanchor": "bottom",
            "bgcolor": theme.surface,
            "bordercolor": FAILED,
            "borderpad": 2,
        }
        words = f"✕ {len(row)} failed"
        font = {"size": 11, "color": theme.text}
        labels.append(note(theme, words, 0, 0.03, font=font, **place) | {"x": middle})
    return bands, labels
