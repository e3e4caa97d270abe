"""Defines experiments and their rows, and computes statistics over the seeds. The functions have no side effects.

A run of an experiment is one variant with one seed. It yields rows, each with one value of one measure. The result is
the median over the seeds, with its confidence interval, by measure, setting and variant.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine

_OUTSIDE: Final = 0.05
"""The largest allowed probability that an interval does not contain the true median."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one run. ``setting`` names what varies in addition to the variant."""

    measure: str
    variant: str
    setting: str
    seed: int
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Median:
    """The median over the seeds, with its confidence interval from ``low`` to ``high``."""

    value: float
    low: float
    high: float


Key = tuple[str, str, str]
"""Measure, setting and variant."""
Found = Mapping[Key, Median]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the results show an ordering, or None if this is undecided. ``why`` has the numbers or the reason."""

    came_out: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Ordering:
    """An ordering that the literature reports, and how the medians are compared with it.

    ``says`` is the source's own sentence.
    """

    claim: str
    source: str
    judge: Callable[[Found], Judgement]
    otherwise: str = ""
    """Why the results of this runtime may not show the ordering."""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment. ``run`` takes a task, a seed and the share of the usual virtual time, and returns rows.

    A task is the smallest part that can be run again: usually a variant.
    """

    name: str
    title: str
    sentence: str
    tasks: tuple[str, ...]
    run: Callable[[str, int, float], Sequence[Row]]
    orderings: tuple[Ordering, ...] = ()


def median_of(values: Sequence[float]) -> Median:
    """Return the median, and the two values that enclose the true median with 95 % confidence.

    With fewer than 6 values, these are the smallest and the largest value, and the confidence is lower.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside = 0
    while outside + 1 <= (n - 1) // 2 and 2 * sum(comb(n, i) for i in range(outside + 1)) / 2**n <= _OUTSIDE:
        outside += 1
    outside = max(0, outside - 1)
    return Median(statistics.median(ordered), ordered[outside], ordered[n - 1 - outside])


def medians(rows: Sequence[Row]) -> dict[Key, Median]:
    """Return the median of each measure, setting and variant."""
    grouped: defaultdict[Key, list[float]] = defaultdict(list)
    for row in rows:
        grouped[row.measure, row.setting, row.variant].append(row.value)
    return {key: median_of(values) for key, values in grouped.items()}


def judged(ordering: Ordering, found: Found) -> Judgement:
    """Compare an ordering with the medians. If a median is missing, the ordering is not decided."""
    try:
        result = ordering.judge(found)
    except KeyError as missing:
        measure, setting, variant = missing.args[0]
        return Judgement(None, f"there is no value of {measure!r} for {variant}" + (f", {setting}" if setting else ""))
    if result.came_out is False and ordering.otherwise:
        return Judgement(False, f"{result.why}. {ordering.otherwise}")
    return result


def below(
    measure: str,
    setting: str,
    small: str,
    large: str,
    *,
    times: float = 1.0,
    other: str | None = None,
    or_equal: bool = False,
) -> Callable[[Found], Judgement]:
    """Return a judge: the median of ``small``, multiplied by ``times``, is below that of ``large``, or equal to it.

    ``other`` is the setting of ``large``, if it differs.
    """

    def judge(found: Found) -> Judgement:
        first, second = found[measure, setting, small], found[measure, setting if other is None else other, large]
        word = f"{small}{_in(setting)} {_of(first)}, {large}{_in(setting if other is None else other)} {_of(second)}"
        ratio = f": {second.value / first.value:.3g} times" if first.value else ""
        scaled = first.value * times
        return Judgement(scaled < second.value or (or_equal and scaled == second.value), word + ratio)

    return judge


def about_equal(measure: str, setting: str, variants: Sequence[str], *, share: float) -> Callable[[Found], Judgement]:
    """Return a judge: the medians of the variants differ by at most ``share`` of the largest one."""

    def judge(found: Found) -> Judgement:
        values = {variant: found[measure, setting, variant].value for variant in variants}
        low, high = min(values, key=lambda v: values[v]), max(values, key=lambda v: values[v])
        word = f"from {values[low]:.4g} ({low}) to {values[high]:.4g} ({high})"
        return Judgement(values[low] >= (1 - share) * values[high], word)

    return judge


def at_most(measure: str, setting: str, variants: Sequence[str], limit: float) -> Callable[[Found], Judgement]:
    """Return a judge: the median of each variant is at most ``limit``."""

    def judge(found: Found) -> Judgement:
        values = {variant: found[measure, setting, variant].value for variant in variants}
        high = max(values, key=lambda v: values[v])
        return Judgement(values[high] <= limit, f"the largest is {values[high]:.4g} ({high})")

    return judge


def at_least(measure: str, setting: str, variants: Sequence[str], limit: float) -> Callable[[Found], Judgement]:
    """Return a judge: the median of each variant is at least ``limit``."""

    def judge(found: Found) -> Judgement:
        values = {variant: found[measure, setting, variant].value for variant in variants}
        low = min(values, key=lambda v: values[v])
        return Judgement(values[low] >= limit, f"the smallest is {values[low]:.4g} ({low})")

    return judge


def every(*judges: Callable[[Found], Judgement]) -> Callable[[Found], Judgement]:
    """Return a judge that finds an ordering if all of ``judges`` find it."""

    def judge(found: Found) -> Judgement:
        results = [one(found) for one in judges]
        return Judgement(all(r.came_out for r in results), "; ".join(r.why for r in results))

    return judge


def cannot(why: str) -> Callable[[Found], Judgement]:
    """Return a judge that decides nothing: the runtime cannot show the ordering. ``why`` gives the reason."""
    return lambda _: Judgement(None, why)


def run_engine(spec: JobSpec, for_us: int) -> JobEngine:
    """Run a job for a virtual time. Only the sizes of records are tracked, which changes no time and no event."""
    engine = JobEngine(spec, is_size_only=True)
    engine.run_until(for_us)
    return engine


def _of(value: Median) -> str:
    return f"{value.value:.4g} ({value.low:.4g} to {value.high:.4g})"


def _in(setting: str) -> str:
    return f" ({setting})" if setting else ""
