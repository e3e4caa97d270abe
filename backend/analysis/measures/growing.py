"""Finds a state, or a duration of checkpoints, that grows over hours or days although the input does not. Pure.

The newest ten checkpoints cannot show this: they span minutes. The input is one value for each hour of the stored
history. A day is compared with an earlier one hour by hour, so that a daily pattern (windows, the load of the day) does
not count as growth.

A value grows if it doubles and rises from each day to the next in nearly every hour. A single step, as of a deployment,
is no growth, and neither is a state that shrinks at a restart and comes back. Less than two days suffice if the state
doubled within half a day and is twice the largest of the day before. A value that was nearly as large at an earlier
known time, as before a gap, is no growth either.

A state that began nearly empty, or with the job, and still grows as fast as on average since then may just fill up, as
windows and a time to live do. A state that nothing removes looks the same. Such growth is reported with what would
decide between the two, but it raises no alarm (``is_filling``). After two weeks it no longer
doubles within the days that are looked at, and its even growth alone shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from backend.analysis.numbers.statistics import highest, known, median
from backend.analysis.words import sentences as say
from backend.domain.growth import Grown

WINDOW = timedelta(days=7)
"""So much history is looked at."""
GROWN_MIN_RATIO = 2.0
_DAY_HOURS = 24
# A day is compared if so many of its hours are known, and two days if so many hours are known of both.
_DAY_MIN_COUNT = 16
_PAIRS_MIN_COUNT = 12
# From one day to the next, this share of the hours must rise by this ratio.
_RISING_MIN_SHARE = 0.85
_RISING_MIN_RATIO = 1.05
_BLOCK_HOURS = 3
_BLOCKS = 4
_BLOCK_MIN_RATIO = 1.1
_SIZE_MIN_BYTES = 64 << 20
_DURATION_MIN_MS = 5000.0
# The state may grow by this much more than the input before it is not explained by it.
_UNEXPLAINED_RATIO = 1.5
_SAME_MAX_RATIO = 1.25
_DOUBLED_MIN_RATIO = 1.9
_DOUBLED_MAX_RATIO = 2.25
_EMPTY_MAX_RATIO = 0.1
_FILLING_MAX_RATIO = 1.5
_LONGER_MIN_RATIO = 1.2
_TIMEOUT_MAX_DAYS = 60.0
# A state that has grown evenly for longer does not double within the days that are looked at.
_OLD_MIN = timedelta(days=10)
_OLD_DAYS = 5


@dataclass(frozen=True, slots=True)
class HourValues:
    """The medians of one hour's completed checkpoints, and the mean input of the sources. None is not known."""

    hour: datetime
    size_bytes: float | None = None
    duration_ms: float | None = None
    input_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """What grew from ``before`` to ``after``, in ``span``. The values are bytes or milliseconds, medians of hours."""

    what: Grown
    before: float
    after: float
    before_at: datetime
    """The middle of the time of which ``before`` is the median."""
    span: timedelta
    """The time between the two medians."""
    input_ratio: float | None
    """The input now to that before; None if it is not known.

    If the span is shorter than a day, the input before is the largest of its begin and of the day before.
    """
    is_filling: bool
    """Whether the state began nearly empty, or with the job, and still grows as it has since then."""
    timeout_in: timedelta | None = None
    """Predicted: when the duration passes the timeout at this rate; None if it is far off or not known."""
    input_rise: float | None = None
    """The input now to that at the begin of the span, if the span is shorter than a day and both are known."""
    was_empty: bool = False
    """Whether the state was nearly empty when the known history begins."""
    even_for: timedelta | None = None
    """How long it has grown evenly from nearly nothing, if it ``is_filling``."""

    @property
    def ratio(self) -> float:
        """How many times as large the value has become."""
        return self.after / self.before

    @property
    def is_input_same(self) -> bool:
        """Whether the input is known, and did not grow notably."""
        return self.input_ratio is not None and self.input_ratio <= _SAME_MAX_RATIO


_Value = Callable[[HourValues], float | None]
_Day = Mapping[int, HourValues]
_Days = Mapping[int, _Day]


def _size(hour: HourValues) -> float | None:
    return hour.size_bytes


def _duration(hour: HourValues) -> float | None:
    return hour.duration_ms


def _input(hour: HourValues) -> float | None:
    return hour.input_per_s


