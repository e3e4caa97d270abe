"""The JSON of the comparison of two windows of time, of one job or of two.

``GET /api/v1/compare`` and ``GET /api/v1/jobs/{job}/compare-windows`` return it. A difference is the value after minus
the value before. Of ``GET /api/v1/compare``, *after* is the side ``a`` and *before* the side ``b``.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from backend.contracts.comparing import ComparedJobOut, LoadPairOut, SettingPairOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.freshness import Dated
from backend.contracts.model import Model
from backend.domain.failure import FailureReason
from backend.domain.rollup import Measure
from backend.domain.verdict import Basis


class DirectionOut(StrEnum):
    """How a quantity changed.

    ``unclear``: the interval of the difference contains zero. ``too-few``: too few checkpoints to tell.
    """

    HIGHER = "higher"
    LOWER = "lower"
    UNCLEAR = "unclear"
    TOO_FEW = "too-few"


class WindowOut(Dated):
    """One window, and the number of its checkpoints. Savepoints and open checkpoints do not count.

    It is final if the job was read after the end of the window, and all checkpoints of the window have ended.
    """

    name: str
    """``before`` or ``after``; of two jobs, the words that distinguish them: the name, the target or the id."""
    job: ComparedJobOut
    since: datetime
    """Trigger times from here on, on the engine's clock."""
    until: datetime
    """The end, excluded."""
    completed_count: int
    failed_count: int
    failed_ratio: float | None
    """Share of failed checkpoints; null if none ended."""
    failed_per_h: float
    failed_by_reason: dict[FailureReason, int]
    considered_count: int
    """Number of the checkpoints whose measures were read: the newest ones of the window."""
    is_capped: bool
    """Whether the window has more checkpoints than ``considered_count``. The counts include all of them."""
    is_stored: bool
    """False if the store has nothing of this time, so that how many checkpoints there were is not known."""
    source: Literal["checkpoints", "rollups"] = "checkpoints"
    """``rollups``: the checkpoints are no longer stored. The window then has its whole hours, and durations only.

    Such durations have an error of up to 1 %.
    """


class EstimateOut(Model):
    """A quantile and its interval of 97.5 %. An end is null if there are too few checkpoints for it.

    The upper end is null too if it is not known, because it includes checkpoints that expired.
    """

    value: float
    low: float | None
    high: float | None
    is_at_least: bool
    """Whether the value is only a lower bound, because it includes checkpoints that expired."""


class DistributionOut(Model):
    """The distribution of a measure. ``shares`` has the share of the checkpoints up to each value in ``points``."""

    count: int
    minimum: float
    maximum: float
    median: EstimateOut
    p95: EstimateOut
    p99: EstimateOut
    points: list[float]
    shares: list[float]
    expired_from: float | None = None
    """The least duration of an expired checkpoint: from there on, values are lower bounds. Null if none expired."""


class ChangeOut(Model):
    """The difference of a quantile, with its interval of 95 %. An end is null if it is not known."""

    difference: float | None
    """Null if a side has no value, or if both quantiles are lower bounds, because checkpoints expired."""
    low: float | None
    high: float | None
    direction: DirectionOut
    bound: Literal["at-least", "at-most"] | None = None
    """Set if one of the quantiles is a lower bound, so that the difference is a lower or an upper bound."""


class WindowMeasureOut(Model):
    """One measure of the checkpoints in both windows. A window in which no checkpoint reported it is null.

    The duration includes checkpoints that expired, with the time until then. All other measures are those of completed
    checkpoints. A phase is the largest of the subtasks.
    """

    measure: Measure
    unit: Literal["ms", "bytes"]
    before: DistributionOut | None
    after: DistributionOut | None
    median: ChangeOut
    p95: ChangeOut
    p99: ChangeOut


class WindowEventOut(Model):
    """Something that happened from the begin of the first window to the end of the second one."""

    at: datetime
    """On the engine's clock."""
    kind: str
    """The kind of a job's event, or ``advice-applied``, or ``annotation``."""
    text: str
    place: Literal["before", "between", "after"]
    """In which window it happened, or between the windows."""
    link: str | None = None


class WindowsComparisonOut(Model):
    """The checkpoints in two windows of time, of one job or of two. Vertices of two jobs are matched by their names."""

    kind: Literal["windows"] = "windows"
    job_id: str
    """The job of the window after."""
    job: str
    capabilities: CapabilitiesOut
    headline: str
    """The change of the median duration with its interval, or why the windows cannot be compared; and failures."""
    is_too_few: bool
    """Whether a window has too few checkpoints to tell."""
    before: WindowOut
    after: WindowOut
    failures: DirectionOut
    """How the share of failed checkpoints changed."""
    measures: list[WindowMeasureOut]
    """Measures that at least one window has."""
    settings: list[SettingPairOut]
    """The settings at the end of each window: ``a`` is before, ``b`` is after."""
    loads: list[LoadPairOut] = []
    """The load of each vertex: ``a`` is before, ``b`` is after. Means over some twenty readings of each window.

    They are those of the run at the end of the window, and at most of its last hour.
    """
    events: list[WindowEventOut]
    """Oldest first, at most 100: the newest ones. Empty for two jobs."""
    basis: Basis = Basis.RECONSTRUCTED
    as_of: datetime
