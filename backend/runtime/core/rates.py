"""What a subtask did a second, over the window of the metrics, and how long its mails waited (ME-22)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_LATENCIES_KEPT = 256


class Totals(NamedTuple):
    """Counters of one subtask since its attempt began."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    buffers_in: int = 0
    buffers_out: int = 0
    mails: int = 0
    fired_timers: int = 0
    buffers_in_remote: int = 0


class Rates:
    """Totals at the edges of a sliding window."""

    def __init__(self, now_us: int, samples: int) -> None:
        self._window: deque[tuple[int, Totals]] = deque([(now_us, Totals())], maxlen=samples + 1)

    def sample(self, now_us: int, totals: Totals) -> None:
        """Take the window's next edge."""
        self._window.append((now_us, totals))

    def per_s(self) -> tuple[float, ...]:
        """Each total's growth a second over the window, in the order of ``Totals``; zeros before the first edge."""
        start_us, before = self._window[0]
        end_us, after = self._window[-1]
        if end_us <= start_us:
            return (0.0,) * len(Totals())
        return tuple((b - a) * 1_000_000 / (end_us - start_us) for a, b in zip(before, after, strict=True))


class MailLatency:
    """How long the last mails waited for the subtask to come to them."""

    def __init__(self) -> None:
        self._waits_us: deque[int] = deque(maxlen=_LATENCIES_KEPT)
        self.count = 0

    def add(self, wait_us: int) -> None:
        """One mail ran."""
        self._waits_us.append(wait_us)
        self.count += 1

    def row_us(self) -> list[int]:
        """The waits kept, sorted."""
        return sorted(self._waits_us)
