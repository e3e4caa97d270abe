"""Engines in the API: the names of the engines that ship with Barrierscope, and the capabilities of a job's engine."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Engine(StrEnum):
    """The engines that Barrierscope's own collectors read. Other collectors may report engines with other names."""

    FLINK = "flink"
    RUNTIME = "runtime"
    SPARK = "spark"


class CapabilitiesOut(BaseModel):
    """What the job's engine can do, and what its collector reports."""

    model_config = ConfigDict(extra="forbid", from_attributes=True, use_attribute_docstrings=True)

    name: str
    """The engine's name as it is shown to people."""
    source: str
    """The source of the readings, as a phrase for people."""
    is_pushed: bool
    """Whether the jobs send their own readings, so that no collector polls them."""
    is_micro_batched: bool
    """Whether each checkpoint is a micro-batch."""
    has_barriers: bool
    """Whether barriers flow through the job graph, so that alignment and checkpoint modes exist."""
    has_subtasks: bool
    """Whether checkpoints are reported for each subtask."""
    has_channel_events: bool
    """Whether the barrier events of each channel are reported."""
    has_unaligned_checkpoints: bool
    has_aligned_timeout: bool
    """Whether an aligned checkpoint can become unaligned at a configured time after its trigger."""
    has_in_flight_cap: bool
    """Whether the in-flight data of an unaligned checkpoint can be limited in bytes."""
    has_buffer_debloating: bool
    can_apply_settings_live: bool
    """Whether settings can be changed while a job runs."""
    can_dump_threads: bool = False
    """Whether the threads of the process that runs a subtask can be read."""
    can_sample_stacks: bool = False
    """Whether a flame graph of one subtask can be read."""
