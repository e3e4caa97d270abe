"""A sender's pool connected to a receiver's remote channels, without tasks, to test flow control step by step."""

from __future__ import annotations

from backend.runtime.core.elements import Event
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.network.buffers import DataBuffer, OutputPool
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.gate import InputGate
from backend.runtime.network.remote_channel import FloatingPool, LinkCosts, RemoteChannel

SEGMENT_BYTES = 64


class Link:
    """A sender's pool and the remote channels of one receiver."""

    def __init__(
        self, *, channels: int = 1, exclusive: int = 2, floating: int = 3, latency_us: int = 10, overdraft: int = 5
    ) -> None:
        self.scheduler = Scheduler()
        self.changes = 0
        self.pool = OutputPool(
            self.scheduler,
            channels=channels,
            segment_bytes=SEGMENT_BYTES,
            size=20,
            max_per_channel=10,
            max_overdraft=overdraft,
            flush_timeout_us=1_000,
            on_change=self._on_change,
        )
        self.priority_mails = 0
        self.gate = InputGate(on_data=lambda: None, on_priority=self._on_priority)
        self.floating = FloatingPool(floating)
        self.channels = [
            RemoteChannel(
                ChannelKey(0, 0, n),
                n,
                self.pool.subpartitions[n],
                self.gate,
                scheduler=self.scheduler,
                costs=LinkCosts(latency_us, 10**12),
                exclusive=exclusive,
                floating=self.floating,
            )
            for n in range(channels)
        ]
        self.gate.channels.extend(self.channels)
        for channel in self.channels:
            channel.attach()

    def _on_change(self) -> None:
        self.changes += 1

    def _on_priority(self) -> None:
        self.priority_mails += 1

    def send(self, segments: int, *, channel: int = 0, fill: int = 0) -> None:
        """Write ``segments`` whole segments. Fail the test if the pool runs out of segments."""
        for number in range(segments):
            data = bytes([fill + number]) * SEGMENT_BYTES
            assert self.pool.subpartitions[channel].append(data) == SEGMENT_BYTES

    def settle(self, us: int = 1_000) -> None:
        self.scheduler.run_until(self.scheduler.now + us)

    def take(self, channel: int = 0) -> DataBuffer | Event | None:
        """Poll one item of a channel, and give its buffer back to its owner at once."""
        item = self.channels[channel].poll()
        if isinstance(item, DataBuffer):
            item.owner.recycle()
        return item
