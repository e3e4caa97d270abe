"""Engines in the API: the names of the known ones, and the capabilities of a job's engine."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Engine(StrEnum):
    """The engines that Barrierscope's own collectors report. Fields that name an engine may hold other names too."""

    FLINK = "flink"
    RUNTIME = "runtime"
    SPARK = "spark"


class CapabilitiesOut(BaseModel):
    """What the job's engine can do, and what its collector reports."""

    model_config = ConfigDict(extra="forbid", from_attributes=True, use_attribute_docstrings=True)

    name: str
    """The engine's name for people."""
    source: str
    """The source of readings, as a phrase for people."""
    is_pushed: bool
    """Jobs send their readings; nothing polls them."""
    is_micro_batched: bool
    """Each checkpoint is a micro-batch."""
    has_barriers: bool
    """Barriers flow through the job's graph, so alignment and checkpoint modes exist."""
    has_subtasks: bool
    """Checkpoints are reported per subtask."""
    has_channel_events: bool
    """The barrier events of each channel are reported."""
    has_unaligned_checkpoints: bool
    has_aligned_timeout: bool
    """An aligned checkpoint can become unaligned at a configured age since its trigger."""
    has_in_flight_cap: bool
    """In-flight data of an unaligned checkpoint can be limited in bytes."""
    has_buffer_debloating: bool
    can_apply_settings_live: bool
    """Settings of a running job can be changed."""
