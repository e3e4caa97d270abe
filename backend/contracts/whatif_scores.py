"""Says how far the model of a what-if was from later checkpoints, and why a measure was not scored.

The page and ``barrierscope whatif`` show the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.contracts.whatif import CalibrationOut, Measure, MeasureErrorOut

SCORED_AS: Final[Mapping[Measure, str]] = {
    Measure.DURATION: "duration_ms",
    Measure.EXPIRED: "expired_ratio",
    Measure.PERSISTED: "persisted_bytes",
    Measure.THROUGHPUT: "records_per_s",
    Measure.SYNC: "sync_pause_ms",
}
"""The names of the measures in the calibration. The others are not scored."""
AFTER_A_FAILURE: Final = (Measure.RESTORE, Measure.REPLAY, Measure.CATCH_UP)


def score_of(measure: Measure, scored: CalibrationOut | None) -> MeasureErrorOut | None:
    """Return how far the model was from one measure; None if it was not scored."""
    return None if scored is None else next((e for e in scored.errors if e.measure == SCORED_AS.get(measure)), None)


def error_words(row: MeasureErrorOut) -> str | None:
    """Return the error of the model: of a share in points, otherwise as a share of the measured value.

    None if the measured value is 0, so that the error is no share of it.
    """
    if row.unit == "ratio":
        points = round(100 * (row.predicted - row.measured))
        return f"{points:+d} points" if points else "0 points"
    return None if row.error_ratio is None else f"{100 * row.error_ratio:+.0f} %"


def error_of(measure: Measure, scored: CalibrationOut | None) -> str | None:
    """Return the error of the model for one measure in words; None if there is none."""
    row = score_of(measure, scored)
    return None if row is None else error_words(row)


def why_not_scored(measure: Measure, scored: CalibrationOut | None) -> str:
    """Return what is missing for an error of the model, and what helps."""
    if scored is None or not scored.errors:
        return "the model needs checkpoints after those that it was fitted on; wait for the next ones"
    if measure in AFTER_A_FAILURE:
        return "checkpoints do not show what a failure costs; compare the prediction with the next restart of the job"
    if score_of(measure, scored) is not None:
        return "the measured value is 0, so an error in percent does not exist; compare the two values below"
    return "no later checkpoint has a measured value; the next ones may have one"
