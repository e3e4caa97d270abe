"""What a failure of a job would restore, and how much input is then read again: its replay debt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from backend.domain import spelling


class DebtOrigin(StrEnum):
    """From what a job would continue after a failure."""

    CHECKPOINT = "checkpoint"
    """From the newest completed checkpoint of its run."""
    RESTORED = "restored"
    """From the snapshot that its run was restored from: the run has completed no checkpoint since."""
    START = "start"
    """From the beginning: the run has completed no checkpoint, and was restored from none."""
    UNSEEN = "unseen"
    """From a checkpoint that completed before the first one that is known."""


class ReplayBound(StrEnum):
    """Whether the input that is read again after a failure at a random later moment has a limit."""

    BOUNDED = "bounded"
    OPEN = "open"
    """The mean is known. The largest value is not, because it is possible that no checkpoint completes."""
    ENDLESS = "endless"
    """No checkpoint completes, so it grows as long as the job runs."""


@dataclass(frozen=True, slots=True)
class ReplayDebt:
    """What a failure now would restore. The input that was read since ``since`` is then read again.

    Times are by the engine's clock. ``is_at_least`` means that the position may be older: the time of the restored
    snapshot is not known. ``checkpoint_id`` is that of the newest completed checkpoint, if that is what is restored.
    """

    since: datetime
    origin: DebtOrigin
    checkpoint_id: int | None = None
    is_at_least: bool = False

    def age_ms(self, now: datetime) -> float:
        """Return the time span of the input that a failure at ``now`` would read again."""
        return max(0.0, (now - self.since) / timedelta(milliseconds=1))


def debt_words(age_ms: float, *, is_at_least: bool = False) -> str:
    """Return the time span of the input that a failure would read again, such as ``at least 35 min``."""
    return f"{'at least ' if is_at_least else ''}{spelling.duration(age_ms)}"


def debt_sentence(age_ms: float, *, is_at_least: bool = False) -> str:
    """Return what a failure now would read again, as a sentence without its end: the one wording of all places."""
    return f"a failure now would replay {debt_words(age_ms, is_at_least=is_at_least)} of input"


def origin_words(origin: DebtOrigin, checkpoint_id: int | None) -> str:
    """Return from what the job would continue after a failure."""
    match origin:
        case DebtOrigin.CHECKPOINT:
            return f"since checkpoint {checkpoint_id}, the newest that a failure would restore"
        case DebtOrigin.RESTORED:
            return "since the run was restored: no checkpoint has completed after that"
        case DebtOrigin.START:
            return "since the start of the run: no checkpoint has completed, so the job would begin again"
        case DebtOrigin.UNSEEN:
            return "since before the oldest known checkpoint: none of the known ones completed"
