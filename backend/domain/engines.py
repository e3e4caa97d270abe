"""What an engine can do and what its targets report.

Every observation carries these answers and the store keeps them with each run. Code that depends on an engine asks for
an ability and never compares names, so an engine that only its collector knows is served like any other. The engines
whose collectors ship with Barrierscope are at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class RestoreRules(StrEnum):
    """Whose rules decide what a checkpoint can be restored into."""

    FLINK = "flink"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingKeys:
    """The engine's keys for the settings that advice changes; None if the engine has no such setting."""

    unaligned: str | None = None
    aligned_timeout: str | None = None
    in_flight_cap: str | None = None
    debloat_enabled: str | None = None
    debloat_target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """One engine. ``kind`` is its word in the store and the API, such as ``flink``; ``name`` is shown to people."""

    kind: str
    name: str
    source: str
    """The source of readings as a phrase, such as ``REST API of the cluster``."""
    is_pushed: bool = False
    """Its jobs send their readings, dated by their own clocks; nothing polls them."""
    has_unique_run_ids: bool = False
    """An engine run id names one life of a job, without its start time."""
    is_micro_batched: bool = False
    """Each checkpoint is a micro-batch."""
    has_barriers: bool = False
    """Barriers flow through the job's graph, so alignment and checkpoint modes exist."""
    has_subtasks: bool = False
    """It reports each checkpoint per subtask."""
    has_channel_events: bool = False
    """It reports the barrier events of each channel."""
    overtakes_everywhere: bool = False
    """Unaligned barriers overtake data on broadcast and pointwise exchanges too."""
    can_apply_settings_live: bool = False
    """Settings of a running job can be changed."""
    restore_rules: RestoreRules | None = None
    """None if a person cannot choose the checkpoint to restore."""
    settings: SettingKeys = field(default_factory=SettingKeys)
    settings_file: str | None = None
    """The file that holds settings which take effect when a job starts."""

    @property
    def has_unaligned_checkpoints(self) -> bool:
        """Barriers can overtake data."""
        return self.settings.unaligned is not None

    @property
    def has_aligned_timeout(self) -> bool:
        """An aligned checkpoint can become unaligned at an age, counted from its trigger."""
        return self.settings.aligned_timeout is not None

    @property
    def has_in_flight_cap(self) -> bool:
        """The in-flight data of an unaligned checkpoint can be limited in bytes."""
        return self.settings.in_flight_cap is not None

    @property
    def has_buffer_debloating(self) -> bool:
        """Buffers can be sized by the time that they take to drain."""
        return self.settings.debloat_enabled is not None and self.settings.debloat_target is not None


# --- the engines whose collectors ship with Barrierscope ----------------------------------------------------------

_CHECKPOINTING = "execution.checkpointing."
_DEBLOAT = "taskmanager.network.memory.buffer-debloat."
_TIMEOUT_SINCE = (1, 14)
_FILE_SINCE = (1, 19)


def flink(version: str | None = None) -> EngineCapabilities:
    """Flink in ``version``, the engine's own word; None or an unknown word stands for the newest.

    ``unaligned.enabled`` is ``unaligned`` before 1.19. The aligned timeout counts from the trigger, and debloating
    exists, from 1.14 on.
    """
    known = _version_of(version)
    is_named_anew = known is None or known >= _FILE_SINCE
    has_timeout = known is None or known >= _TIMEOUT_SINCE
    return EngineCapabilities(
        kind="flink",
        name="Flink",
        source="REST API of the cluster",
        has_barriers=True,
        has_subtasks=True,
        restore_rules=RestoreRules.FLINK,
        settings=SettingKeys(
            unaligned=f"{_CHECKPOINTING}unaligned{'.enabled' if is_named_anew else ''}",
            aligned_timeout=f"{_CHECKPOINTING}aligned-checkpoint-timeout" if has_timeout else None,
            debloat_enabled=f"{_DEBLOAT}enabled" if has_timeout else None,
            debloat_target=f"{_DEBLOAT}target" if has_timeout else None,
        ),
        settings_file="conf/config.yaml" if is_named_anew else "conf/flink-conf.yaml",
    )


def _version_of(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


FLINK: Final = flink()

RUNTIME: Final = EngineCapabilities(
    kind="runtime",
    name="Reference runtime",
    source="reference runtime",
    has_barriers=True,
    has_subtasks=True,
    has_channel_events=True,
    overtakes_everywhere=True,
    can_apply_settings_live=True,
    restore_rules=RestoreRules.RUNTIME,
    settings=SettingKeys(
        unaligned=f"{_CHECKPOINTING}unaligned.enabled",
        aligned_timeout=f"{_CHECKPOINTING}aligned-checkpoint-timeout",
        in_flight_cap="runtime.inflight-cap.bytes",
        debloat_enabled=f"{_DEBLOAT}enabled",
        debloat_target=f"{_DEBLOAT}target",
    ),
)

SPARK: Final = EngineCapabilities(
    kind="spark",
    name="Spark",
    source="the listener in the query's driver",
    is_pushed=True,
    has_unique_run_ids=True,
    is_micro_batched=True,
)


def described(kind: str, version: str | None = None) -> EngineCapabilities:
    """An engine of which the store has the kind only: its row is older than capabilities in the store."""
    known = {"flink": flink(version), RUNTIME.kind: RUNTIME, SPARK.kind: SPARK}
    return known.get(kind) or EngineCapabilities(kind=kind, name=kind, source=kind)
