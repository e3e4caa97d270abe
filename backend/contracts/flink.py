"""The names in Flink's monitoring REST: paths, sentinel values, status words, limits and metric names.

Only the live runtime, which writes them, and the collector, which reads them, use these names. Invariant: every
sentinel here was seen on a real Flink 1.20 or 2.3 (``tests/contract``), or its comment names the constant in Flink's
source.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from backend.domain import flink_options
from backend.domain.flink_options import INLINE_THRESHOLD_KEY, MESSAGE_SIZE_KEYS
from backend.domain.pressure import FETCH_INTERVAL_KEY

# --- sentinels ----------------------------------------------------------------------------------------------------

NOT_YET: Final = -1
"""The value of ``end-time``, ``latest_ack_timestamp`` and ``end_to_end_duration`` before they are known.

It is also the value of an unset ``maxParallelism``.
"""

NAN_TEXT: Final = "NaN"
"""The text that Flink writes instead of a number for a ratio or percentile without data."""

UNSET_ALIGNED_TIMEOUT_MS: Final = 0
"""The value of ``aligned_checkpoint_timeout`` if unaligned checkpoints are off.

It then means *not applicable*, not *always unaligned*.
"""

# --- words --------------------------------------------------------------------------------------------------------

STATUS_IN_PROGRESS: Final = "IN_PROGRESS"
STATUS_COMPLETED: Final = "COMPLETED"
STATUS_FAILED: Final = "FAILED"

TYPE_CHECKPOINT: Final = "CHECKPOINT"
TYPE_UNALIGNED: Final = "UNALIGNED_CHECKPOINT"
TYPE_SAVEPOINT: Final = "SAVEPOINT"
TYPE_SYNC_SAVEPOINT: Final = "SYNC_SAVEPOINT"

SUBTASK_ACKNOWLEDGED: Final = "completed"
CLASS_NAME: Final = "className"
CLASS_NAME_BEFORE_1_15: Final = "@class"
"""The member that tells the kind of a subtask's row. Flink renamed it in 1.15 (``JsonTypeInfo`` of the answers)."""
CHECKPOINTED_SIZE: Final = "checkpointed_size"
"""The bytes that a checkpoint wrote. Before 1.15, ``state_size`` has this meaning, and this member does not exist."""

JOB_STATES_ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
JOB_STATES_STARTING: Final = frozenset({"INITIALIZING", "CREATED", "RECONCILING"})
"""The states before ``RUNNING`` (``JobStatus``). While a job is ``INITIALIZING``, its plan is ``{}``."""
JOB_STATES_RESTARTING: Final = frozenset({"RESTARTING", "FAILING"})
JOB_STATE_RUNNING: Final = "RUNNING"
JOB_STATE_FINISHED: Final = "FINISHED"

PLAN_BATCH: Final = "BATCH"
"""The type of the plan of a job in batch mode, which takes no checkpoints. Flink before 1.15 reports no type."""

CHECKPOINTING_DISABLED: Final = "enabled"
"""A word that the text of a 404 response of ``/checkpoints*`` contains if the job takes no checkpoints.

The texts are '... has not been enabled' and '... is not enabled'.
"""

TASK_STATE_FINISHED: Final = "FINISHED"
"""The state of a task that has ended without a failure."""

RUNTIME_FIELD: Final = "barrierscope-runtime"
"""The field of ``/config`` with the live runtime's version. No other engine has this field."""

RUNTIME_INFLIGHT_CAP: Final = "inflight-cap-bytes"
"""The field of ``/checkpoints/config`` with the in-flight cap of the live runtime, if a cap is set."""

RUNTIME_DEBLOAT_TARGET: Final = "debloat-target-ms"
"""The field of ``/checkpoints/config`` with the debloating target of the live runtime, if debloating is on."""

RUNTIME_PROTOCOL: Final = "protocol"
"""The field of ``/checkpoints/config`` and of a checkpoint with a protocol of the live runtime that Flink lacks."""

RUNTIME_CAP_BOUND: Final = "cap-bound-subtasks"
"""The field of a checkpoint of the live runtime with the number of subtasks at which its cap had an effect."""

RUNTIME_SPILLING: Final = "spilling"
"""The field of ``/checkpoints/config`` with the time at which the live runtime writes in-flight data."""

