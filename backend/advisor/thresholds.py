"""The limits and estimates with which the advisor's rules compute.

``docs/reference/advice-rules.md`` lists the same numbers, and a test checks this.
"""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MIN_COUNT: Final = 5
"""With fewer terminal checkpoints (completed or failed), no advice is given (AD-3)."""

TRAVEL_MIN_RATIO: Final = 0.5
"""A mode is advised only if start delay and alignment take more than this share of a checkpoint (R-UC-1)."""

STORE_MIN_RATIO: Final = 0.5
"""The store is the bottleneck if writing takes more than this share of the duration (R-UC-2)."""

GAIN_MIN_MS: Final = 500
"""A smaller predicted gain is within the noise of the recordings and leads to no advice."""

HEALTHY_TRAVEL_FACTOR: Final = 1.5
"""An aligned timeout is at least this many times the barriers' travel time in healthy checkpoints (R-AT-1)."""

HEALTHY_TRAVEL_MIN_MS: Final = 100
"""The barriers' travel time that is assumed if no healthy checkpoint was recorded.

Healthy checkpoints in the project's recordings took 30 to 200 ms.
"""

TIMEOUT_MARGIN: Final = 2.0
"""The checkpoint timeout must be this many times as long as the aligned timeout plus the unaligned rest (R-AT-2).

The unaligned rest is how long a checkpoint takes after it becomes unaligned.
"""

INTERVAL_RATIO: Final = 0.5
"""An aligned timeout is at most this share of the checkpoint interval (R-AT-2)."""

QUEUE_LOW_FACTOR: Final = 0.8
"""The lowest ratio of persisted bytes to the queued bytes that the engine's metrics report."""

QUEUE_FACTOR: Final = 1.1
"""The typical ratio of persisted to reported queued bytes.

It is above 1 because the metrics leave out buffers that are being filled or read.
"""

QUEUE_HIGH_FACTOR: Final = 1.45
"""The highest ratio of persisted to reported queued bytes, from the recording that has both values."""

STEP_LOW_FACTOR: Final = 0.25
"""A factor by which the record times are multiplied in the shortest estimate of an unaligned checkpoint.

A barrier waits for the rest of the record in progress. This is half of a record on average, and the shortest estimate
assumes a quarter.
"""

STEP_HIGH_FACTOR: Final = 3.0
"""The factor by which the record times are multiplied in the longest estimate of an unaligned checkpoint.

At worst a barrier waits for a record, its output and one more record, because outputs are flushed in pieces.
"""

NOISE_MS: Final = 100
"""The allowance for noise that is added to the longest estimate of a duration.

The machine of the recordings added tens to hundreds of milliseconds to every duration.
"""

WRITE_FAST_BYTES_PER_MS: Final = 500_000
"""The highest write speed of a subtask, assumed if no upload was measured."""

WRITE_BYTES_PER_MS: Final = 40_000
"""The typical write speed of a subtask, assumed if no upload was measured: the recorded cluster's local disk."""

WRITE_SLOW_BYTES_PER_MS: Final = 5_000
"""The lowest write speed of a subtask, assumed if no upload was measured: a slow object store."""

WRITE_MEASURED_MIN_BYTES: Final = 1_000_000
"""A checkpoint that wrote less than this does not show the store's speed."""

WRITE_MEASURED_MIN_MS: Final = 20
"""A checkpoint whose writing took less time than this does not show the store's speed."""

WRITE_SPREAD: Final = 2.0
"""A write of another size than the measured writes may be this many times faster or slower."""

RESTORE_BUDGET_MS: Final = 10_000
"""The time that reading and processing in-flight data may add to a restore (R-CAP-1)."""

CAP_WRITE_RATIO: Final = 0.5
"""Writing in-flight data may take this share of half the interval, or of a third of the timeout (R-CAP-1).

The smaller of the two times is the limit.
"""

GATE_MIN_BYTES: Final = 65_536
"""The smallest cap that is proposed: two default buffers.

With a smaller cap, every checkpoint waits until its queues are empty, like an aligned one.
"""

DEBLOAT_MIN_MS: Final = 100
"""The smallest debloating target that is proposed; a lower one makes buffers too small for single records."""

VERIFY_MIN_COUNT: Final = 5
"""The number of checkpoints after a change that are needed before its predictions are checked."""

WILSON_Z: Final = 1.645
"""The normal quantile of intervals at 90 %, for shares and for the time between failures."""

OPEN_MAX_RATIO: Final = 0.5
"""More is too large a share of the time with a checkpoint: a longer interval or a pause is advised (R-INT-3)."""

VARIED_MIN_FACTOR: Final = 2.0
"""Durations vary if the 95th percentile is this many times the median; a pause then suits them better (R-INT-5)."""

FAILURES_MIN_COUNT: Final = 3
"""With fewer restarts on record, the mean time between failures is not known, and no optimal interval (R-INT-1)."""

