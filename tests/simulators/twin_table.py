"""The rows of the twin's proof, kept in a file, and their summaries: by measure, by family of scenario, and by order.

python -m tests.simulators.twin_table FILE [--tier TIER] [--half HALF]    # tables as in docs/evidence/twin.md
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path

from pydantic import TypeAdapter

from backend.advisor.twin.model.outcomes import Tier
from tests.simulators.twin_runs import Half, half_of

MEASURES = ("duration", "persisted", "throughput")
LONG_MS = 1000.0
_SAME_RATIO = 0.1
"""Two candidates whose measured medians differ by less, or by less than ``_SAME_MS``, have no right order."""
_SAME_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One prediction of one measure. The values of the baselines are None if they cannot say.

    ``measured`` and ``predicted`` are medians. ``inside`` of the ``count`` checkpoints of the changed run are in the
    predicted interval.
    """

    tier: Tier
    base: str
    changed: str
    flink: str
    change: str
    measure: str
    measured: float
    measured_mean: float
    smallest: float
    largest: float
    predicted: float
    predicted_mean: float | None
    low: float
    high: float
    inside: int
    count: int
    formula: float | None
    replayed: float | None
    replayed_low: float | None
    replayed_high: float | None

    @property
    def error(self) -> float:
        """The distance of the prediction as a share of the measured median."""
        return self.predicted / self.measured - 1 if self.measured else 0.0

    @property
    def is_within(self) -> bool:
        """Whether the prediction is within the bar of its measure."""
        return self.meets_bar(self.predicted)

    @property
    def is_held(self) -> bool:
        """Whether the measured median is in the interval."""
        return self.low <= self.measured <= self.high

    @property
    def half(self) -> Half:
        """Whether the twin was tuned on runs of this kind."""
        return half_of(self.base, self.flink)

    @property
    def family(self) -> str:
        """The scenario of the changed run, and of the base if it is another."""
        base, changed = (name.rsplit("-", 1)[0] for name in (self.base, self.changed))
        return changed if base == changed else f"{base} to {changed}"

    def meets_bar(self, predicted: float) -> bool:
        """Return whether a prediction of the median is within the bar of this measure."""
        ratio = predicted / self.measured if self.measured else float("inf")
        if self.measure == "duration" and self.measured < LONG_MS:
            return 0.5 <= ratio <= 2.0
        return abs(ratio - 1) <= (0.05 if self.measure == "throughput" else 0.2)


_ROW = TypeAdapter(Row)


def json_of(row: Row) -> str:
    """Return a row as one line of JSON."""
    return _ROW.dump_json(row).decode()


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file, one line of JSON each."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json_of(row)}\n" for row in rows)


def read(path: Path) -> list[Row]:
    """Read the rows of a file. Raises ``pydantic.ValidationError`` if a line has another form."""
    return [_ROW.validate_json(text) for text in path.read_text(encoding="utf-8").splitlines()]


