"""The limits and estimates with which the advisor's rules compute.

``docs/advice.md`` lists the same numbers, and a test checks this.
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
