"""Sequences of events at a task's inputs, and the actions of our protocols at each event, as lines of text.

The text has the notation of ``tests/conformance/flink_code/BarrierHandlerHarness.java``, a Java harness that runs
Flink's own handler, so that our actions and those of Flink can be compared. Random sequences contain only events that
can happen: a channel sends its barriers in order and announces a barrier with a timeout before sending it, a blocked
channel sends nothing, and a converted barrier is the next item of its channel.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import (
    Block,
    Command,
    Convert,
    Ended,
    GiveUp,
    Persist,
    Resume,
    SetTimer,
    Snapshot,
)
from backend.runtime.protocols.mode import TaskView
from backend.runtime.protocols.registry import keeper_of

_REASONS = {
    FailureReason.DECLINED_SUBSUMED: "CHECKPOINT_DECLINED_SUBSUMED",
    FailureReason.DECLINED_ON_CANCELLATION: "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER",
}
_MS = 1000


def barrier_of(checkpoint_id: int, at_ms: int, how: str) -> Barrier:
    """Build a barrier from the notation of the Java harness.

    ``how`` is ``u`` for unaligned, ``n`` for aligned, a number for aligned with this timeout in ms, or ``l`` for
    at-least-once. A leading ``v`` marks a barrier that is forced to be aligned.
    """
    if how == "l":
        return Barrier(checkpoint_id, at_ms * _MS, Alignment.AT_LEAST_ONCE)
    if how == "u":
        return Barrier(checkpoint_id, at_ms * _MS, Alignment.UNALIGNED)
    if how == "n":
        return Barrier(checkpoint_id, at_ms * _MS, Alignment.ALIGNED)
    if how[0] == "v":
        return barrier_of(checkpoint_id, at_ms, how[1:] or "u").as_forced_aligned()
    return Barrier(checkpoint_id, at_ms * _MS, Alignment.ALIGNED, aligned_timeout_us=int(how) * _MS)


class Ours:
    """Our input handler with its protocols. It processes events in the notation of the Java harness."""

    def __init__(self, channels: int, kind: str) -> None:
        self.now_ms = 0
        self._keeper = keeper_of(channels, RuntimeConfig(is_exactly_once=kind != "tracker"), TaskView())
        self._timers: list[tuple[int, int]] = []
        self._persisting: set[int] = set()

    @property
    def pending_id(self) -> int | None:
        """The id of the checkpoint in progress, or None."""
        return self._keeper.pending_id

    def event(self, *words: str) -> list[str]:
        """Process one event, and return the resulting actions, one string per action."""
        kind, *rest = words
        now_us = self.now_ms * _MS
        match kind:
            case "t":
                self.now_ms += int(rest[0])
                return []
            case "a" | "b":
                channel, barrier = int(rest[0]), barrier_of(int(rest[1]), int(rest[2]), rest[3])
                call = self._keeper.announcement if kind == "a" else self._keeper.barrier
                return self._told(call(channel, barrier, now_us), barrier.checkpoint_id)
            case "x":
                return self._told(self._keeper.cancel(int(rest[1]), int(rest[0])), int(rest[1]))
            case "e":
                return self._told(self._keeper.end_of_partition(int(rest[0]), now_us), self._keeper.current_id)
            case _:
                return self._fire()

    def _fire(self) -> list[str]:
        due = [t for t in self._timers if t[0] <= self.now_ms]
        self._timers = [t for t in self._timers if t[0] > self.now_ms]
        return [a for _, k in due for a in self._told(self._keeper.timer(k, self.now_ms * _MS), k)]

    def _told(self, commands: list[Command], checkpoint_id: int) -> list[str]:
        found: list[str] = []
        for command in commands:
            found += self._action(command, checkpoint_id)
        return ordered(found)

    def _action(self, command: Command, k: int) -> list[str]:
        match command:
            case Block(channel=c):
                return [f"block {c}"]
            case Resume(channel=c):
                return [f"resume {c}"]
            case Convert(channel=c):
                return [f"convert {c}"]
            case SetTimer(at_us=at_us):
                at_ms = max(self.now_ms, at_us // _MS)
                self._timers.append((at_ms, k))
                return [f"timer {at_ms}"]
            case Persist():
                self._persisting.add(k)
                return [f"persist {k}"]
            case Snapshot(barrier=barrier):
                return [f"snapshot {barrier.checkpoint_id} {barrier.alignment.name}"]
            case Ended():
                ended = sorted(self._persisting)
                self._persisting.clear()
                return [f"stop {e}" for e in ended]
            case GiveUp(checkpoint_id=given_up, reason=reason):
                return [f"abort {given_up} {_REASONS[reason]}"]
            case _:
                return []


def ordered(actions: list[str]) -> list[str]:
    """Sort adjacent resumes by channel, and likewise adjacent conversions.

    Flink keeps the channels of these actions in a set, so their order means nothing.
    """
    found: list[str] = []
    run: list[str] = []
    for action in actions:
        kind = action.split()[0]
        if run and run[-1].split()[0] != kind:
            found += sorted(run) if run[-1].split()[0] in ("resume", "convert") else run
            run = []
        run.append(action)
    return found + (sorted(run) if run and run[-1].split()[0] in ("resume", "convert") else run)


def comparable(line: str) -> str:
    """Convert a line of actions that the Java harness printed for Flink into the form that ``ours_of`` returns.

    Stops are listed only for checkpoints that were being persisted.

    Flink's tracker keeps a checkpoint in its table if the last open channel skipped the checkpoint's barrier. When
    that channel ends, the checkpoint completes after newer ones. Flink then either fails its own check of the
    alignment time ("failed"), or requests a snapshot that the task refuses as out of order. Our tracker has already
    forgotten the checkpoint by then, so both of Flink's actions are left out here.
    """
    persisting: set[int] = set()
    newest = 0
    found = []
    for event in line.split(";"):
        actions: list[str] = []
        for action in filter(None, event.split(",")):
            kind, *rest = action.split()
            if kind == "stop":
                over = sorted(k for k in persisting if k <= int(rest[0]))
                persisting.difference_update(over)
                actions += [f"stop {k}" for k in over]
                continue
            if kind == "failed" or (kind == "snapshot" and int(rest[0]) < newest):
                continue
            if kind == "snapshot":
                newest = int(rest[0])
            if kind == "persist":
                persisting.add(int(rest[0]))
            actions.append(action)
        found.append(",".join(actions))
    return ";".join(found)


_WORDS = {"t": 2, "a": 5, "b": 5, "x": 3, "e": 2, "f": 1}


def events_of(line: str) -> list[tuple[str, ...]]:
    """Parse the events of a line, each into a tuple of words."""
    words = line.split()[2:]
    found = []
    while words:
        size = _WORDS[words[0]]
        found.append(tuple(words[:size]))
        words = words[size:]
    return found


def ours_of(line: str) -> str:
    """Return the actions of our protocols for the sequence in ``line``, in the output format of the Java harness."""
    kind, channels = line.split()[:2]
    ours = Ours(int(channels), kind)
    return ";".join(",".join(ours.event(*words)) for words in events_of(line))


@dataclass(slots=True)
class _Channel:
    """One input channel: the events that its sender has yet to send, and the channel's state."""

    queue: deque[tuple[str, ...]] = field(default_factory=deque)
    is_announced: bool = False
    is_blocked: bool = False
    is_ended: bool = False
    converted: int | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """Parameters of a random sequence.

    ``steps_most`` and ``channels_most`` limit its size. The other fields are the probabilities that a step triggers a
    checkpoint, that a channel ends after a trigger, and that the first channel is skipped and therefore lags behind.
    """

    steps_most: int = 80
    channels_most: int = 8
    trigger: float = 0.12
    end: float = 0.1
    late: float = 0.0


