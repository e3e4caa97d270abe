"""Every number that an advisor's rule compares with; ``docs/advice.md`` lists them, a test keeps the two in step."""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MIN_COUNT: Final = 5
"""Fewer terminal checkpoints, completed or failed, and nothing is advised (AD-3)."""

TRAVEL_MIN_RATIO: Final = 0.5
"""Start delay and alignment must take more than this share of a checkpoint for its mode to matter (R-UC-1)."""

STORE_MIN_RATIO: Final = 0.5
"""Writing takes more than this share of the duration: the store is the bottleneck (R-UC-2)."""

GAIN_MIN_MS: Final = 500
"""A smaller predicted gain is within the noise of the recordings."""

HEALTHY_TRAVEL_FACTOR: Final = 1.5
"""An aligned timeout lies this factor above the barrier's way in healthy checkpoints (R-AT-1)."""

HEALTHY_TRAVEL_MIN_MS: Final = 100
"""A healthy barrier's way where none was recorded; healthy checkpoints of the recordings took 30 to 200 ms."""

TIMEOUT_MARGIN: Final = 2.0
"""Aligned timeout plus what follows it fits this many times into the checkpoint timeout (R-AT-2)."""

INTERVAL_RATIO: Final = 0.5
"""An aligned timeout is at most this share of the interval (R-AT-2)."""

QUEUE_LOW_FACTOR: Final = 0.8
"""Persisted bytes over queued bytes as the gauges show them, at least."""

QUEUE_FACTOR: Final = 1.1
"""The same, typically: gauges leave out buffers that are being filled or read."""

QUEUE_HIGH_FACTOR: Final = 1.45
"""The same, at most: the largest ratio in the recording where both are known."""

STEP_LOW_FACTOR: Final = 0.5
"""A barrier waits for the record in work: half of one on average, none at best."""

STEP_HIGH_FACTOR: Final = 3.0
"""At worst for a record, its output and one more: outputs are flushed in pieces."""

NOISE_MS: Final = 100
"""Tens to hundreds of milliseconds of any recorded duration were the machine's."""

WRITE_FAST_BYTES_PER_MS: Final = 500_000
"""Where no upload was measured: a subtask writes this fast at best."""

WRITE_BYTES_PER_MS: Final = 40_000
"""The same, as on the recorded cluster's local disk."""

WRITE_SLOW_BYTES_PER_MS: Final = 5_000
"""The same, to a slow object store."""

WRITE_MEASURED_MIN_BYTES: Final = 1_000_000
"""A checkpoint that wrote less tells nothing of the store's speed."""

WRITE_MEASURED_MIN_MS: Final = 20
"""Nor one whose writing took less."""

WRITE_SPREAD: Final = 2.0
"""A measured speed may be off by this factor, either way, for writes of another size."""

RESTORE_BUDGET_MS: Final = 10_000
"""What reading in-flight data back and processing it may add to a restore (R-CAP-1)."""

CAP_WRITE_RATIO: Final = 0.5
"""In-flight data may take this share of half the interval, or of a third of the timeout, to be written (R-CAP-1)."""

GATE_MIN_BYTES: Final = 65_536
"""A cap below two default buffers holds every checkpoint back until its queues are empty: it acts as aligned."""

DEBLOAT_MIN_MS: Final = 100
"""A debloating target below this shrinks buffers until single records no longer fit."""

VERIFY_MIN_COUNT: Final = 5
"""So many checkpoints after a change are compared with what was predicted."""
