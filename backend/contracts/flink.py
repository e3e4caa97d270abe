"""Names of Flink's monitoring REST: paths, sentinels, words, limits and metric names.

Only the live runtime, which writes them, and the collector, which reads them, use these names. Invariant: every
sentinel here was seen on a real Flink 1.20 or 2.3 (``tests/contract``), or is a constant in Flink's source if the
comment says so.
"""

from __future__ import annotations

from typing import Final

# --- sentinels ----------------------------------------------------------------------------------------------------

NOT_YET: Final = -1
"""``end-time``, ``latest_ack_timestamp`` and ``end_to_end_duration`` without a value yet; ``maxParallelism`` unset."""

NAN_TEXT: Final = "NaN"
"""A ratio or percentile without data: this string instead of a number."""

UNSET_ALIGNED_TIMEOUT_MS: Final = 0
"""``aligned_checkpoint_timeout`` if unaligned checkpoints are off: not applicable, not 'always unaligned'."""

BACKPRESSURE_NOT_MEASURED: Final = "deprecated"
"""``status`` of a backpressure answer before the vertex's metrics were fetched; the answer has no other field then."""

# --- words --------------------------------------------------------------------------------------------------------

STATUS_IN_PROGRESS: Final = "IN_PROGRESS"
STATUS_COMPLETED: Final = "COMPLETED"
STATUS_FAILED: Final = "FAILED"

TYPE_CHECKPOINT: Final = "CHECKPOINT"
TYPE_UNALIGNED: Final = "UNALIGNED_CHECKPOINT"
TYPE_SAVEPOINT: Final = "SAVEPOINT"
TYPE_SYNC_SAVEPOINT: Final = "SYNC_SAVEPOINT"

SUBTASK_ACKNOWLEDGED: Final = "completed"

JOB_STATES_ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
JOB_STATES_RESTARTING: Final = frozenset({"RESTARTING", "FAILING"})
JOB_STATE_RUNNING: Final = "RUNNING"

CHECKPOINTING_DISABLED: Final = "enabled"
"""In the 404 of ``/checkpoints*`` if the job takes none ('... has not been enabled', '... is not enabled')."""

RUNTIME_FIELD: Final = "barrierscope-runtime"
"""The live runtime's version in its ``/config``; no other engine has this field."""

RUNTIME_INFLIGHT_CAP: Final = "inflight-cap-bytes"
"""In ``/checkpoints/config`` of the live runtime, if a cap is set."""

# --- limits -------------------------------------------------------------------------------------------------------

REQUEST_LINE_MAX_BYTES: Final = 4096
"""Flink answers a longer request line with 404 'Unable to load requested file /bad-request.'"""

PARALLELISM_MAX: Final = 32_768
"""The largest number of subtasks of a vertex (Flink's upper bound of max parallelism)."""

HISTORY_DEFAULT: Final = 10
"""``web.checkpoints.history``: entries kept. Flink answers a request for older details with 404."""

# --- paths --------------------------------------------------------------------------------------------------------

CONFIG: Final = "/config"
JOBS_OVERVIEW: Final = "/jobs/overview"
CLUSTER_CONFIG: Final = "/jobmanager/config"
"""The cluster's configuration file, as ``[{"key", "value"}]``."""

METRICS_FETCH_INTERVAL: Final = "metrics.fetcher.update-interval"
METRICS_FETCH_INTERVAL_DEFAULT_MS: Final = 10_000
"""How often a JobManager fetches its tasks' metrics. Between two fetches every request returns the same values."""


def job(job_id: str) -> str:
    """One job: its state, its vertices with their names, and the plan with its edges."""
    return f"/jobs/{job_id}"


def job_metrics(job_id: str, names: tuple[str, ...]) -> str:
    """Metrics of the job; the answer omits unknown names."""
    return f"/jobs/{job_id}/metrics?get={','.join(names)}"


def exceptions(job_id: str, *, count_max: int) -> str:
    """The newest ``count_max`` exceptions."""
    return f"/jobs/{job_id}/exceptions?maxExceptions={count_max}"


def checkpoints(job_id: str) -> str:
    """Checkpoint counters and history."""
    return f"/jobs/{job_id}/checkpoints"


def checkpoint_config(job_id: str) -> str:
    """The checkpoint settings in force."""
    return f"/jobs/{job_id}/checkpoints/config"


def checkpoint_details(job_id: str, checkpoint_id: int) -> str:
    """One checkpoint by vertex."""
    return f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}"


def checkpoint_subtasks(job_id: str, checkpoint_id: int, vertex_id: str) -> str:
    """One checkpoint at one vertex by subtask."""
    return f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}"


def barriers(job_id: str, checkpoint_id: int) -> str:
    """Barrier events by channel; only on the live runtime."""
    return f"/jobs/{job_id}/checkpoints/{checkpoint_id}/barriers"


def vertex(job_id: str, vertex_id: str) -> str:
    """One vertex: the hosts and attempts of its subtasks."""
    return f"/jobs/{job_id}/vertices/{vertex_id}"


def backpressure(job_id: str, vertex_id: str) -> str:
    """Busy, idle and backpressured share of each subtask."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/backpressure"


def metric_names(job_id: str, vertex_id: str) -> str:
    """The names of a vertex's metrics; ``[]`` for some seconds after its start."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"


def vertex_metrics(job_id: str, vertex_id: str, ids: tuple[str, ...] = ()) -> str:
    """Metrics of single subtasks; each id is ``<subtask>.<name>``."""
    return f"/jobs/{job_id}/vertices/{vertex_id}/metrics?get={','.join(ids)}"


# --- metrics of a subtask -----------------------------------------------------------------------------------------

BUSY: Final = "busyTimeMsPerSecond"
BACKPRESSURED: Final = "backPressuredTimeMsPerSecond"
IDLE: Final = "idleTimeMsPerSecond"
START_DELAY: Final = "checkpointStartDelayNanos"
ALIGNMENT_TIME: Final = "checkpointAlignmentTime"
"""Nanoseconds; a source has none."""
RECORDS_IN: Final = "numRecordsIn"
RECORDS_OUT: Final = "numRecordsOut"
BYTES_IN: Final = "numBytesIn"

OUT_POOL_USAGE: Final = ("buffers.outPoolUsage", "Shuffle.Netty.Output.Buffers.outPoolUsage")
"""Two names for one gauge, the shorter first; 2.x has only the second. The same holds for the three below."""
IN_POOL_USAGE: Final = ("buffers.inPoolUsage", "Shuffle.Netty.Input.Buffers.inPoolUsage")
INPUT_QUEUE_BYTES: Final = ("buffers.inputQueueSize", "Shuffle.Netty.Input.Buffers.inputQueueSize")
OUTPUT_QUEUE_BYTES: Final = ("buffers.outputQueueSize", "Shuffle.Netty.Output.Buffers.outputQueueSize")

# --- metrics of a job ---------------------------------------------------------------------------------------------

RESTARTS: Final = ("numRestarts", "fullRestarts")
"""2.x has only the first."""