_FLOOD = _Shape(steps_most=600, channels_most=3, trigger=0.35, end=0.004, late=0.97)


def drawn(seed: int) -> str:
    """Generate one random sequence for the exactly-once handler, as an input line of the Java harness."""
    rng = random.Random(seed)
    return _drawn(rng, rng.choice(["aligned", "alternating", "alternating", "alternating"]), _Shape())


def drawn_at_least_once(seed: int) -> str:
    """Generate one random sequence for the at-least-once tracker.

    Its checkpoints are concurrent, and sometimes more than the tracker can track.
    """
    rng = random.Random(f"at least once {seed}")
    usual = _Shape(120, trigger=rng.choice([0.12, 0.3]), end=rng.choice([0.02, 0.1]), late=rng.choice([0, 0.9]))
    return _drawn(rng, "tracker", _FLOOD if rng.random() < 0.1 else usual)


def _drawn(rng: random.Random, kind: str, shape: _Shape) -> str:
    channels = [_Channel() for _ in range(rng.randint(1, shape.channels_most))]
    ours = Ours(len(channels), kind)
    events: list[tuple[str, ...]] = []

    def do(*words: str) -> None:
        events.append(words)
        for action in ours.event(*words):
            what, *rest = action.split()
            if what in ("block", "resume"):
                channels[int(rest[0])].is_blocked = what == "block"
            elif what == "convert":
                channels[int(rest[0])].converted = ours.pending_id

    triggered = 0
    for _ in range(rng.randint(4, shape.steps_most)):
        if rng.random() < shape.trigger or triggered == 0:
            triggered += 1
            _trigger(rng, kind, (str(triggered), str(ours.now_ms)), channels, end=shape.end)
        elif rng.random() < 0.2:
            do("t", str(rng.choice([1, 5, 20, 50, 100])))
        elif rng.random() < 0.06:
            do("f")
        else:
            index = rng.randrange(len(channels))
            if shape.late and index == 0 and rng.random() < shape.late:
                continue
            words = _next_of(rng, index, channels)
            if words is not None:
                do(*words)
    # At the end, fire every remaining timer.
    do("t", "200")
    do("f")
    return f"{kind} {len(channels)} " + " ".join(" ".join(words) for words in events)


