"""The settings of a job: Flink's keys, and additional keys under ``runtime.*`` (runtime.md, Appendix B).

This module defines the bounds of each value, and which settings may change while a job runs. An error names the key,
the value and the allowed values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any

from backend.domain.errors import FieldProblem, InvalidInputError, PlanError
from backend.runtime.core.units import DURATION_WORDS, SIZE_WORDS, size_bytes
from backend.runtime.job.choices import FinishProtocol as FinishProtocol
from backend.runtime.job.choices import FrontInput as FrontInput
from backend.runtime.job.choices import Initiation as Initiation
from backend.runtime.job.choices import LogUntil as LogUntil
from backend.runtime.job.choices import MarkedChannels as MarkedChannels
from backend.runtime.job.choices import OnCap as OnCap
from backend.runtime.job.choices import OnStopFailure as OnStopFailure
from backend.runtime.job.choices import Spilling as Spilling
from backend.runtime.job.choices import StartsWith as StartsWith
from backend.runtime.job.choices import StateBackend as StateBackend
from backend.runtime.job.setting_values import (
    DAY_US,
    Key,
    cap,
    count_key,
    duration,
    failures,
    flag_key,
    limit_key,
    one_of,
    percent,
    show_flag,
    show_us,
    time_key,
    whole,
    word_key,
)
from backend.runtime.job.setting_values import UNLIMITED as UNLIMITED
from backend.runtime.job.settings_refused import not_taken

DEFAULT_ORDER = "default"
"""Flink's order of a checkpoint's phases at a subtask: A-F-S if aligned and F-S-L if unaligned.

