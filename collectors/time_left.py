"""The total time of ``barrierscope diagnose``, and the sentences about what it left out when that time was over.

A cluster with hundreds of jobs, or one that answers slowly, would otherwise take as long as it likes. What was read by
then is diagnosed and printed. Advice takes longest, so it is the first thing to be left out: a job without advice still
has its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from backend.domain import spelling
from backend.domain.text import shortened

TOTAL_S: Final = 60.0
_READING_SHARE = 0.7
"""The share of the time in which the target is read. The rest is for the diagnoses."""
_NAMES_MAX = 3


class TimeLeft:
    """Tells how much of ``total_s`` seconds is left. The time begins when this object is made."""

    def __init__(self, total_s: float, monotonic_s: Callable[[], float]) -> None:
        self.total_s = total_s
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()

    @property
    def to_read_s(self) -> float:
        """The seconds in which the target may still be read."""
        return max(0.0, self._began_s + _READING_SHARE * self.total_s - self._monotonic_s())

    @property
    def is_over(self) -> bool:
        """Whether the whole time is over."""
        return self._monotonic_s() >= self._began_s + self.total_s

    @property
    def shown(self) -> str:
        """The whole time for a sentence."""
        return spelling.duration(1000 * self.total_s)

    def unread(self, unread_count: int, job_count: int) -> str:
        """Return the limit to print if jobs were not read in time."""
        return (
            f"{unread_count} of {job_count} jobs were not read within the time of {self.shown}; name one with --job,"
            " or give more time with --deadline"
        )

    def only_headers(self, cut_count: int, job_count: int) -> str:
        """Return the limit to print if little more than the list of the checkpoints of these jobs was read in time."""
        return (
            f"of {cut_count} of {job_count} jobs, little more than the list of checkpoints was read within the time of"
            f" {self.shown}, which decides no cause; name one with --job, or give more time with --deadline"
        )

    def fewer_readings(self, reading_count: int) -> str:
        """Return the limit to print if the time was over before the last reading."""
        readings = "reading" if reading_count == 1 else "readings"
        return f"the time of {self.shown} was over after {reading_count} {readings}; give more with --deadline"

    def without_advice(self, names: Sequence[str]) -> str:
        """Return the limit to print if no advice was worked out for these jobs."""
        shown = ", ".join(shortened(name) for name in names[:_NAMES_MAX])
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        return f"no advice was worked out for {shown}{more}: the time of {self.shown} was over (--deadline)"
