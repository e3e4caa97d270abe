"""The example of a rollup for the OpenAPI document: the job in trouble of ``examples``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from backend.contracts.rollups import MeasureRollupOut, RollupHourOut
from backend.domain.failure import FailureReason

ROLLUP_HOUR: Final = RollupHourOut(
    hour=datetime(2026, 11, 21, 11, 0, tzinfo=UTC),
    source="rollup",
    triggered_count=60,
    completed_count=57,
    failed_count=3,
    failed_by_reason={FailureReason.EXPIRED: 3},
    last_completed_at=datetime(2026, 11, 21, 11, 59, 41, tzinfo=UTC),
    measures={
        "end_to_end_duration_ms": MeasureRollupOut(
            present_count=57, min=11_020, max=58_400, sum="2210433", p50=38_120.0, p95=56_900.5, p99=58_104.8
        )
    },
)