def _trigger(rng: random.Random, kind: str, which: tuple[str, str], channels: list[_Channel], *, end: float) -> None:
    """Trigger a checkpoint at every sender.

    Most senders queue its barrier. Some queue a cancel marker or nothing.
    """
    timeout = str(rng.choice([20, 50, 100]))
    modes = (
        [{"aligned": "n", "tracker": "l"}[kind]]
        if kind != "alternating"
        else rng.choice([["u"], [timeout], [timeout, timeout, "u"], ["n"], ["v"], ["v" + timeout]])
    )
    is_cancelled = rng.random() < 0.15
    for channel in channels:
        if is_cancelled and rng.random() < 0.5:
            channel.queue.append(("x", which[0]))
        elif rng.random() < 0.9:
            channel.queue.append(("b", *which, rng.choice(modes)))
        if rng.random() < end:
            channel.queue.append(("e",))


def _next_of(rng: random.Random, index: int, channels: list[_Channel]) -> tuple[str, ...] | None:
    """Return the next event of one channel and update its state, or return None if the channel can send nothing."""
    channel = channels[index]
    if channel.is_ended or not channel.queue:
        return None
    what, *rest = channel.queue[0]
    is_timeoutable = what == "b" and rest[2].isdigit()
    if is_timeoutable and not channel.is_announced and not channel.is_blocked:
        channel.is_announced = True
        return ("a", str(index), *rest)
    if channel.is_blocked:
        return None
    channel.queue.popleft()
    channel.is_announced = False
    if what == "e":
        channel.is_ended = True
        return ("e", str(index))
    if what == "b" and channel.converted == int(rest[0]):
        rest[2] = "u"
    channel.converted = None
    return (what, str(index), *rest)
