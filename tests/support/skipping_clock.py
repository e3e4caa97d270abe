"""The clock of ``diagnose`` in tests."""

from __future__ import annotations

from datetime import datetime, timedelta

from collectors import diagnose
from tests.support.recorded_flink import let_time_pass


class SkippingClock(diagnose.WallClock):
    """A clock on which only pauses take time, and which does not wait for them.

    The recordings that are served go on by the length of each pause.
    """

    def __init__(self) -> None:
        self._began_at = super().now()
        self._skipped_s = 0.0

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=self._skipped_s)

    def monotonic_s(self) -> float:
        return self._skipped_s

    async def sleep(self, seconds: float) -> None:
        self._skipped_s += seconds
        let_time_pass(seconds)
