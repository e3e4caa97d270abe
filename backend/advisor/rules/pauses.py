"""Says how the minimum pause between checkpoints acts: whether it decides, and whether it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from backend.advisor.advice import Lint
from backend.advisor.situation import Situation
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.domain.advice import LintLevel
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind, CheckpointStatus

_CONFIG_DOCS = "https://nightlies.apache.org/flink/flink-docs-stable/docs/deployment/config/"
NOT_KEPT = "min-pause-not-kept"
_MIN_COUNT = 3
# The coordinator's clock and its timers are not exact, so a pause that is a little shorter is kept.
_KEPT_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses between the job's checkpoints, in milliseconds, compared with the minimum pause."""

    least_ms: int
    pauses_ms: tuple[float, ...]

    @property
    def short_ms(self) -> tuple[float, ...]:
        """The pauses that are clearly shorter than the minimum."""
        return tuple(p for p in self.pauses_ms if p < _KEPT_RATIO * self.least_ms)

    @property
    def are_kept(self) -> bool:
        """Whether most checkpoints waited for the minimum pause. True too if few pauses are known."""
        return len(self.short_ms) < _MIN_COUNT or 2 * len(self.short_ms) <= len(self.pauses_ms)

    @property
    def headline(self) -> str:
        """The finding that the pause is not kept, in a few words."""
        return f"The minimum pause of {say.duration(self.least_ms)} is not kept"

    @property
    def text(self) -> str:
        """What the checkpoints show of the minimum pause, as a sentence."""
        count, all_ = len(self.short_ms), len(self.pauses_ms)
        pause = say.duration(self.least_ms)
        if self.are_kept:
            return f"The {say.checkpoints(all_ + 1)} looked at do not show it: the pause of {pause} was kept."
        began = say.duration(max(0.0, median(self.short_ms) or 0.0))
        return (
            f"It happens here: {count} of {all_} checkpoints began {began} (median) after the one before had ended,"
            f" despite the minimum pause of {pause}."
        )


def of_job(situation: Situation) -> Pauses | None:
    """Return the pauses of the job; None if there is no minimum pause, or if too few pauses are known.

    A pause counts if both checkpoints are periodic ones that follow each other, and the first of them completed: Flink
    does not wait after a failed checkpoint, and begins anew after a restart. If checkpoints may overlap, the pause is
    not measured from the end of the one before.
    """
    config = situation.evidence.config
    if config is None or not config.min_pause_ms or (config.max_concurrent or 1) > 1:
        return None
    pauses = tuple(
        p for a, b in pairwise(situation.evidence.checkpoints) if (p := _pause_ms(a, b, situation)) is not None
    )
    return Pauses(config.min_pause_ms, pauses) if len(pauses) >= _MIN_COUNT else None


def _pause_ms(before: Checkpoint, after: Checkpoint, situation: Situation) -> float | None:
    first, next_ = before.header, after.header
    took = first.end_to_end_duration_ms
    is_periodic = first.kind is CheckpointKind.CHECKPOINT and next_.kind is CheckpointKind.CHECKPOINT
    follows = next_.checkpoint_id == first.checkpoint_id + 1 and first.status is CheckpointStatus.COMPLETED
    if took is None or not is_periodic or not follows:
        return None
    ended = first.triggered_at + timedelta(milliseconds=took)
    if any(first.triggered_at <= at <= next_.triggered_at for at, _ in situation.evidence.exceptions):
        return None
    return (next_.triggered_at - ended).total_seconds() * 1000


def lints_of(situation: Situation, config: CheckpointConfig) -> Iterator[Lint]:
    """Yield a lint if the minimum pause is not kept, or if it decides when a checkpoint begins, and not the interval.

    Flink's coordinator waits for the pause after the end of a checkpoint, and takes it as the interval if it is longer.
    """
    pauses = of_job(situation)
    if pauses is not None and not pauses.are_kept:
        yield _not_kept(pauses)
        return
    if not config.min_pause_ms or config.interval_ms is None or config.min_pause_ms <= config.interval_ms:
        return
    pause, interval = say.duration(config.min_pause_ms), say.duration(config.interval_ms)
    often = ""
    if situation.every_ms and situation.duration_ms is not None:
        lasts, every = say.duration(situation.duration_ms), say.duration(situation.every_ms)
        often = f" With checkpoints of {lasts}, one begins every {every}."
    yield Lint(
        "min-pause-decides",
        LintLevel.WARNING,
        f"The minimum pause of {pause} is longer than the interval of {interval}, so the pause decides",
        f"A checkpoint begins {pause} after the one before has ended.{often} After a failure, the job replays as much"
        " input.",
        f"If a checkpoint is wanted every {interval}, lower the minimum pause below the interval.",
        f"{_CONFIG_DOCS}#execution-checkpointing-min-pause",
    )


def _not_kept(pauses: Pauses) -> Lint:
    began = say.duration(max(0.0, median(pauses.short_ms) or 0.0))
    return Lint(
        NOT_KEPT,
        LintLevel.WARNING,
        pauses.headline,
        f"{len(pauses.short_ms)} of {len(pauses.pauses_ms)} checkpoints began {began} (median) after the one before had"
        " ended. Why is not decided here: a checkpoint that is asked for over REST does not wait for the pause. Whether"
        " something asks for them would decide it.",
        "Look for a script or a scheduler that triggers checkpoints, in the JobManager's log and its REST access log.",
        f"{_CONFIG_DOCS}#execution-checkpointing-min-pause",
    )