DEBLOAT_ENABLED: Final = "taskmanager.network.memory.buffer-debloat.enabled"
DEBLOAT_TARGET: Final = "taskmanager.network.memory.buffer-debloat.target"
DEBLOAT_PERIOD: Final = "taskmanager.network.memory.buffer-debloat.period"
DEBLOAT_TARGET_DEFAULT_MS: Final = 1_000
"""Flink's default of ``DEBLOAT_TARGET``. ``/jobmanager/config`` lists only settings that are set."""

_MEMORY: Final = "taskmanager.network.memory."
RETAINED: Final = "execution.checkpointing.num-retained"
BUFFERS_PER_CHANNEL: Final = f"{_MEMORY}buffers-per-channel"
FLOATING_BUFFERS_PER_GATE: Final = f"{_MEMORY}floating-buffers-per-gate"
MAX_BUFFERS_PER_CHANNEL: Final = f"{_MEMORY}max-buffers-per-channel"
SEGMENT_SIZE: Final = "taskmanager.memory.segment-size"
RECOVER_OUTPUT_DOWNSTREAM: Final = "execution.checkpointing.unaligned.recover-output-on-downstream.enabled"
DURING_RECOVERY: Final = "execution.checkpointing.during-recovery.enabled"
UNALIGNED: Final = "execution.checkpointing.unaligned.enabled"
AFTER_TASKS_FINISH: Final = "execution.checkpointing.checkpoints-after-tasks-finish"
SCHEDULER: Final = "jobmanager.scheduler"
SCHEDULER_MODE: Final = "scheduler-mode"
_CLUSTER_OPTIONS: Final = (
    RETAINED,
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS_PER_GATE,
    MAX_BUFFERS_PER_CHANNEL,
    SEGMENT_SIZE,
    DEBLOAT_ENABLED,
    DEBLOAT_TARGET,
    DEBLOAT_PERIOD,
    RECOVER_OUTPUT_DOWNSTREAM,
    DURING_RECOVERY,
    UNALIGNED,
    AFTER_TASKS_FINISH,
    SCHEDULER,
    SCHEDULER_MODE,
    INLINE_THRESHOLD_KEY,
    *MESSAGE_SIZE_KEYS,
)
_ROCKSDB_KEYS: Final = frozenset(
    f"state.backend.rocksdb.{name}"
    for name in ("predefined-options", "writebuffer.count", "writebuffer.number-to-merge")
)
"""The settings of RocksDB with which versions before 1.14 can hang. The table of options does not have them."""

CLUSTER_KEYS: Final = _ROCKSDB_KEYS.union(*map(flink_options.names_of, _CLUSTER_OPTIONS))
"""The settings of the cluster that are stored, under each name that a release of Flink reads them by.

No other one is, because the configuration may contain secrets.
"""

# --- limits -------------------------------------------------------------------------------------------------------

REQUEST_LINE_MAX_BYTES: Final = 4096
"""The longest request line that Flink accepts.

Flink responds to a longer one with 404 'Unable to load requested file /bad-request.'
"""

PARALLELISM_MAX: Final = 32_768
"""The largest number of subtasks of a vertex (Flink's upper bound of max parallelism)."""

HISTORY_DEFAULT: Final = 10
"""Flink's default of ``web.checkpoints.history``, the number of checkpoints in the history.

A request for the details of an older checkpoint gets a 404.
"""

# --- paths --------------------------------------------------------------------------------------------------------

CONFIG: Final = "/config"
JOBS_OVERVIEW: Final = "/jobs/overview"
CLUSTER_CONFIG: Final = "/jobmanager/config"
"""The cluster's configuration file, as ``[{"key", "value"}]``."""

METRICS_FETCH_INTERVAL: Final = FETCH_INTERVAL_KEY
METRICS_FETCH_INTERVAL_DEFAULT_MS: Final = 10_000
"""The default interval at which a JobManager fetches the metrics of its tasks.

Between two fetches every request returns the same values.
"""


def job(job_id: str) -> str:
    """Return the path of one job: its state, its vertices with their names, and its plan with the edges."""
    return f"/jobs/{job_id}"


