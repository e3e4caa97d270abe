"""The channels through which Barrierscope learns of one run of a query, and what each of them reported of a batch.

Spark reports a query in several ways at once. Each is a channel: a target that reports the run. The query's id and the
run's id identify the run in all of them, and the number identifies the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.checkpoint import Checkpoint


class Channel(StrEnum):
    """A kind of channel. Where two channels have the same value, the first of this list is named first."""

    LISTENER = "listener"
    HISTORY_SERVER = "history server"
    EVENT_LOGS = "event logs"
    DRIVER = "driver"
    CHECKPOINT_FOLDER = "checkpoint folder"
    """It has no runs, and so reports no batches; ``checkpoint_files`` has what it shows."""
    OTHER = "collector"

    @property
    def rank(self) -> int:
        """The place in this list."""
        return list(Channel).index(self)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one target reported of one batch."""

    target: str
    channel: Channel
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ChannelValue:
    """The value of one channel, in words."""

    target: str
    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A value of a batch of which two channels report different values. The value that is shown comes first."""

    name: str
    values: tuple[ChannelValue, ...]


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """A batch with the values of all its channels.

    ``origins`` has the target of each value that is known, by the name of the value.
    """

    checkpoint: Checkpoint
    origins: tuple[tuple[str, str], ...]
    disagreements: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True)
class RunChannel:
    """What one target last reported of a run.

    ``news_at`` is the newest time in it, on the clock of the query's driver. ``heard_at`` is when it arrived, on our
    clock.
    """

    target: str
    channel: Channel
    is_pushed: bool
    is_watched: bool
    has_ended: bool
    is_listed: bool
    is_running: bool
    news_at: datetime
    heard_at: datetime
