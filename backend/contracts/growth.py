"""The JSON of what grows in a job over hours or days, although its input does not."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.growth import Grown


class GrowthOut(Model):
    """What has at least doubled within the stored history, compared at the same times of day.

    The values are bytes (``state``) or milliseconds (``duration``): medians over the hours of a day, or of three hours.
    """

    sentence: str
    what: Grown
    before: float
    before_at: datetime
    """The middle of the time of which ``before`` is the median, by the engine's clock."""
    after: float
    """The median of the last 24 hours; of the last three if ``span_s`` is less than a day."""
    span_s: float
    """The time in which it grew."""
    input_ratio: float | None = None
    """The records that all sources read now to those before, from their counts. Null if this is not known.

    If ``span_s`` is less than a day, those before are the largest of its begin and of the day before.
    """
    is_filling: bool = False
    """Whether the state may still fill up: it grows as since the history, or the job, began, and was nearly empty then.

    That it was empty when the job began is not measured if the history begins later.
    """
    timeout_in_days: float | None = None
    """Predicted: when the duration passes the timeout, if it grows on like this. Null if far off or not known."""