def growth_of(
    hours: Sequence[HourValues], timeout_ms: float | None = None, begun_at: datetime | None = None
) -> Growth | None:
    """Return what has at least doubled, the state first; None if nothing did, or if the input explains it.

    ``hours`` are oldest first. Hours that are not known are absent. The job is not known from before ``begun_at``.
    """
    known_days = _by_day(hours)
    days = _whole(known_days)
    growth = _over_days(days, known_days, _size, Grown.STATE) or _over_hours(hours, days, known_days)
    if growth is not None and growth.after >= _SIZE_MIN_BYTES:
        judged = _judged(growth, days, timeout_ms)
        return None if judged is None else _with_filling(judged, hours, begun_at)
    growth = _over_days(days, known_days, _duration, Grown.DURATION)
    if growth is None or growth.after < _DURATION_MIN_MS:
        return _evenly_for_long(hours, days, begun_at)
    size_ratio = _ratio(days[0], days[_days_back(growth)], _size)
    if size_ratio is None or size_ratio > _SAME_MAX_RATIO:
        return None
    return _judged(growth, days, timeout_ms)


def _by_day(hours: Sequence[HourValues]) -> _Days:
    """Return the known hours of each day back from the newest hour, which is in day 0.

    The key of an hour is its distance from the end of its day, which is the same time of day in each.
    """
    hour_values: dict[int, dict[int, HourValues]] = {}
    for hour in hours:
        back = round((hours[-1].hour - hour.hour) / timedelta(hours=1))
        hour_values.setdefault(back // _DAY_HOURS, {})[back % _DAY_HOURS] = hour
    return hour_values


def _whole(known_days: _Days) -> list[_Day]:
    """Return the days, newest first, up to the first of which too little is known."""
    days: list[_Day] = []
    while len(known_days.get(len(days), {})) >= _DAY_MIN_COUNT:
        days.append(known_days[len(days)])
    return days


def _pairs(newer: _Day, older: _Day, value: _Value) -> list[tuple[float, float]]:
    """Return the values of the same time of day, (older, newer)."""
    both = ((value(older[key]), value(newer[key])) for key in sorted(newer.keys() & older.keys()))
    return [(a, b) for a, b in both if a is not None and b is not None and a > 0]


def _ratio(newer: _Day, older: _Day, value: _Value) -> float | None:
    pairs = _pairs(newer, older, value)
    return median(b / a for a, b in pairs) if len(pairs) >= _PAIRS_MIN_COUNT else None


def _is_rising(newer: _Day, older: _Day, value: _Value, least: float = _RISING_MIN_RATIO) -> bool:
    pairs = _pairs(newer, older, value)
    rising = sum(b >= least * a for a, b in pairs)
    return len(pairs) >= _PAIRS_MIN_COUNT and rising >= _RISING_MIN_SHARE * len(pairs)


def _was_as_large(days: Sequence[_Day], back: int, known_days: _Days, value: _Value) -> bool:
    """Return whether the value was nearly as large on an earlier day, at the hours that are known of it."""
    pairs = [_pairs(days[0], day, value) for number, day in known_days.items() if number >= back]
    ratios = [median(b / a for a, b in own) for own in pairs if len(own) >= _BLOCK_HOURS]
    return any(ratio is not None and ratio < _UNEXPLAINED_RATIO for ratio in ratios)


def _over_days(days: Sequence[_Day], known_days: _Days, value: _Value, what: Grown) -> Growth | None:
    """Return the growth over the fewest days, two at least, in which the value has doubled."""
    for back in range(2, len(days)):
        if not all(_is_rising(a, b, value) for a, b in pairwise(days[: back + 1])):
            return None
        ratio = _ratio(days[0], days[back], value)
        if ratio is not None and ratio >= GROWN_MIN_RATIO:
            pairs = _pairs(days[0], days[back], value)
            before, after = median(a for a, _ in pairs), median(b for _, b in pairs)
            if before is None or after is None or _was_as_large(days, back, known_days, value):
                return None
            begin = max(h.hour for h in days[back].values()) - timedelta(hours=_DAY_HOURS / 2 - 1)
            return Growth(what, before, after, begin, timedelta(days=back), None, is_filling=False)
    return None


def _blocks(day: _Day, value: _Value, begin: int = 0) -> list[float | None]:
    """Return the median of each three hours of the newest half of a day, or of the older half; the newest first."""
    ranges = (range(at, at + _BLOCK_HOURS) for at in range(begin, begin + _BLOCKS * _BLOCK_HOURS, _BLOCK_HOURS))
    return [median(known(value(day[n]) for n in hours if n in day)) for hours in ranges]


def _over_hours(hours: Sequence[HourValues], days: Sequence[_Day], known_days: _Days) -> Growth | None:
    """Return the growth within the last half day: each three hours are larger than those before."""
    if len(days) < 2:
        return None
    sizes = known(_blocks(days[0], _size))
    before_that = highest(_size(h) for h in days[1].values())
    if len(sizes) < _BLOCKS or before_that is None or sizes[0] < GROWN_MIN_RATIO * max(before_that, sizes[-1]):
        return None
    if any(newer < _BLOCK_MIN_RATIO * older for newer, older in pairwise(sizes)):
        return None
    half = _BLOCKS * _BLOCK_HOURS
    halves = [(day, begin) for number, day in known_days.items() for begin in (0, half) if number or begin]
    earlier = highest(size for day, begin in halves for size in _blocks(day, _size, begin))
    if earlier is not None and sizes[0] < _UNEXPLAINED_RATIO * earlier:
        return None
    span = timedelta(hours=(_BLOCKS - 1) * _BLOCK_HOURS)
    at = hours[-1].hour - span - timedelta(hours=_BLOCK_HOURS / 2 - 1)
    return Growth(Grown.STATE, sizes[-1], sizes[0], at, span, None, is_filling=False)


def _days_back(growth: Growth) -> int:
    return max(1, round(growth.span / timedelta(days=1)))


def _judged(growth: Growth, days: Sequence[_Day], timeout_ms: float | None) -> Growth | None:
    """Return the growth with its input and the predicted timeout; None if the input explains it."""
    if growth.span < timedelta(days=1):
        return _judged_by_hours(growth, days)
    older = days[min(_days_back(growth), len(days) - 1)]
    input_ratio = _ratio(days[0], older, _input)
    if input_ratio is not None and growth.ratio < _UNEXPLAINED_RATIO * max(1.0, input_ratio):
        return None
    return replace(growth, input_ratio=input_ratio, timeout_in=_timeout_in(growth, days, timeout_ms))


def _judged_by_hours(growth: Growth, days: Sequence[_Day]) -> Growth | None:
    """Return growth of hours with its input; None if the input explains it.

    The times of day differ, so the size and the input are both compared with the largest of the begin and of the day
    before. The input of now is the highest of the half day, because a window is large for a while after its input.
    """
    inputs = known(_blocks(days[0], _input))
    largest_input = highest(_input(h) for h in days[1].values())
    if len(inputs) < _BLOCKS or not largest_input or not inputs[-1]:
        return growth
    input_ratio = max(inputs) / max(largest_input, inputs[-1])
    ratio = growth.after / max(known([growth.before, highest(_size(h) for h in days[1].values())]))
    if ratio < _UNEXPLAINED_RATIO * max(1.0, input_ratio):
        return None
    return replace(growth, input_ratio=input_ratio, input_rise=max(inputs) / inputs[-1])


def _with_filling(growth: Growth, hours: Sequence[HourValues], begun_at: datetime | None) -> Growth:
    sized = [h for h in hours if h.size_bytes is not None]
    was_empty = _is_filling(growth, sized, sized[0].hour)
    since = sized[0].hour if was_empty else begun_at
    if since is None or not (was_empty or _is_filling(growth, sized, since)):
        return growth
    return replace(growth, is_filling=True, was_empty=was_empty, even_for=sized[-1].hour - since)


def _evenly_for_long(hours: Sequence[HourValues], days: Sequence[_Day], begun_at: datetime | None) -> Growth | None:
    """Return the growth of a state that rises each day as fast as on average since the job began, at the same input."""
    sized = [h for h in hours if h.size_bytes is not None]
    if begun_at is None or len(days) <= _OLD_DAYS or not sized or sized[-1].hour - begun_at < _OLD_MIN:
        return None
    age = sized[-1].hour - begun_at
    # Half of the growth of an even day is enough for a single hour.
    least = 1 + timedelta(days=1) / age / 2
    back = len(days) - 1
    pairs = _pairs(days[0], days[back], _size)
    before, after = median(a for a, _ in pairs), median(b for _, b in pairs)
    if before is None or after is None or len(pairs) < _PAIRS_MIN_COUNT or after < _SIZE_MIN_BYTES:
        return None
    if not all(_is_rising(newer, older, _size, least) for newer, older in pairwise(days)):
        return None
    begin = max(h.hour for h in days[back].values()) - timedelta(hours=_DAY_HOURS / 2 - 1)
    input_ratio = _ratio(days[0], days[back], _input)
    growth = Growth(Grown.STATE, before, after, begin, timedelta(days=back), input_ratio, is_filling=True, even_for=age)
    is_slower = (after - before) / (growth.span / age) < after / _FILLING_MAX_RATIO
    # So small a growth may be that of the input.
    is_input_same = input_ratio is None or input_ratio - 1 <= (growth.ratio - 1) / 3
    return growth if is_input_same and not is_slower and _is_filling(growth, sized, begun_at) else None


def _is_filling(growth: Growth, sized: Sequence[HourValues], since: datetime) -> bool:
    """Return whether the state may have been empty at ``since``, and still grows as fast as on average since then.

    Sizes before the first one that is known are taken to have grown evenly from nothing.
    """
    first = median(_size(h) for h in sized[:_BLOCK_HOURS])
    age_h = max(1.0, (sized[-1].hour - since) / timedelta(hours=1))
    share = (sized[0].hour - since) / timedelta(hours=1) / age_h
    if first is None or first > max(_EMPTY_MAX_RATIO, _FILLING_MAX_RATIO * share) * growth.after:
        return False
    per_hour = (growth.after - growth.before) / (growth.span / timedelta(hours=1))
    return per_hour <= _FILLING_MAX_RATIO * growth.after / age_h and not _was_flat(growth, sized, since)


def _was_flat(growth: Growth, sized: Sequence[HourValues], since: datetime) -> bool:
    """Return whether the state did not grow in the first quarter of the time, so that something made it grow later.

    Within a day, the rhythm of the input may look the same.
    """
    quarter = (sized[-1].hour - since) / 4
    near = [_size(h) for h in sized if abs(h.hour - since - quarter) < timedelta(hours=_BLOCK_HOURS)]
    size = median(near)
    return quarter >= timedelta(days=1) and size is not None and size < growth.after / 8


def _timeout_in(growth: Growth, days: Sequence[_Day], timeout_ms: float | None) -> timedelta | None:
    """Return when the median duration passes the timeout, if it goes on growing by as much a day."""
    back = _days_back(growth)
    if not timeout_ms or growth.span < timedelta(days=1) or back >= len(days):
        return None
    pairs = _pairs(days[0], days[back], _duration)
    before, after = median(a for a, _ in pairs), median(b for _, b in pairs)
    if before is None or after is None or len(pairs) < _PAIRS_MIN_COUNT or after < _LONGER_MIN_RATIO * before:
        return None
    per_day = (after - before) / back
    # The newest median is that of the whole last day, so the duration of now is half a day further on.
    left_days = (timeout_ms - after) / per_day - 0.5
    return timedelta(days=left_days) if 0 < left_days <= _TIMEOUT_MAX_DAYS else None


def sentence(growth: Growth) -> str:
    """Return the growth in words: what grew in which time, at what input, and where it leads."""
    far = growth.span < timedelta(days=1)
    when = f"{growth.before_at:%H:%M} UTC" if far else f"{growth.before_at:%a %d %b}"
    span = say.duration(growth.span / timedelta(milliseconds=1)) if far else _in_days(growth.span)
    write = say.size if growth.what is Grown.STATE else say.duration
    now = "in the last 3 h" if far else "in the last 24 h"
    values = f"{write(growth.before)} {'at' if far else 'on'} {when}, {write(growth.after)} {now}"
    text = f"{_grew(growth, span)} {_at_input(growth)}: {values}"
    if growth.timeout_in is not None:
        text += f"; at this rate the duration passes the timeout in about {_in_days(growth.timeout_in)}"
    return text if growth.even_for is None else f"{text}. {_not_decided(growth, growth.even_for)}"


def _not_decided(growth: Growth, age: timedelta) -> str:
    """Return what decides whether an even growth from nearly nothing ends."""
    is_short = age < timedelta(days=1)
    span = say.duration(age / timedelta(milliseconds=1)) if is_short else _in_days(age)
    since = (
        "since the history begins, when it was nearly empty"
        if growth.was_empty
        else "as from nothing since the job began"
    )
    return (
        f"It has grown evenly for {span}, {since}. A window or a time to live of more than {span} decides: with one,"
        " the state may still fill up; without one, nothing removes it"
    )


def _grew(growth: Growth, span: str) -> str:
    is_double = _DOUBLED_MIN_RATIO <= growth.ratio < _DOUBLED_MAX_RATIO
    if growth.what is Grown.STATE:
        return f"the state {'doubled' if is_double else f'became {say.times(growth.ratio)} as large'} in {span}"
    times = "twice" if is_double else say.times(growth.ratio)
    return f"checkpoints take {times} as long as {span} ago, with a state of the same size,"


def _at_input(growth: Growth) -> str:
    if growth.input_ratio is None:
        return "(its input in this time is not known)"
    if growth.span < timedelta(days=1) and not growth.is_input_same:
        return f"while the input became {say.times(growth.input_ratio)} as large as the highest before"
    if growth.input_rise is not None and growth.input_rise > _SAME_MAX_RATIO:
        return "although the input was as high on the day before"
    if growth.is_input_same:
        return "at the same input" if growth.input_ratio >= 1 / _SAME_MAX_RATIO else "although the input fell"
    return f"while the input became {say.times(growth.input_ratio)} as large"


def _in_days(span: timedelta) -> str:
    days = max(1, round(span / timedelta(days=1)))
    return f"{days} day{'' if days == 1 else 's'}"
