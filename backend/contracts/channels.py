"""The JSON of the channels of a Spark query: the targets that report one run of it."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.channel import Channel
from backend.domain.observation import JobState


class ChannelOut(Model):
    """A target that reports the current run of the job."""

    target_id: str
    target_name: str | None
    """Null if the target is no longer known."""
    channel: Channel
    state: JobState
    """The state of the run as this channel reports it."""
    heard_at: datetime
    """When its newest report arrived, on the clock of Barrierscope."""
    is_speaking: bool
    """Whether the state of the run is that of this channel."""
    is_watched: bool
    """Whether the target is neither removed nor paused."""


class ChannelValueOut(Model):
    """The value that one channel reports, in words."""

    target_id: str
    target_name: str | None
    channel: Channel
    text: str


class DisagreementOut(Model):
    """A value of a batch of which two channels report different values."""

    name: str
    values: list[ChannelValueOut]
    """The value that is shown comes first."""
    sentence: str


class BatchChannelOut(Model):
    """A channel that reported a batch, and which values of the batch are from it."""

    target_id: str
    target_name: str | None
    channel: Channel
    values: list[str]
    """The names of the values that are shown and come from this channel. Empty if others have them all."""