RESTORES_MIN_COUNT: Final = 4
"""In-flight data that grows over fewer restores may do so by chance (R-REC-1)."""

GROWTH_MIN_FACTOR: Final = 1.25
"""In-flight data grows if each restore reads at least this many times the data of the one before (R-REC-1)."""

LOSS_GAIN_MIN_RATIO: Final = 0.03
"""With known failures, other settings are advised only if they save this share of what is lost now (R-INT-1)."""

LOST_MIN_RATIO: Final = 0.0002
"""... and if they save at least this share of the time: 17 seconds a day."""

LOSS_EVEN_RATIO: Final = 0.01
"""A smaller difference of losses, as a share of them, does not decide between two modes."""

LOST_MORE_MAX_RATIO: Final = 0.001
"""A quicker mode is not advised if it costs this share of the time more: 86 seconds a day."""

LOSS_CHECKPOINTS_MAX: Final = 30
"""What is lost is computed from at most this many of the newest checkpoints (R-INT-1)."""

STORE_PRICE: Final = 0.05
"""A second in which the store writes costs this share of a second of work (R-INT-2).

Writing is asynchronous, but it takes network and processor time from the job. The share is an assumption.
"""

TIMEOUT_FACTOR: Final = 3.0
"""The checkpoint timeout must be this many times the 99th percentile of the durations (R-TO-1)."""

STUCK_FACTOR: Final = 20.0
"""A timeout this many times the 99th percentile of the durations holds a stuck checkpoint for too long (R-TO-1)."""

TIMEOUT_MIN_MS: Final = 10_000
"""No shorter checkpoint timeout is proposed: a pause of a machine may take seconds."""

FAILOVERS_PER_DAY_MAX: Final = 0.033
"""How often a day failed checkpoints may restart a job by chance: once in 30 days (R-TOL-1)."""

PASSING_MAX_RATIO: Final = 0.5
"""If a larger share of the checkpoints fails, the failures have a lasting cause and no number of them is tolerable."""

REPLAY_BUDGET_MS: Final = 3_600_000
"""The input that a job may have to replay: after the tolerated failures (R-TOL-1), and after one failure (R-INT-3)."""

DEBLOAT_TARGET_MS: Final = 1_000
"""The debloating target that is proposed: the default of Flink (R-DB-1)."""

QUEUE_FACTOR_MIN: Final = 2.0
"""Debloating is advised, or called too slow, if queues take this many times the target to drain (R-DB-1, R-DB-3)."""

RECORD_MAX_RATIO: Final = 0.5
"""A record may take this share of a debloated buffer (R-DB-2)."""

POOL_FULL_RATIO: Final = 0.9
"""From this usage on, the output buffers of a vertex are exhausted (R-NET-1)."""

POOL_EMPTY_RATIO: Final = 0.1
"""Up to this usage, the input buffers of a vertex are empty (R-NET-1)."""

ROUND_TRIP_MS: Final = 1.0
"""The time of a buffer's way through the network and of the credit's way back that is assumed (R-BUF-1)."""

SEGMENT_BYTES: Final = 32_768
"""The size of a network buffer that is assumed: the default of Flink."""

FULL_MIN_RATIO: Final = 0.9
"""A checkpoint that writes this share of the state is a full one (R-ST-1)."""

CHANGED_MAX_RATIO: Final = 0.5
"""Incremental checkpoints are advised if at most this share of the state can change in an interval (R-ST-1)."""

TAIL_FACTOR: Final = 3.0
"""Uploads have a long tail if the 95th percentile is this many times the median (R-ST-1)."""

BUSY_TARGET_RATIO: Final = 0.75
"""The share of the time for which a vertex should be busy after it was rescaled (R-PAR-1)."""

SCALE_STEP_MAX: Final = 2.0
"""A vertex is not scaled by more than this factor at once, because the load behind back-pressure is not known."""

LOG_MAX_RATIO: Final = 0.3
"""A longer trigger interval is advised if the logs take this share of a micro-batch (R-MB-1)."""

IDLE_MAX_RATIO: Final = 0.3
"""... and if micro-batches take at most this share of the trigger's interval."""

MEMORY_MIN_BYTES: Final = 256_000_000
"""State of this size on the heap is better kept outside of it (R-MB-3)."""

COMMIT_MIN_RATIO: Final = 0.3
"""A changelog is advised if the state's commit takes this share of a micro-batch (R-MB-4)."""

CHANGELOG_COMMIT_RATIO: Final = 0.43
"""The part of a commit that remains with a changelog, as measured on Spark 4.3 in one run (R-MB-4)."""

STORES_MIN_COUNT: Final = 50
"""Fewer state stores cost little (R-MB-5)."""

STORE_ROWS_MAX: Final = 1_000
"""State stores with fewer rows each are too many (R-MB-5)."""

PARTITION_ROWS: Final = 10_000
"""The rows that one of the proposed partitions would have (R-MB-5)."""
