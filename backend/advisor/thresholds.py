"""The numbers that the advisor's rules compare with; ``docs/advice.md`` lists them, and a test compares the two."""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MIN_COUNT: Final = 5
"""No advice on fewer terminal checkpoints, completed or failed (AD-3)."""

TRAVEL_MIN_RATIO: Final = 0.5
"""The mode matters only if start delay and alignment take more than this share of a checkpoint (R-UC-1)."""

STORE_MIN_RATIO: Final = 0.5
"""The store is the bottleneck if writing takes more than this share of the duration (R-UC-2)."""

GAIN_MIN_MS: Final = 500
"""A smaller predicted gain is within the noise of the recordings."""

HEALTHY_TRAVEL_FACTOR: Final = 1.5
"""An aligned timeout is at least this many times the barriers' travel time in healthy checkpoints (R-AT-1)."""

HEALTHY_TRAVEL_MIN_MS: Final = 100
"""The travel time assumed if no healthy checkpoint was recorded; those of the recordings took 30 to 200 ms."""

TIMEOUT_MARGIN: Final = 2.0
"""The aligned timeout plus the unaligned rest fits this many times into the checkpoint timeout (R-AT-2)."""

INTERVAL_RATIO: Final = 0.5
"""An aligned timeout is at most this share of the interval (R-AT-2)."""

QUEUE_LOW_FACTOR: Final = 0.8
"""The lowest ratio of persisted bytes to queued bytes as the gauges show them."""

QUEUE_FACTOR: Final = 1.1
"""The typical ratio: gauges leave out buffers that are being filled or read."""

QUEUE_HIGH_FACTOR: Final = 1.45
"""The highest ratio: the largest in the recording that has both."""

STEP_LOW_FACTOR: Final = 0.5
"""A barrier waits for the current record: half of one on average, none at best."""

STEP_HIGH_FACTOR: Final = 3.0
"""At worst it waits for a record, its output and one more record: outputs are flushed in pieces."""

NOISE_MS: Final = 100
"""The machine added tens to hundreds of milliseconds to every recorded duration."""

WRITE_FAST_BYTES_PER_MS: Final = 500_000
"""The highest write speed of a subtask, if no upload was measured."""

WRITE_BYTES_PER_MS: Final = 40_000
"""The typical write speed: the local disk of the recorded cluster."""

WRITE_SLOW_BYTES_PER_MS: Final = 5_000
"""The lowest write speed: a slow object store."""

WRITE_MEASURED_MIN_BYTES: Final = 1_000_000
"""A checkpoint that wrote less does not show the store's speed."""

WRITE_MEASURED_MIN_MS: Final = 20
"""Neither does one whose writing took less time."""

WRITE_SPREAD: Final = 2.0
"""For writes of another size, the speed may be this many times higher or lower than measured."""

RESTORE_BUDGET_MS: Final = 10_000
"""The time that reading and processing in-flight data may add to a restore (R-CAP-1)."""

CAP_WRITE_RATIO: Final = 0.5
"""Writing in-flight data may take this share of half the interval, or of a third of the timeout (R-CAP-1)."""

GATE_MIN_BYTES: Final = 65_536
"""With a cap below two default buffers, every checkpoint waits until its queues are empty, like an aligned one."""

DEBLOAT_MIN_MS: Final = 100
"""A lower debloating target makes buffers too small for single records."""

VERIFY_MIN_COUNT: Final = 5
"""The number of checkpoints after a change that are compared with the predictions."""
