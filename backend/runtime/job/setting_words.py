"""Describes each setting for a reader: its group, a title, a sentence, and the jobs in which it has an effect.

The pages of the documents and the Lab derive from it. It has an entry for each of ``config.KEYS``, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backend.runtime.job.config import KEYS, RuntimeConfig, StateBackend

_CP: Final = "execution.checkpointing."
_NET: Final = "taskmanager.network.memory."
_COST: Final = "runtime.cost."


class SettingGroup(StrEnum):
    """The groups of settings, in the order of the documents. The value is the title."""

    TRIGGER = "When checkpoints run"
    ALIGNED = "Barriers"
    UNALIGNED = "Unaligned checkpoints"
    TIMEOUT = "Alignment timeout"
    CAP = "Cap on in-flight data"
    CHANDY_LAMPORT = "Chandy-Lamport checkpoints"
    IN_FLIGHT = "Files of in-flight data"
    STATE = "State backends"
    END = "End of input"
    RECOVERY = "Failures and recovery"
    NETWORK = "Network buffers"
    DEBLOATING = "Buffer debloating"
    COSTS = "Costs of the simulated cluster"


def _always(_: RuntimeConfig) -> bool:
    return True


def _unaligned(config: RuntimeConfig) -> bool:
    return config.is_unaligned


def _first_barrier(config: RuntimeConfig) -> bool:
    has_timeout = config.aligned_timeout_us > 0
    return config.is_unaligned and not (config.starts_with_last or has_timeout or config.has_cap)


def _last_barrier(config: RuntimeConfig) -> bool:
    return config.is_unaligned and config.starts_with_last


def _timeout(config: RuntimeConfig) -> bool:
    return config.is_unaligned and config.aligned_timeout_us > 0


def _capped(config: RuntimeConfig) -> bool:
    return config.is_unaligned and config.has_cap


def _chandy_lamport(config: RuntimeConfig) -> bool:
    return config.is_chandy_lamport


def _in_flight(config: RuntimeConfig) -> bool:
    return config.logs_in_flight


def _incremental(config: RuntimeConfig) -> bool:
    return config.is_incremental


def _with(backend: StateBackend) -> Callable[[RuntimeConfig], bool]:
    return lambda config: config.state_backend is backend


_changelog, _diff, _sst = _with(StateBackend.CHANGELOG), _with(StateBackend.DIFF), _with(StateBackend.SST)


@dataclass(frozen=True, slots=True)
class SettingWords:
    """What a reader has to know of one setting. ``is_used``: whether it has an effect with the other settings."""

    group: SettingGroup
    title: str
    sentence: str
    is_used: Callable[[RuntimeConfig], bool] = _always


_G = SettingGroup

WORDS: Final[Mapping[str, SettingWords]] = {
    f"{_CP}interval": SettingWords(_G.TRIGGER, "Interval", "The time between two triggers of a checkpoint."),
    f"{_CP}timeout": SettingWords(_G.TRIGGER, "Timeout", "A checkpoint that takes longer than this expires."),
    f"{_CP}min-pause": SettingWords(
        _G.TRIGGER, "Minimum pause", "The least time between the end of a checkpoint and the next trigger."
    ),
    f"{_CP}max-concurrent-checkpoints": SettingWords(
        _G.TRIGGER, "Checkpoints at once", "The number of checkpoints that may be pending at the same time."
    ),
    f"{_CP}interval-during-backlog": SettingWords(
        _G.TRIGGER, "Interval during a backlog", "The interval while a source works off a backlog."
    ),
    f"{_CP}num-retained": SettingWords(
        _G.TRIGGER, "Retained checkpoints", "The number of completed checkpoints that are kept."
    ),
    "web.checkpoints.history": SettingWords(
        _G.TRIGGER, "Listed checkpoints", "The number of ended checkpoints that the runtime lists."
    ),
    f"{_CP}mode": SettingWords(
        _G.ALIGNED, "Mode", "With at least once, no channel waits for barriers, and a record may count twice."
    ),
    "runtime.phase-order": SettingWords(
        _G.ALIGNED,
        "Order of phases",
        "The order in which a subtask aligns (A), forwards the barrier (F), takes its snapshot (S) and logs data (L).",
    ),
    f"{_CP}unaligned.enabled": SettingWords(
        _G.UNALIGNED, "Unaligned", "Whether barriers overtake queued data, which the checkpoint then contains."
    ),
    f"{_CP}unaligned.forced": SettingWords(
        _G.UNALIGNED,
        "On pointwise edges",
        "Whether barriers also overtake data on forward and rescale edges.",
        _unaligned,
    ),
    "runtime.unaligned.starts-with": SettingWords(
        _G.UNALIGNED, "Starts with", "The barrier with which a subtask starts: the first or the last.", _unaligned
    ),
    "runtime.unaligned.front-input": SettingWords(
        _G.UNALIGNED,
        "Input in front",
        "With the last barrier: whether the input in front of the barriers is persisted, or processed first.",
        _last_barrier,
    ),
    "runtime.prioritize-missing": SettingWords(
        _G.UNALIGNED,
        "Prefer missing channels",
        "Whether a subtask reads channels whose barrier is missing before the others.",
        _unaligned,
    ),
    "runtime.concurrent-unaligned": SettingWords(
        _G.UNALIGNED,
        "Unaligned at once",
        "Whether several unaligned checkpoints may be pending at once.",
        _first_barrier,
    ),
    f"{_CP}unaligned.interruptible-timers.enabled": SettingWords(
        _G.UNALIGNED,
        "Interrupt timers",
        "Whether a barrier can interrupt a subtask that fires many timers.",
        _unaligned,
    ),
    f"{_CP}aligned-checkpoint-timeout": SettingWords(
        _G.TIMEOUT,
        "Aligned timeout",
        "An aligned checkpoint that takes longer than this continues as an unaligned one.",
        _unaligned,
    ),
    "runtime.align-after-first-barrier": SettingWords(
        _G.TIMEOUT,
        "Clock of each subtask",
        "Whether the timeout counts from a subtask's first barrier, not from the trigger.",
        _timeout,
    ),
    "runtime.overtake-unflushed": SettingWords(
        _G.TIMEOUT,
        "Overtake in output after",
        "A barrier that has waited this long in an output overtakes the data there; 0 means off.",
        _timeout,
    ),
    "runtime.inflight-cap.bytes": SettingWords(
        _G.CAP, "Cap on in-flight data", "A subtask persists at most this much in-flight data.", _unaligned
    ),
    "runtime.inflight-cap.job-bytes": SettingWords(
        _G.CAP, "Cap of the job", "All subtasks together persist at most this much in-flight data.", _capped
    ),
    "runtime.inflight-cap.on-cap": SettingWords(
        _G.CAP,
        "Above the cap",
        "Above the cap, a subtask waits until the data fits, declines the checkpoint, or persists a part.",
        _capped,
    ),
    "runtime.inflight-cap.stall": SettingWords(
        _G.CAP, "Give up after", "A checkpoint whose data does not move for this long is declined.", _capped
    ),
    "runtime.chandy-lamport.enabled": SettingWords(
        _G.CHANDY_LAMPORT, "Chandy-Lamport", "Whether checkpoints are those of Chandy and Lamport, not aligned ones."
    ),
    "runtime.chandy-lamport.initiation": SettingWords(
        _G.CHANDY_LAMPORT,
        "Triggered tasks",
        "The tasks that the coordinator triggers: the sources, or all tasks.",
        _chandy_lamport,
    ),
    "runtime.chandy-lamport.log-until": SettingWords(
        _G.CHANDY_LAMPORT,
        "Log ends at",
        "The log of a channel ends when its marker arrives, or when the subtask reads it.",
        _chandy_lamport,
    ),
    "runtime.chandy-lamport.markers-overtake": SettingWords(
        _G.CHANDY_LAMPORT, "Markers overtake", "Whether markers overtake queued data.", _chandy_lamport
    ),
    "runtime.chandy-lamport.marked-channels": SettingWords(
        _G.CHANDY_LAMPORT,
        "Marked channels",
        "A channel whose marker was read is processed further, or blocked until the last marker is read.",
        _chandy_lamport,
    ),
    "runtime.spilling": SettingWords(
        _G.IN_FLIGHT,
        "Spilling",
        "In-flight data is written when a checkpoint overtakes it (ad-hoc), or when it is sent (continuous).",
        _in_flight,
    ),
    "runtime.incremental-channel-state": SettingWords(
        _G.IN_FLIGHT,
        "Incremental in-flight data",
        "Whether data that the last confirmed checkpoint has is not written again.",
        _in_flight,
    ),
    f"{_CP}file-merging.enabled": SettingWords(
        _G.IN_FLIGHT,
        "Merge files",
        "Whether several subtasks write their in-flight data into the same files.",
        _in_flight,
    ),
    "runtime.file-merging.max-subtasks-per-file": SettingWords(
        _G.IN_FLIGHT, "Subtasks for each file", "The largest number of subtasks that share a file.", _in_flight
    ),
    f"{_CP}file-merging.across-checkpoint-boundary": SettingWords(
        _G.IN_FLIGHT, "Reuse files", "Whether later checkpoints append to the files of earlier ones.", _in_flight
    ),
    f"{_CP}file-merging.max-file-size": SettingWords(
        _G.IN_FLIGHT, "Largest file", "A file of in-flight data is closed at this size.", _in_flight
    ),
    f"{_CP}file-merging.max-space-amplification": SettingWords(
        _G.IN_FLIGHT,
        "Space amplification",
        "A file that is larger than this many times its needed part is not used again.",
        _in_flight,
    ),
    "runtime.state-backend": SettingWords(
        _G.STATE,
        "State backend",
        "How keyed state is written: in full, as a changelog, as differences, or in sorted files.",
    ),
    f"{_CP}incremental": SettingWords(
        _G.STATE, "Incremental", "Whether a checkpoint writes only what changed and refers to files of earlier ones."
    ),
    "runtime.full-checkpoint-every": SettingWords(
        _G.STATE,
        "Full checkpoint every",
        "Of this many checkpoints, one is full; 0 means that none has to be.",
        _incremental,
    ),
    "runtime.changelog.flush-interval": SettingWords(
        _G.STATE,
        "Flush of the changelog",
        "How often the changelog is written between checkpoints; 0 means only with a checkpoint.",
        _changelog,
    ),
    "runtime.changelog.materialize-interval": SettingWords(
        _G.STATE,
        "Materialization",
        "How often the whole state is written, after which the log starts empty.",
        _changelog,
    ),
    f"{_COST}replay-ns-per-change": SettingWords(
        _G.STATE,
        "Replay of a change",
        "The time to apply one change of the log in a restore, in nanoseconds.",
        _changelog,
    ),
    "runtime.diff.chain-max": SettingWords(
        _G.STATE, "Chain of differences", "The largest number of differences that follow a whole state.", _diff
    ),
    f"{_COST}diff-ns-per-byte": SettingWords(
        _G.STATE,
        "Comparing a byte",
        "The time to compare a byte of the state with the last one, in nanoseconds.",
        _diff,
    ),
    "runtime.sst.runs-max": SettingWords(
        _G.STATE, "Sorted files", "The number of sorted files above which some are merged.", _sst
    ),
    "runtime.finish-protocol": SettingWords(
        _G.END,
        "Finish",
        "After its input has ended, a subtask stays (none), waits for a final checkpoint (revised) or ends (legacy).",
    ),
    f"{_CP}checkpoints-after-tasks-finish": SettingWords(
        _G.END, "Checkpoints after the end", "Whether checkpoints continue after some subtasks have finished."
    ),
    "runtime.on-stop-failure": SettingWords(
        _G.END, "Failure while stopping", "What a job does that fails after its last savepoint: recover, or fail."
    ),
    "runtime.transaction-timeout": SettingWords(
        _G.RECOVERY, "Transaction timeout", "A transaction of a sink that is open for longer is aborted."
    ),
    f"{_CP}tolerable-failed-checkpoints": SettingWords(
        _G.RECOVERY, "Tolerated failures", "One more consecutive failed checkpoint than this restarts the job."
    ),
    "restart-strategy.fixed-delay.delay": SettingWords(
        _G.RECOVERY, "Restart delay", "The time from a failure to the next start of the job."
    ),
    "execution.state-recovery.from-local": SettingWords(
        _G.RECOVERY, "Local recovery", "Whether subtasks restore from copies on their own worker."
    ),
    f"{_CP}recover-without-channel-state.checkpoint-id": SettingWords(
        _G.RECOVERY,
        "Restore without in-flight data",
        "The number of the checkpoint whose in-flight data a restore leaves out; -1 means none.",
    ),
    f"{_NET}buffers-per-channel": SettingWords(
        _G.NETWORK, "Buffers per channel", "The number of buffers that belong to each channel."
    ),
    f"{_NET}floating-buffers-per-gate": SettingWords(
        _G.NETWORK, "Floating buffers per gate", "The number of buffers that the channels of an input share."
    ),
    f"{_NET}max-buffers-per-channel": SettingWords(
        _G.NETWORK, "Most buffers of a channel", "The largest number of buffers that queue in an output channel."
    ),
    f"{_NET}max-overdraft-buffers-per-gate": SettingWords(
        _G.NETWORK, "Overdraft", "The number of buffers beyond its pool that a subtask may use to finish a record."
    ),
    "taskmanager.memory.segment-size": SettingWords(_G.NETWORK, "Buffer size", "The size of a network buffer."),
    "execution.buffer-timeout.interval": SettingWords(
        _G.NETWORK, "Flush", "The interval at which buffers are sent that are not full."
    ),
    "runtime.task-managers": SettingWords(
        _G.NETWORK, "Workers", "The number of workers. Channels between subtasks of one worker are local."
    ),
    f"{_NET}buffer-debloat.enabled": SettingWords(
        _G.DEBLOATING, "Debloating", "Whether the size of buffers follows the throughput."
    ),
    f"{_NET}buffer-debloat.target": SettingWords(
        _G.DEBLOATING, "Target", "The time in which a subtask should consume the data that is queued for it."
    ),
    f"{_NET}buffer-debloat.period": SettingWords(
        _G.DEBLOATING, "Period", "The period in which the throughput is measured and the size is set."
    ),
    f"{_NET}buffer-debloat.samples": SettingWords(
        _G.DEBLOATING, "Samples", "The number of measurements over which the size is smoothed."
    ),
    f"{_NET}buffer-debloat.threshold-percentages": SettingWords(
        _G.DEBLOATING, "Threshold", "The least change of the size, in percent, that is announced."
    ),
    "taskmanager.memory.min-segment-size": SettingWords(_G.DEBLOATING, "Least size", "The least size of a buffer."),
    f"{_COST}rpc-latency": SettingWords(
        _G.COSTS, "Message latency", "The time of a message between the coordinator and a subtask."
    ),
    f"{_COST}trigger": SettingWords(
        _G.COSTS, "Trigger cost", "The time that the coordinator needs to send one trigger before the next."
    ),
    f"{_COST}link-latency": SettingWords(_G.COSTS, "Link latency", "The time of a buffer on a link, without its size."),
    f"{_COST}link-bytes-per-s": SettingWords(_G.COSTS, "Link speed", "The bytes that a link carries in a second."),
    f"{_COST}barrier": SettingWords(_G.COSTS, "Barrier cost", "The time that a subtask needs to handle a barrier."),
    f"{_COST}sync": SettingWords(_G.COSTS, "Sync part", "The fixed time of the synchronous part of a snapshot."),
    f"{_COST}sync-ns-per-byte": SettingWords(
        _G.COSTS, "Sync part per byte", "The time of the synchronous part for each byte of state, in nanoseconds."
    ),
    f"{_COST}recovery-bytes-per-s": SettingWords(
        _G.COSTS, "Speed of a restore", "The bytes of state that a subtask loads in a second."
    ),
    "runtime.fuzz-schedule": SettingWords(
        _G.COSTS, "Fuzzed order", "The seed by which events of the same instant change their order; 0 means off."
    ),
}

assert set(WORDS) == set(KEYS), set(WORDS) ^ set(KEYS)