def line(row: Row) -> str:
    """Return one row of the table."""
    formula = "-" if row.formula is None else f"{row.formula:.4g}"
    replay = "-" if row.replayed is None else f"{row.replayed:.4g} [{row.replayed_low:.4g} to {row.replayed_high:.4g}]"
    marks = ("" if row.is_within else " MISSED") + ("" if row.is_held else " OUTSIDE")
    return (
        f"{row.base} -> {row.changed} {row.flink} {row.measure}: measured {row.measured:.4g}"
        f" ({row.smallest:.4g} to {row.largest:.4g}), predicted {row.predicted:.4g} [{row.low:.4g} to {row.high:.4g}]"
        f" {row.error:+.0%}, formula {formula}, replay {replay}{marks}"
    )


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share = hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines: for each measure, how many predictions are within the bar, and how good the intervals are."""
    for measure in MEASURES:
        of = [r for r in rows if r.measure == measure]
        if not of:
            continue
        formula, replay = _distance(of, lambda r: r.formula), _distance(of, lambda r: r.replayed)
        # Both are compared on the predictions that the replay makes too.
        shared = [r for r in of if r.replayed is not None]
        yield (
            f"{measure}: {sum(r.is_within for r in of)} of {len(of)} within the bar; median error"
            f" {_distance(of, lambda r: r.predicted)} (formula {formula}); where the replay predicts, {len(shared)}:"
            f" {_distance(shared, lambda r: r.predicted)} (replay {replay}); medians in the interval"
            f" {_share(sum(r.is_held for r in of), len(of))}; checkpoints in the interval"
            f" {_share(sum(r.inside for r in of), sum(r.count for r in of))}; width {_width(of)} of the replay's"
        )
    right, count = order_of(rows)
    if count:
        yield f"order of two candidates: {_share(right, count)}"


def order_of(rows: Sequence[Row], value: Callable[[Row], float | None] = lambda r: r.predicted) -> tuple[int, int]:
    """Return how many pairs of candidates of the same base are in the right order of duration, and of how many.

    Pairs whose measured durations are nearly the same do not count.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.measure == "duration":
            found.setdefault((row.base, row.flink), []).append(row)
    right = count = 0
    for of in found.values():
        for one, other in combinations(of, 2):
            low, high = sorted((one.measured, other.measured))
            first, second = value(one), value(other)
            if high - low < max(_SAME_MS, _SAME_RATIO * high) or first is None or second is None:
                continue
            count += 1
            right += (first < second) == (one.measured < other.measured)
    return right, count


def families(rows: Sequence[Row], measure: str) -> Iterator[str]:
    """Yield a Markdown table of one measure: a line for each family of scenarios, and one for all."""
    of = [r for r in rows if r.measure == measure]
    yield "| Scenario | pairs | within the bar | error | formula | replay | medians in the interval | checkpoints |"
    yield "|---|---|---|---|---|---|---|---|"
    names = dict.fromkeys(sorted(r.family for r in of))
    for name, group in (*((n, [r for r in of if r.family == n]) for n in names), ("**all**", of)):
        cells = (
            name,
            len(group),
            sum(r.is_within for r in group),
            _distance(group, lambda r: r.predicted),
            _distance(group, lambda r: r.formula),
            _distance(group, lambda r: r.replayed),
            f"{sum(r.is_held for r in group)}",
            f"{sum(r.inside for r in group) / max(1, sum(r.count for r in group)):.0%}",
        )
        yield "| " + " | ".join(str(c) for c in cells) + " |"


def _distance(rows: Iterable[Row], value: Callable[[Row], float | None]) -> str:
    """Return the median distance of a prediction from the measured median."""
    found = [abs(v / r.measured - 1) for r in rows if (v := value(r)) is not None]
    return f"{statistics.median(found):.1%}" if found else "-"


def _share(hits: int, count: int) -> str:
    low, high = wilson(hits, count)
    return f"{hits} of {count} ({hits / count:.1%}, 95 % Wilson {low:.1%} to {high:.1%})"


def _width(rows: Iterable[Row]) -> str:
    found = [
        (r.high - r.low) / (r.replayed_high - r.replayed_low)
        for r in rows
        if r.replayed_high is not None and r.replayed_low is not None and r.replayed_high > r.replayed_low
    ]
    return f"{statistics.median(v for v in found if isfinite(v)):.1%}" if found else "-"


def main() -> int:
    """Print the tables of a file of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tier", default="", help="only this tier")
    parser.add_argument("--half", default="", help="only this half: tuning or scoring")
    parser.add_argument("--missed", action="store_true", help="print the predictions that miss their bar instead")
    options = parser.parse_args()
    rows = read(options.file)
    for tier in Tier:
        of = [r for r in rows if r.tier is tier and options.tier in tier.value and options.half in r.half]
        if not of:
            continue
        print(f"\n== {tier.value}")
        if options.missed:
            print("\n".join(line(r) for r in of if not r.is_within))
            continue
        print("\n".join(summary(of)))
        right, count = order_of(of, lambda r: r.formula)
        print(f"order by the formula: {right} of {count}")
        for measure in MEASURES:
            print(f"\n{measure}\n")
            print("\n".join(families(of, measure)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