The letters mean: align (A), forward the barrier (F), take the snapshot (S), log in-flight data (L).
"""
_ALIGNED_ORDERS = ("A-F-S", "A-S-F")
_LOGGED_ORDERS = ("F-S-L", "S-F-L")


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """All settings, in microseconds, bytes and counts. The defaults are Flink's if Flink has the setting.

    Settings that are costs change only the times of a run (DET-7).
    """

    interval_us: int = 5_000_000
    timeout_us: int = 600_000_000
    min_pause_us: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    num_retained: int = 1
    is_exactly_once: bool = True
    is_unaligned: bool = False
    is_unaligned_forced: bool = False
    is_unaligned_concurrent: bool = False
    starts_with: StartsWith = StartsWith.FIRST_BARRIER
    front_input: FrontInput = FrontInput.OVERTAKE
    is_chandy_lamport: bool = False
    log_until: LogUntil = LogUntil.ARRIVAL
    initiation: Initiation = Initiation.SOURCES
    markers_overtake: bool = False
    marked_channels: MarkedChannels = MarkedChannels.PROCESS
    aligned_timeout_us: int = 0
    are_timers_interruptible: bool = False
    counts_ended_channels: bool = True
    finish_protocol: FinishProtocol = FinishProtocol.REVISED
    recovers_locally: bool = False
    prioritizes_missing: bool = False
    overtake_unflushed_us: int = 0
    aligns_after_first: bool = False
    phase_order: str = DEFAULT_ORDER
    drops_channel_state_of: int = -1
    on_stop_failure: OnStopFailure = OnStopFailure.RECOVER
    backlog_interval_us: int = -1
    """Checkpoint interval during a backlog (SRC-5). -1 means the usual interval, 0 means no checkpoints."""
    cap_bytes: int = UNLIMITED
    cap_job_bytes: int = UNLIMITED
    on_cap: OnCap = OnCap.WAIT
    segment_bytes: int = 32 << 10
    segment_bytes_min: int = 256
    exclusive_buffers: int = 2
    floating_buffers: int = 8
    max_buffers_per_channel: int = 10
    max_overdraft: int = 5
    flush_timeout_us: int = 100_000
    is_debloating: bool = False
    debloat_target_us: int = 1_000_000
    debloat_period_us: int = 200_000
    debloat_samples: int = 20
    debloat_threshold_percent: int = 25
    task_managers: int = 1
    history_size: int = 10
    state_backend: StateBackend = StateBackend.FULL
    is_incremental: bool = False
    full_every: int = 0
    """If this is n, every n-th checkpoint is full (IN-5). 0 means that none has to be full."""
    diff_chain_max: int = 10
    sst_runs_max: int = 4
    changelog_flush_us: int = 100_000
    """How often the changelog is written between checkpoints (IN-7). 0 means only with a checkpoint."""
    materialize_us: int = 600_000_000
    spilling: Spilling = Spilling.AD_HOC
    are_buffers_incremental: bool = False
    """Whether a checkpoint refers to in-flight data that the last one wrote, and does not write it again (FM-5)."""
    merges_files: bool = False
    merges_across: bool = False
    """Whether later checkpoints may append to a file of an earlier one (FM-2)."""
    merged_bytes_max: int = 32 << 20
    merged_subtasks_max: int = 4
    amplification_percent_max: int = 200
    """The largest size of a reused file, relative to what is still needed of it (FM-3)."""
    diff_ns_per_byte: int = 1
    replay_ns_per_change: int = 1_000
    rpc_latency_us: int = 1_000
    trigger_cost_us: int = 0
    """The time that the coordinator takes to send one trigger message. Its other messages wait meanwhile (CL-7)."""
    link_latency_us: int = 200
    link_bytes_per_s: int = 125_000_000
    barrier_cost_us: int = 50
    sync_fixed_us: int = 1_000
    sync_ns_per_byte: int = 0
    recovery_bytes_per_s: int = 200_000_000
    restart_delay_us: int = 1_000_000
    cap_stall_us: int = 1_000_000
    transaction_timeout_us: int = 900_000_000
    metric_window_us: int = 60_000_000
    metric_period_us: int = 5_000_000
    fuzz_schedule: int = 0

    @property
    def effective_interval_us(self) -> int:
        """The interval, or the minimum pause if the pause is longer (CO-1)."""
        return max(self.interval_us, self.min_pause_us)

    @property
    def tasks_finish(self) -> bool:
        """Whether a subtask finishes after its input has ended."""
        return self.finish_protocol is not FinishProtocol.NONE

    @property
    def ends_count_as_barriers(self) -> bool:
        """Whether the end of a channel counts as a barrier (AL-7)."""
        return self.counts_ended_channels and self.finish_protocol is not FinishProtocol.LEGACY

    @property
    def checkpoints_after_end(self) -> bool:
        """Whether checkpoints continue after some subtasks have ended.

        A subtask that ended can then wait for its final checkpoint.
        """
        return self.counts_ended_channels and self.finish_protocol is FinishProtocol.REVISED

    @property
    def has_interruptible_timers(self) -> bool:
        """Whether mails can interrupt the firing of timers (BP-6). Without unaligned checkpoints, they cannot."""
        return self.are_timers_interruptible and self.is_unaligned

    @property
    def snapshots_first(self) -> bool:
        """Whether a subtask takes its snapshot before it forwards the barrier (PH-1)."""
        return "S-F" in self.phase_order

    @property
    def logs_in_flight(self) -> bool:
        """Whether checkpoints contain in-flight data: they are unaligned or Chandy-Lamport checkpoints."""
        return self.is_unaligned or self.is_chandy_lamport

    @property
    def starts_with_last(self) -> bool:
        """Whether a task starts an unaligned checkpoint with the last barrier, not with the first (UL-1)."""
        return self.starts_with is StartsWith.LAST_BARRIER

    @property
    def triggers_every_task(self) -> bool:
        """Whether the coordinator triggers a Chandy-Lamport checkpoint at every task (CL-7)."""
        return self.initiation is Initiation.ALL_TASKS

    @property
    def spills_continuously(self) -> bool:
        """Whether senders write all their output to logs (SP-2)."""
        return self.spilling is Spilling.CONTINUOUS

    @property
    def has_cap(self) -> bool:
        """Whether the in-flight data of unaligned checkpoints is capped."""
        return self.cap_bytes != UNLIMITED or self.cap_job_bytes != UNLIMITED


_ORDERS = tuple("-".join(order) for n in (2, 3, 4) for order in permutations("AFSL", n))
"""All orders of phases that the setting can name. ``validate`` decides which of them are supported."""

_CP = "execution.checkpointing."
_NET = "taskmanager.network.memory."


KEYS: Mapping[str, Key] = {
    f"{_CP}interval": time_key("interval_us", 10_000, is_live=True),
    f"{_CP}timeout": time_key("timeout_us", 10_000, is_live=True),
    f"{_CP}interval-during-backlog": Key(
        "backlog_interval_us",
        lambda text: -1 if text.strip().lower() == "same" else duration(0, 7 * DAY_US)(text),
        lambda value: "same" if value < 0 else show_us(value),
        f'{DURATION_WORDS}, 0 for none, or "same"',
    ),
    f"{_CP}min-pause": time_key("min_pause_us", 0, is_live=True),
    f"{_CP}max-concurrent-checkpoints": count_key("max_concurrent", 1, 100),
    f"{_CP}tolerable-failed-checkpoints": limit_key("tolerable_failures", failures, "a whole number", is_live=True),
    f"{_CP}num-retained": count_key("num_retained", 1, 100),
    f"{_CP}mode": Key(
        "is_exactly_once",
        {"EXACTLY_ONCE": True, "AT_LEAST_ONCE": False}.__getitem__,
        lambda value: "EXACTLY_ONCE" if value else "AT_LEAST_ONCE",
        "EXACTLY_ONCE or AT_LEAST_ONCE",
        words=("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    ),
    f"{_CP}unaligned.enabled": flag_key("is_unaligned", is_live=True),
    f"{_CP}unaligned.forced": flag_key("is_unaligned_forced"),
    "runtime.concurrent-unaligned": flag_key("is_unaligned_concurrent"),
    "runtime.unaligned.starts-with": word_key("starts_with", StartsWith, is_live=True),
    "runtime.unaligned.front-input": word_key("front_input", FrontInput, is_live=True),
    "runtime.chandy-lamport.enabled": flag_key("is_chandy_lamport", is_live=True),
    "runtime.chandy-lamport.log-until": word_key("log_until", LogUntil, is_live=True),
    "runtime.chandy-lamport.initiation": word_key("initiation", Initiation, is_live=True),
    "runtime.chandy-lamport.markers-overtake": flag_key("markers_overtake", is_live=True),
    "runtime.chandy-lamport.marked-channels": word_key("marked_channels", MarkedChannels, is_live=True),
    f"{_CP}unaligned.interruptible-timers.enabled": flag_key("are_timers_interruptible"),
    f"{_CP}aligned-checkpoint-timeout": time_key("aligned_timeout_us", 0, is_live=True),
    f"{_CP}checkpoints-after-tasks-finish": flag_key("counts_ended_channels"),
    "runtime.finish-protocol": word_key("finish_protocol", FinishProtocol),
    "execution.state-recovery.from-local": flag_key("recovers_locally"),
    f"{_CP}recover-without-channel-state.checkpoint-id": count_key("drops_channel_state_of", -1, 2**62, is_live=True),
    "runtime.prioritize-missing": flag_key("prioritizes_missing", is_live=True),
    "runtime.on-stop-failure": word_key("on_stop_failure", OnStopFailure, is_live=True),
    "runtime.overtake-unflushed": time_key("overtake_unflushed_us", 0, is_live=True),
    "runtime.align-after-first-barrier": flag_key("aligns_after_first", is_live=True),
    "runtime.phase-order": Key(
        "phase_order",
        one_of(DEFAULT_ORDER, *_ORDERS),
        str,
        f"{DEFAULT_ORDER}, or an order of phases such as A-S-F",
        words=(DEFAULT_ORDER, *_ALIGNED_ORDERS, *_LOGGED_ORDERS),
    ),
    "runtime.inflight-cap.bytes": limit_key("cap_bytes", cap, SIZE_WORDS, is_live=True),
    "runtime.inflight-cap.job-bytes": limit_key("cap_job_bytes", cap, SIZE_WORDS, is_live=True),
    "runtime.inflight-cap.on-cap": word_key("on_cap", OnCap, is_live=True),
    "taskmanager.memory.segment-size": Key(
        "segment_bytes",
        lambda text: whole(256, 1 << 20)(str(size_bytes(text))),
        str,
        f"{SIZE_WORDS}, 256 bytes to 1 mb",
    ),
    "taskmanager.memory.min-segment-size": Key(
        "segment_bytes_min",
        lambda text: whole(64, 1 << 20)(str(size_bytes(text))),
        str,
        f"{SIZE_WORDS}, 64 bytes to 1 mb",
    ),
    f"{_NET}buffer-debloat.enabled": flag_key("is_debloating", is_live=True),
    f"{_NET}buffer-debloat.target": time_key("debloat_target_us", 1_000, is_live=True),
    f"{_NET}buffer-debloat.period": time_key("debloat_period_us", 1_000, is_live=True),
    f"{_NET}buffer-debloat.samples": count_key("debloat_samples", 1, 10_000, is_live=True),
    f"{_NET}buffer-debloat.threshold-percentages": count_key("debloat_threshold_percent", 0, 100, is_live=True),
    f"{_NET}buffers-per-channel": count_key("exclusive_buffers", 0, 1000),
    f"{_NET}floating-buffers-per-gate": count_key("floating_buffers", 1, 10_000),
    f"{_NET}max-buffers-per-channel": count_key("max_buffers_per_channel", 1, 10_000),
    f"{_NET}max-overdraft-buffers-per-gate": count_key("max_overdraft", 0, 1000),
    "execution.buffer-timeout.interval": time_key("flush_timeout_us", 1_000),
    "runtime.state-backend": word_key("state_backend", StateBackend),
    f"{_CP}incremental": flag_key("is_incremental", is_live=True),
    "runtime.full-checkpoint-every": count_key("full_every", 0, 10**6, is_live=True),
    "runtime.diff.chain-max": count_key("diff_chain_max", 1, 1000),
    "runtime.sst.runs-max": count_key("sst_runs_max", 1, 1000),
    "runtime.changelog.flush-interval": time_key("changelog_flush_us", 0),
    "runtime.changelog.materialize-interval": time_key("materialize_us", 10_000),
    "runtime.spilling": word_key("spilling", Spilling),
    "runtime.incremental-channel-state": flag_key("are_buffers_incremental"),
    f"{_CP}file-merging.enabled": flag_key("merges_files"),
    f"{_CP}file-merging.across-checkpoint-boundary": flag_key("merges_across"),
    f"{_CP}file-merging.max-file-size": Key(
        "merged_bytes_max",
        lambda text: whole(1, 1 << 40)(str(size_bytes(text))),
        str,
        f"{SIZE_WORDS}, 1 byte to 1 tb",
    ),
    f"{_CP}file-merging.max-space-amplification": Key(
        "amplification_percent_max",
        percent,
        lambda value: f"{value / 100:g}",
        "a number from 1 to 1000",
    ),
    "runtime.file-merging.max-subtasks-per-file": count_key("merged_subtasks_max", 1, 32768),
    "runtime.cost.diff-ns-per-byte": count_key("diff_ns_per_byte", 0, 10**6),
    "runtime.cost.replay-ns-per-change": count_key("replay_ns_per_change", 0, 10**9),
    "web.checkpoints.history": count_key("history_size", 1, 10_000),
    "restart-strategy.fixed-delay.delay": time_key("restart_delay_us", 0),
    "runtime.task-managers": count_key("task_managers", 1, 1024),
    "runtime.cost.rpc-latency": time_key("rpc_latency_us", 1),
    "runtime.cost.trigger": time_key("trigger_cost_us", 0),
    "runtime.cost.link-latency": time_key("link_latency_us", 1),
    "runtime.cost.link-bytes-per-s": count_key("link_bytes_per_s", 1_000, 10**12),
    "runtime.cost.barrier": time_key("barrier_cost_us", 0),
    "runtime.cost.sync": time_key("sync_fixed_us", 0),
    "runtime.cost.sync-ns-per-byte": count_key("sync_ns_per_byte", 0, 10**6),
    "runtime.cost.recovery-bytes-per-s": count_key("recovery_bytes_per_s", 1_000, 10**12),
    "runtime.inflight-cap.stall": time_key("cap_stall_us", 10_000),
    "runtime.transaction-timeout": time_key("transaction_timeout_us", 100_000),
    "runtime.fuzz-schedule": count_key("fuzz_schedule", 0, 2**63 - 1),
}

LIVE_CONFIG_KEYS: tuple[str, ...] = tuple(name for name, key in KEYS.items() if key.is_live)
"""Keys of the settings that may change while a job runs."""

assert {key.field for key in KEYS.values()} <= {field.name for field in fields(RuntimeConfig)}


def change(
    config: RuntimeConfig, changes: Mapping[str, object], *, live: bool = False, where: str = "config"
) -> RuntimeConfig:
    """Return ``config`` with ``changes`` applied. If one change is refused, none is applied.

    Raises:
        InvalidInputError: a key is unknown, may not change while the job runs, or its value is out of bounds.
        PlanError: the settings contradict each other.
    """
    problems: list[FieldProblem] = []
    values: dict[str, Any] = {}
    for name, raw in changes.items():
        field = f"{where}.{name}" if where else name
        key = KEYS.get(name)
        if key is None or (live and not key.is_live):
            problems.append(not_taken(name, field, LIVE_CONFIG_KEYS if live else tuple(KEYS), is_known=key is not None))
            continue
        try:
            values[key.field] = key.parse(show_flag(raw) if isinstance(raw, bool) else str(raw))
        except (ValueError, KeyError, OverflowError):
            problems.append(FieldProblem(field, f"{shown(raw)!r} is not a valid value", key.allowed))
    if problems:
        raise InvalidInputError(problems, what="setting")
    changed = replace(config, **values)
    validate(changed)
    return changed


def shown(value: object) -> str:
    """Return the first 80 characters of any value as text, for an error message."""
    try:
        return str(value)[:80]
    except ValueError:
        return "a number of thousands of digits"
    except RecursionError:
        return "tables or lists nested too deeply"


def validate(config: RuntimeConfig) -> None:
    """Refuse settings that contradict each other (G-6).

    Raises:
        PlanError: two settings contradict each other.
    """
    if config.is_unaligned and config.max_concurrent > 1 and not config.is_unaligned_concurrent:
        raise PlanError(
            "unaligned checkpoints run one at a time",
            rule="G-6",
            vertex=None,
            fix=f"set {_CP}max-concurrent-checkpoints = 1, {_CP}unaligned.enabled = false or "
            "runtime.concurrent-unaligned = true",
        )
    if config.is_unaligned and config.is_unaligned_concurrent and (config.aligned_timeout_us or config.has_cap):
        raise PlanError(
            "unaligned checkpoints with an alignment timeout or an in-flight cap run one at a time",
            rule="CC-4",
            vertex=None,
            fix=f"set runtime.concurrent-unaligned = false, or {_CP}aligned-checkpoint-timeout = 0 and no cap",
        )
    others = config.is_unaligned_concurrent or config.aligned_timeout_us or config.has_cap
    if config.is_unaligned and config.starts_with_last and others:
        raise PlanError(
            "unaligned checkpoints that start with the last barrier have no alignment timeout and no cap, and run one "
            "at a time",
            rule="UL-1",
            vertex=None,
            fix="set runtime.unaligned.starts-with = first-barrier, or runtime.concurrent-unaligned = false, "
            f"{_CP}aligned-checkpoint-timeout = 0 and no cap",
        )
    if config.is_unaligned and not config.is_exactly_once:
        raise PlanError(
            "unaligned checkpoints require exactly-once mode",
            rule="ALO-5",
            vertex=None,
            fix=f"set {_CP}unaligned.enabled = false or {_CP}mode = EXACTLY_ONCE",
        )
    _validate_chandy_lamport(config)
    _validate_files(config)
    if config.is_incremental and config.state_backend is StateBackend.FULL:
        raise PlanError(
            "the state backend full has no incremental checkpoints",
            rule="IN-1",
            vertex=None,
            fix=f"set runtime.state-backend to changelog, diff or sst, or {_CP}incremental = false",
        )
    if 0 < config.backlog_interval_us < config.interval_us:
        raise PlanError(
            f"the interval during a backlog, {show_us(config.backlog_interval_us)}, is shorter than the interval, "
            f"{show_us(config.interval_us)}",
            rule="SRC-5",
            vertex=None,
            fix=f"set {_CP}interval-during-backlog = 0, or at least to {_CP}interval",
        )
    _validate_order(config)
    if config.segment_bytes_min > config.segment_bytes:
        raise PlanError(
            f"the minimum segment size, {config.segment_bytes_min} bytes, exceeds the segment size, "
            f"{config.segment_bytes} bytes",
            rule="DB-4",
            vertex=None,
            fix="lower taskmanager.memory.min-segment-size or raise taskmanager.memory.segment-size",
        )
    if config.min_pause_us > 0 and config.max_concurrent > 1:
        raise PlanError(
            "with a minimum pause, checkpoints run one at a time",
            rule="G-6",
            vertex=None,
            fix=f"set {_CP}max-concurrent-checkpoints = 1 or {_CP}min-pause = 0",
        )


def _validate_chandy_lamport(config: RuntimeConfig) -> None:
    """Refuse settings that contradict Chandy-Lamport checkpoints.

    Raises:
        PlanError: two settings contradict each other.
    """
    if not config.is_chandy_lamport:
        return
    enabled = "runtime.chandy-lamport.enabled = false"
    if config.is_unaligned:
        raise PlanError(
            "a checkpoint is either a Chandy-Lamport checkpoint or an unaligned one",
            rule="CL-1",
            vertex=None,
            fix=f"set {enabled} or {_CP}unaligned.enabled = false",
        )
    if not config.is_exactly_once:
        raise PlanError(
            "Chandy-Lamport checkpoints require exactly-once mode",
            rule="CL-1",
            vertex=None,
            fix=f"set {enabled} or {_CP}mode = EXACTLY_ONCE",
        )
    if config.max_concurrent > 1:
        raise PlanError(
            "Chandy-Lamport checkpoints run one at a time",
            rule="CL-1",
            vertex=None,
            fix=f"set {enabled} or {_CP}max-concurrent-checkpoints = 1",
        )
    if config.markers_overtake and config.marked_channels is MarkedChannels.BLOCK:
        raise PlanError(
            "markers that overtake queued data block no channel",
            rule="CL-11",
            vertex=None,
            fix="set runtime.chandy-lamport.marked-channels = process",
        )


def _validate_files(config: RuntimeConfig) -> None:
    """Refuse settings of the files of channel state that have no effect together.

    Raises:
        PlanError: a setting has no effect with the others.
    """
    if config.are_buffers_incremental and config.spills_continuously:
        raise PlanError(
            "with continuous spilling, no in-flight data is written twice",
            rule="FM-5",
            vertex=None,
            fix="set runtime.incremental-channel-state = false or runtime.spilling = ad-hoc",
        )
    if config.merges_across and not config.merges_files:
        raise PlanError(
            "files are reused for later checkpoints only if files are merged",
            rule="FM-2",
            vertex=None,
            fix=f"set {_CP}file-merging.enabled = true or {_CP}file-merging.across-checkpoint-boundary = false",
        )


def _validate_order(config: RuntimeConfig) -> None:
    """Refuse an order of phases that is not supported, or that has no effect with the other settings (PH-1).

    Raises:
        PlanError: the order is refused.
    """
    order = config.phase_order
    if order == DEFAULT_ORDER:
        return
    why = ""
    if order not in (*_ALIGNED_ORDERS, *_LOGGED_ORDERS):
        why = "logging before the snapshot, or forwarding the barrier apart from it, would repeat or lose records"
    elif order in _LOGGED_ORDERS and not config.logs_in_flight:
        why = "aligned checkpoints log no in-flight data"
    elif order in _ALIGNED_ORDERS and config.is_chandy_lamport:
        why = "Chandy-Lamport checkpoints do not align"
    elif order in _ALIGNED_ORDERS and config.is_unaligned and not config.aligned_timeout_us:
        why = "unaligned checkpoints do not align"
    if why:
        offered = ", ".join(_LOGGED_ORDERS if config.logs_in_flight else _ALIGNED_ORDERS)
        raise PlanError(
            f"the order {order}: {why}", rule="PH-1", vertex=None, fix=f"set runtime.phase-order to one of {offered}"
        )


def show(config: RuntimeConfig, names: tuple[str, ...] = tuple(KEYS)) -> dict[str, str]:
    """Return the settings by key, as text that ``change`` accepts."""
    return {name: KEYS[name].show(getattr(config, KEYS[name].field)) for name in names}