def job_metrics(job_id: str, names: tuple[str, ...]) -> str:
    """Return the path of the named metrics of a job. The response leaves out unknown names."""
    return f"/jobs/{job_id}/metrics?get={','.join(names)}"


def exceptions(job_id: str, *, count_max: int) -> str:
    """Return the path of the newest ``count_max`` exceptions of a job."""
    return f"/jobs/{job_id}/exceptions?maxExceptions={count_max}"


def checkpoints(job_id: str) -> str:
    """Return the path of a job's checkpoint counters and history."""
    return f"/jobs/{job_id}/checkpoints"


def checkpoint_config(job_id: str) -> str:
    """Return the path of the checkpoint settings in force."""
    return f"/jobs/{job_id}/checkpoints/config"


def checkpoint_details(job_id: str, checkpoint_id: int) -> str:
    """Return the path of one checkpoint with a summary for each vertex."""
    return f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}"


def checkpoint_subtasks(job_id: str, checkpoint_id: int, vertex_id: str) -> str:
    """Return the path of the subtasks of one vertex in one checkpoint."""
    return f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}"


def barriers(job_id: str, checkpoint_id: int) -> str:
    """Return the path of the barrier events of each channel. Only the live runtime has it."""
    return f"/jobs/{job_id}/checkpoints/{checkpoint_id}/barriers"


def vertex(job_id: str, vertex_id: str) -> str:
    """Return the path of one vertex, with the hosts and attempts of its subtasks."""
    return f"/jobs/{job_id}/vertices/{vertex_id}"


def backpressure(job_id: str, vertex_id: str) -> str:
    """Return the path of the busy, idle and backpressured share of each subtask of a vertex."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/backpressure"


def metric_names(job_id: str, vertex_id: str) -> str:
    """Return the path of the names of a vertex's metrics. They are missing for some seconds after the vertex starts."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"


def vertex_metrics(job_id: str, vertex_id: str, ids: tuple[str, ...] = ()) -> str:
    """Return the path of metrics of single subtasks. Each id is ``<subtask>.<name>``."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/metrics?get={','.join(ids)}"


# --- metrics of a subtask -----------------------------------------------------------------------------------------

BUSY: Final = "busyTimeMsPerSecond"
BACKPRESSURED: Final = "backPressuredTimeMsPerSecond"
IDLE: Final = "idleTimeMsPerSecond"
START_DELAY: Final = "checkpointStartDelayNanos"
ALIGNMENT_TIME: Final = "checkpointAlignmentTime"
"""In nanoseconds. A source does not have this metric."""
RECORDS_IN: Final = "numRecordsIn"
RECORDS_OUT: Final = "numRecordsOut"
BYTES_IN: Final = "numBytesIn"
RECORDS_IN_PER_S: Final = "numRecordsInPerSecond"
RECORDS_OUT_PER_S: Final = "numRecordsOutPerSecond"
"""The mean over the last minute, which a TaskManager computes every five seconds (Flink's ``MeterView``).

Flink divides by a whole minute from the beginning, so the value is too small until the attempt is a minute old.
"""
RATE_WINDOW: Final = timedelta(seconds=65)
"""An attempt must be this old before its rates are those of whole minutes: a minute, and the time between updates."""

FAILED_COMMITTABLES: Final = ".failedCommittables"
"""The end of a name that begins with the operator's. Flink 1.19 and newer count here the commits of a sink (V2) that
failed and are not tried again, from 0 in each attempt.
"""

OUT_POOL_USAGE: Final = ("buffers.outPoolUsage", "Shuffle.Netty.Output.Buffers.outPoolUsage")
"""Two names of one gauge. Flink 2.x has only the longer one. The same holds for the next three constants."""
IN_POOL_USAGE: Final = ("buffers.inPoolUsage", "Shuffle.Netty.Input.Buffers.inPoolUsage")
INPUT_QUEUE_BYTES: Final = ("buffers.inputQueueSize", "Shuffle.Netty.Input.Buffers.inputQueueSize")
OUTPUT_QUEUE_BYTES: Final = ("buffers.outputQueueSize", "Shuffle.Netty.Output.Buffers.outputQueueSize")

# --- metrics of a job ---------------------------------------------------------------------------------------------

RESTARTS: Final = ("numRestarts", "fullRestarts")
"""Two names of the same metric. Flink 2.x has only the first one."""
