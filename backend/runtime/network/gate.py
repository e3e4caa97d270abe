"""The gate of one subtask: reads all input channels in turn, and passes their elements to the task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from backend.runtime.core.elements import Barrier, Element, Event, VirtualChannel
from backend.runtime.network.buffers import DataBuffer
from backend.runtime.network.channel import InputChannel


class InputGate:
    """All input channels of one subtask, over all its input edges. They share one barrier handler (G-5)."""

    def __init__(self, *, on_data: Callable[[], None], on_priority: Callable[[], None]) -> None:
        self.channels: list[InputChannel] = []
        self.polled_bytes = 0
        self.is_recovering = False
        self.announced: Callable[[InputChannel, Barrier], None] = _ignore
        self.may_poll: Callable[[InputChannel], bool] | None = None
        self.prefers: Callable[[InputChannel], bool] | None = None
        """Selects the channels that are read before the others (UC-13). None if no channel is preferred."""
        self._ready: deque[InputChannel] = deque()
        self.current: InputChannel | None = None
        """The channel whose buffer is being read."""
        self._on_data = on_data
        self._on_priority = on_priority
        self._priority: deque[InputChannel] = deque()

    def on_ready(self, channel: InputChannel) -> None:
        """Queue a channel that has something to poll, and notify the task."""
        if not channel.is_ready:
            channel.is_ready = True
            self._ready.append(channel)
        self._on_data()

    def on_priority(self, channel: InputChannel) -> None:
        """Queue a channel that has a priority event. A mail of the task then reads the event (Q-6)."""
        if not self._priority:
            self._on_priority()
        if channel not in self._priority:
            self._priority.append(channel)

    def on_announcement(self, channel: InputChannel, barrier: Barrier) -> None:
        """Notify the barrier handler that a barrier has arrived but still waits in the queue (Q-4, CL-6)."""
        if barrier.is_timeoutable:
            self._put_behind(channel)
        self.announced(channel, barrier)

    def next_priority(self) -> tuple[InputChannel, Barrier] | None:
        """Return the next priority event with its channel, or None if there is none.

        Channels are read in the order in which they notified the gate. A channel whose event was read loses its turn:
        the gate reads its data after that of the other channels, as Flink's ``SingleInputGate`` does.
        """
        while self._priority:
            channel = self._priority[0]
            barrier = channel.poll_priority()
            if barrier is not None:
                self._put_behind(channel)
                return channel, barrier
            self._priority.popleft()
        return None

    def next_element(self) -> tuple[InputChannel, Element | Event] | None:
        """Return the next element with its channel, or None if there is none.

        The gate reads one buffer of each channel in turn.
        """
        while True:
            channel = self.current
            if channel is not None:
                element = channel.next_element()
                if element is not None:
                    return channel, element
                if self.is_recovering and channel.feed_recovered():
                    continue
                self.current = None
            if self.is_recovering:
                self.current = next((c for c in self.channels if c.recovered), None)
                if self.current is None:
                    return None
                continue
            found = self._poll()
            if found is None:
                return None
            channel, item = found
            if not isinstance(item, DataBuffer):
                if isinstance(item, VirtualChannel):
                    channel.turn_to(item)
                    continue
                return channel, item
            self.polled_bytes += len(item.data)
            channel.feed(item)
            self.current = channel

    def reopen(self, channel: InputChannel) -> None:
        """Allow a closed channel to be read again."""
        channel.is_closed = False
        if channel.has_more:
            self.on_ready(channel)

    def recheck(self) -> None:
        """Queue every channel that has something to poll, because the conditions for polling may have changed."""
        for channel in self.channels:
            if channel.is_attached and not channel.is_ready and channel.has_more:
                self.on_ready(channel)

    def _poll(self) -> tuple[InputChannel, DataBuffer | Event] | None:
        ready = self._ready
        may_poll = self.may_poll
        while ready:
            if self.prefers is not None:
                self._bring_forward(self.prefers)
            channel = ready.popleft()
            if may_poll is not None and not may_poll(channel):
                channel.is_ready = False
                continue
            item = channel.poll()
            if channel.has_more:
                ready.append(channel)
            else:
                channel.is_ready = False
            if item is not None:
                return channel, item
        return None

    def _put_behind(self, channel: InputChannel) -> None:
        if channel.is_ready:
            self._ready.remove(channel)
            channel.is_ready = False
        if channel.has_more:
            channel.is_ready = True
            self._ready.append(channel)

    def _bring_forward(self, prefers: Callable[[InputChannel], bool]) -> None:
        preferred = next((channel for channel in self._ready if prefers(channel)), None)
        if preferred is not None and preferred is not self._ready[0]:
            self._ready.remove(preferred)
            self._ready.appendleft(preferred)


def _ignore(_: InputChannel, __: Barrier) -> None:
    return None
