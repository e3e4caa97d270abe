"""What the fast simulation says of a job: the settings that it chose, or why it could not, and what cards asked.

A choice is made from the stored data of one moment and then kept, because it takes seconds of processor time. It holds
for the settings that the job had then, and until it is ``HOLDS`` old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from backend.advisor.advice import Interval
from backend.advisor.predictor import Answer
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig

HOLDS: Final = timedelta(hours=24)
"""A choice that is older than this is not used."""
RENEWED_AFTER: Final = timedelta(minutes=30)
"""A choice is made again after this time, if ``RENEWED_COUNT`` newer checkpoints have ended."""
RENEWED_COUNT: Final = 10
REFUSAL_HOLDS: Final = timedelta(minutes=10)
"""A job that could not be simulated, or whose cards ask something else by now, is tried again after this time."""

EXPIRED_ERROR_MAX: Final = 0.25
"""The simulated share of expired checkpoints may differ from the measured one by this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The settings among which is chosen. An aligned timeout of 0 means always unaligned; a cap of None, no cap."""

    mode: Mode
    aligned_timeout_ms: int | None
    inflight_cap_bytes: int | None
    interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Settings, and what the simulation predicts under them.

    ``lost_ratio`` is the share of the time that is lost to checkpoints and failures. ``heavy_ratio`` is the share of
    the checkpoints whose in-flight data the store cannot write in the time that R-CAP-1 allows. ``usual_ms`` is the
    duration of checkpoints in which no write hangs. ``bound_ratio`` is the share of expired checkpoints that is
    compared with the hard bound: the share at this interval or, if this is shorter than the present one, at the present
    one.
    """

    chosen: Chosen
    lost_ratio: float
    heavy_ratio: float
    sync_ms: float
    duration_ms: Interval
    usual_ms: float
    persisted_bytes: Interval
    expired_ratio: Interval
    bound_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Choices that were followed one after the other: when the first was made, and the limit on in-flight data then.

    The limit is the bytes that all subtasks together may persist in a checkpoint (R-CAP-1). It depends on the interval,
    and is kept while the series goes on: so the settings before it may be taken back one by one, in any order.
    """

    began_at: datetime
    limit_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierChoice:
    """What the fast simulation says about a job.

    ``now`` and ``best`` are the present and the best settings, and ``by_mode`` the best settings of each mode. They are
    missing if the simulation could not choose; ``why_not`` then says why. ``error_ratio`` is the error of the durations
    that the model predicted for checkpoints that it had not seen, and ``error_words`` says that. ``newest_id`` is the
    newest checkpoint that the choice rests on. ``limit_bytes`` is what a checkpoint may persist under the present
    settings, and ``series`` are the choices that were followed before, if any. ``answers`` are what the cards of the
    job asked, also if the simulation could not choose.
    """

    made_at: datetime
    newest_id: int
    config: CheckpointConfig | None
    now: Scored | None = None
    best: Scored | None = None
    by_mode: tuple[Scored, ...] = ()
    setting_count: int = 0
    error_ratio: float | None = None
    error_words: str = ""
    why_not: str | None = None
    limit_bytes: float | None = None
    series: Series | None = None
    answers: tuple[Answer, ...] = ()

    def series_at(self, config: CheckpointConfig | None, now: datetime) -> Series | None:
        """Return the choices that were followed, if a job has these settings now; None if none were.

        A series ends ``HOLDS`` after its first choice, or with settings that were not chosen.
        """
        series = self.series
        if self.config != config:
            if config is None or self.limit_bytes is None or not self._is_followed_by(config):
                return None
            series = series or Series(began_at=self.made_at, limit_bytes=self.limit_bytes)
        return series if series is not None and now - series.began_at <= HOLDS else None

    def _is_followed_by(self, config: CheckpointConfig) -> bool:
        """Return whether settings are those of a choice: the best one, or the best of a mode that has to stay.

        A choice sets mode, aligned timeout, cap and interval. If these are as before, nothing was followed.
        """
        now = self.now.chosen if self.now is not None else None
        aligned_timeout_ms = (config.aligned_timeout_ms or 0) if config.is_unaligned_enabled else None
        found = aligned_timeout_ms, config.inflight_cap_bytes, config.interval_ms
        offered = (s.chosen for s in (self.best, *self.by_mode) if s is not None)
        return any(found == (c.aligned_timeout_ms, c.inflight_cap_bytes, c.interval_ms) for c in offered if c != now)

    def holds(self, config: CheckpointConfig | None, now: datetime) -> bool:
        """Return whether the choice is about these settings, and young enough."""
        return self.config == config and now - self.made_at <= HOLDS

    def is_due(
        self, config: CheckpointConfig | None, now: datetime, ended_ids: Sequence[int], *, is_lacking: bool
    ) -> bool:
        """Return whether the choice should be made again. ``ended_ids`` are the newest checkpoints that ended.

        ``is_lacking`` is whether the choice lacks an answer that a card needs.
        """
        if not self.holds(config, now):
            return True
        if is_lacking:
            return now - self.made_at >= REFUSAL_HOLDS
        newer = sum(one > self.newest_id for one in ended_ids)
        return now - self.made_at >= RENEWED_AFTER and newer >= RENEWED_COUNT
