"""The text and the document of what-ifs on a whole fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from backend.advisor.advice import Interval
from backend.advisor.twin.tiers.fleet import Effect, JobAnswer
from backend.analysis.words import sentences as say
from backend.cli import columns

Row = tuple[str, str, JobAnswer]
"""The id and the name of a job, and its answer."""

_ORDER: Final = tuple(Effect)
_WORDS: Final[Mapping[Effect, str]] = {
    Effect.CURES: "checkpoints would no longer expire",
    Effect.QUICKER: "quicker",
    Effect.SLOWER: "slower",
    Effect.FAILS: "more checkpoints would expire",
    Effect.UNCLEAR: "no clear difference",
    Effect.NOTHING: "has these settings already",
    Effect.UNKNOWN: "no prediction",
}
_NAMES_MAX: Final = 3
_HEAD: Final = (
    *("job", "effect", "measured", "as it is", "changed", "expire as it is", "expire changed"),
    *("persisted changed", "error", "tier"),
)
_FOLDED: Final = (5, 6, 9)
"""The columns that are left out, and said in a sentence, if all jobs have the same there."""


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Return the jobs whose checkpoints gain most first, and those without a prediction last."""
    return sorted(rows, key=lambda row: (_ORDER.index(row[2].effect), -row[2].saved_ms, row[1], row[0]))


def document(rows: Sequence[Row], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers as a JSON document."""
    counts = Counter(answer.effect.value for _, _, answer in rows)
    jobs = [{"job_id": job_id, "job": name, **answer.document()} for job_id, name, answer in ordered(rows)]
    return {"asked": dict(settings), "effects": {e.value: counts[e.value] for e in Effect}, "jobs": jobs}


def text(rows: Sequence[Row], settings: Mapping[str, str], most: int) -> Iterator[str]:
    """Yield the lines of the table (``most`` jobs at most), of the counts, and of the reasons for no prediction."""
    asked = ", ".join(f"{key}={value}" for key, value in settings.items())
    yield f"{asked} on {_jobs(len(rows))}"
    known = [row for row in ordered(rows) if row[2].effect is not Effect.UNKNOWN]
    if known:
        yield ""
        rows_shown = [_HEAD, *(_cells(name, answer) for _, name, answer in known[:most])]
        same = [n for n in _FOLDED if len({row[n] for row in rows_shown[1:]}) == 1]
        yield from columns.lines_of([[c for n, c in enumerate(row) if n not in same] for row in rows_shown], left=2)
        if len(known) > most:
            yield f"and {len(known) - most} more; --most {len(known)} or --format json shows them"
    counts = Counter(answer.effect for _, _, answer in rows)
    yield ""
    yield from (f"{counts[effect]:>6}  {_WORDS[effect]}" for effect in Effect if counts[effect])
    if known:
        yield ""
        yield from (f"{_HEAD[n]}: {rows_shown[1][n]} for each job in the table" for n in same)
        yield "as it is, changed: predicted durations, each with an interval that holds 90 % of the next checkpoints"
        yield "expire: predicted shares of checkpoints; persisted: predicted in-flight data of a checkpoint"
        yield "measured: the median of the newest checkpoints, with the middle 90 % of them"
        yield "error: of the predicted durations, on later checkpoints that the model was not fitted on"
        yield "A job is quicker or slower if its two intervals do not overlap."
    yield from _reasons(rows)


def _cells(name: str, answer: JobAnswer) -> tuple[str, ...]:
    before, after = answer.as_is, answer.changed
    assert before is not None
    assert after is not None
    return (
        name,
        answer.effect.value,
        _interval(answer.measured_ms, say.duration),
        _interval(before.duration_ms, say.duration),
        _interval(after.duration_ms, say.duration),
        _interval(before.expired_ratio, say.percent),
        _interval(after.expired_ratio, say.percent),
        _interval(after.persisted_bytes, say.size),
        "not scored" if answer.error_ratio is None else f"{100 * answer.error_ratio:+.0f} %",
        "-" if answer.tier is None else answer.tier.value,
    )


def _interval(interval: Interval | None, words: Callable[[float], str]) -> str:
    return "-" if interval is None else f"{words(interval.value)} ({words(interval.low)} to {words(interval.high)})"


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each reason for no prediction once, with the number of its jobs and some of their names."""
    by_reason: dict[str, list[str]] = {}
    for _, name, answer in rows:
        if answer.effect is Effect.UNKNOWN:
            by_reason.setdefault(answer.problem or "no checkpoint ended in the simulated time", []).append(name)
    if by_reason:
        yield ""
        yield "no prediction:"
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = len(names) - _NAMES_MAX
        listed = ", ".join(sorted(names)[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
        yield f"  {_jobs(len(names))} ({listed}): {reason}"


def _jobs(count: int) -> str:
    return f"{count} running job" + ("" if count == 1 else "s")
