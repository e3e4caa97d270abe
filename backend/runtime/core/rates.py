"""Computes rates per second of one subtask over the metric window, and how long its mails waited (ME-22)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_LATENCIES_KEPT = 256


class Totals(NamedTuple):
    """Counters of one subtask since the start of its attempt."""

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
    """Samples of one subtask's totals in a sliding window."""

    def __init__(self, now_us: int, samples: int) -> None:
        self._window: deque[tuple[int, Totals]] = deque([(now_us, Totals())], maxlen=samples + 1)

    def sample(self, now_us: int, totals: Totals) -> None:
        """Add a sample to the window."""
        self._window.append((now_us, totals))

    def per_s(self) -> tuple[float, ...]:
        """Return the growth per second of each total over the window, in the order of ``Totals``.

        All rates are zero before the first sample.
        """
        start_us, before = self._window[0]
        end_us, after = self._window[-1]
        if end_us <= start_us:
            return (0.0,) * len(Totals())
        return tuple((b - a) * 1_000_000 / (end_us - start_us) for a, b in zip(before, after, strict=True))


class MailLatency:
    """Records how long the last mails waited in the mailbox."""

    def __init__(self) -> None:
        self._waits_us: deque[int] = deque(maxlen=_LATENCIES_KEPT)
        self.count = 0

    def add(self, wait_us: int) -> None:
        """Record how long a mail waited before it ran."""
        self._waits_us.append(wait_us)
        self.count += 1

    def row_us(self) -> list[int]:
        """Return the recorded waits in microseconds, shortest first."""
        return sorted(self._waits_us)
