"""The causes of growth: state that is never cleaned, and batches of the same rows that take longer and longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from backend.analysis.queries.facts import Facts, Found
from backend.analysis.queries.micro_batches import BatchPart
from backend.analysis.queries.series import GROWTH_MIN_COUNT, SAME_ROWS_TIMES, Growth, Part, Rest
from backend.analysis.queries.stored_state import (
    HELD_SURE_MIN,
    STATE_GROWTH_TIMES,
    Cleaning,
    StateGrowth,
    state_rows_ratio,
)
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CONFIDENT_COUNT
from backend.domain.verdict import Basis, Confidence, Evidence, VerdictKind

_JOBS: Final = (
    "how long the batch's Spark jobs take together (page SQL, `batch = N`): if this is much less than the batch, the"
    " driver reads metadata meanwhile; if the jobs grow, each batch reads more of the table"
)
_TABLE_CURE: Final = (
    "keep fewer commits or snapshots of the table (its retention and cleaning), compact its small files,"
    " and let a merge"
    " or index read fewer partitions"
)
_WHERE: Final[dict[Part, str]] = {
    BatchPart.RUN: "running the batch and writing to the sink",
    BatchPart.STATE_COMMIT: "committing the state stores",
    BatchPart.SOURCE: "asking the sources for new data",
    BatchPart.LOG: "writing the checkpoint log",
    BatchPart.PLANNING: "planning",
    Rest.REST: "what no reported phase covers",
}
_OF_STATE: Final = (BatchPart.RUN, BatchPart.STATE_COMMIT)
_TOLD_AGE: Final = timedelta(hours=2)


def uncleaned_state(facts: Facts) -> Found | None:
    """Return the state that grows because no row of it is removed."""
    state = facts.state
    if state is None:
        return None
    size = "" if not state.last_bytes else f" ({say.size(state.last_bytes)})"
    removed = ", and no row was removed" if state.is_reported else "; how many rows were removed is not reported"
    lead = (
        f"The state grew from {say.count(state.first_count)} to {say.count(state.last_count)} rows{size} in"
        f" {state.batch_count} batches{removed}"
    )
    why, cures, missing = _cleaning_words(facts, state)
    is_certain = state.is_certain
    delays = facts.growth is not None and facts.growth.part in _OF_STATE
    return Found(
        name="uncleaned-state",
        kind=VerdictKind.GROWTH,
        headline="The state is never cleaned" if is_certain else "The state grows",
        sentence=f"{lead}: {why}",
        confidence=_state_confidence(state),
        evidence=_state_evidence(state),
        cures=cures,
        no_cures=("more memory or executors, or another state store, which only delay the end",) if cures else (),
        would_decide=missing,
        explains_delay=delays,
        is_note=not is_certain and not delays and state.cleaning is not Cleaning.NOT_USED,
        # Until the first window is over, and in each hour of windows of an hour, this is the usual course of things.
        is_said=state.age is not None and state.age >= _TOLD_AGE,
    )


def _state_confidence(state: StateGrowth) -> Confidence:
    if state.cleaning is Cleaning.HELD and state.batch_count >= CONFIDENT_COUNT and state.span >= HELD_SURE_MIN:
        return Confidence.HIGH
    return Confidence.MEDIUM if state.is_certain else Confidence.LOW


def _cleaning_words(facts: Facts, state: StateGrowth) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return why no row is removed, what cures it, and what would decide."""
    used = (
        "whether the grouping, the join condition or the deduplication has the column on which the watermark is set: a"
        " watermark on another column never cleans the state"
    )
    match state.cleaning:
        case Cleaning.OWN:
            return (
                "the query reports no watermark, and its own function has removed no key",
                ("a timeout or a time to live in the function that keeps the state",),
                ("the timeouts of the function, and whether the keys are bounded",),
            )
        case Cleaning.NO_WATERMARK:
            return (
                "the query reports no watermark, without which Spark never removes a row of it",
                ("withWatermark on the event-time column by which the query groups, joins or deduplicates",),
                (used, "whether the keys are bounded: the growth then ends when each has been seen"),
            )
        case Cleaning.HELD:
            at = f"{state.watermark_at:%Y-%m-%d %H:%M:%S} UTC" if state.watermark_at else "its place"
            several = f" With {state.source_count} sources, the slowest holds it." if state.source_count > 1 else ""
            return (
                f"the watermark stands still at {at} though the batches have rows.{several}".rstrip("."),
                _held_cures(state),
                (
                    "the newest event times in the input: the watermark follows the largest one, and stands still for"
                    " as long as they are cut to the hour or the day",
                ),
            )
        case Cleaning.NOT_USED:
            moved = "" if state.moved is None else say.duration(state.moved.total_seconds() * 1000)
            return (
                f"the watermark moves{f' (by {moved})' if moved else ''}, but the state does not follow it. Unless the"
                " window or the delay is longer, the watermark is set on another column than the one by which the query"
                " groups, joins or deduplicates",
                (
                    "the watermark on the column by which the query groups, joins or deduplicates, or"
                    " that column in them",
                ),
                (used, "the length of the window and of the watermark's delay"),
            )
        case Cleaning.NOT_DUE if state.moved is not None and state.moved <= timedelta(0):
            span = say.duration(state.span.total_seconds() * 1000)
            return (
                f"the watermark did not move in these {span}, which are too short to tell whether it stands still",
                (),
                (
                    "whether the watermark moves later: it does not while event times are cut to the same minute"
                    " or hour",
                ),
            )
        case Cleaning.NOT_DUE:
            return (
                "the watermark moves, so rows go when it has passed their window, unless it is set on another column",
                (),
                ("the length of the window and of the watermark's delay", used),
            )
    return (
        "the watermark decides whether rows are removed",
        (),
        ("the rows that are removed (numRowsRemoved), which an older listener does not send", used),
    )


def _held_cures(state: StateGrowth) -> tuple[str, ...]:
    if state.source_count <= 1:
        return ("newer event times in the rows: the column of the watermark, its unit and its time zone",)
    return (
        "rows with newer event times at the source that has none (an idle topic)",
        "spark.sql.streaming.multipleWatermarkPolicy = max, but only if rows may be lost: those of the slower source"
        " are then dropped as late",
    )


def _state_evidence(state: StateGrowth) -> tuple[Evidence, ...]:
    rows = [
        Evidence(
            f"{say.count(state.last_count - state.first_count)} rows were added to the state in"
            f" {state.batch_count} batches",
            "state rows",
            value=state.last_count,
            unit="count",
        )
    ]
    if state.is_reported:
        rows.append(
            Evidence("no row was removed from the state in these batches", "numRowsRemoved", value=0, unit="count")
        )
    if state.age is not None:
        age = say.duration(state.age.total_seconds() * 1000)
        text = f"at this rate the state holds the rows of {age}, or of less if more came before"
        rows.append(Evidence(text, "age of the state", Basis.RECONSTRUCTED, state.age.total_seconds() * 1000, "ms"))
    return tuple(rows)


def longer_batches(facts: Facts) -> Found | None:
    """Return what makes batches of the same rows take longer and longer, or that it is not decided."""
    growth = facts.growth
    if growth is None or (facts.state is not None and growth.part in _OF_STATE):
        return None
    if growth.rows_ratio is None:
        rows, is_same = "Batches, whose rows are not reported,", False
    elif growth.rows_ratio < SAME_ROWS_TIMES:
        rows, is_same = f"Batches of the same {say.count(growth.rows or 0)} rows", True
    else:
        rows, is_same = f"Batches of {growth.rows_ratio:.1f} times the rows", False
    lead = (
        f"{rows} grew from {say.duration(growth.first_ms)} to {say.duration(growth.last_ms)} within {growth.count}"
        " batches"
    )
    why, cures, missing, kind = _growth_words(facts, growth)
    is_sure = is_same and growth.is_steady and growth.part is not None and growth.count >= 2 * GROWTH_MIN_COUNT
    return Found(
        name="longer-batches",
        kind=kind,
        headline="Batches of the same rows take longer and longer" if is_same else "Batches take longer and longer",
        sentence=f"{lead}: {why}",
        confidence=Confidence.MEDIUM if is_sure else Confidence.LOW,
        evidence=_growth_evidence(growth),
        cures=cures,
        no_cures=("more executors, or a limit of the batches' rows, because it is not the rows that take longer",),
        would_decide=missing,
        explains_delay=True,
    )


def _growth_words(facts: Facts, growth: Growth) -> tuple[str, tuple[str, ...], tuple[str, ...], VerdictKind]:
    more_state = state_rows_ratio(facts.rows)
    match growth.part:
        case BatchPart.RUN | BatchPart.STATE_COMMIT if more_state is not None and more_state >= STATE_GROWTH_TIMES:
            return (
                f"the time goes to {_WHERE[growth.part]}, and the state has {say.times(more_state)} the"
                " rows, though rows"
                " are removed too",
                ("a shorter window, delay or time to live, so that the state has fewer rows",),
                ("whether the state still grows when the longest window has passed",),
                VerdictKind.GROWTH,
            )
        case BatchPart.SOURCE:
            listing = "the source lists more partitions, files or commits for each batch"
            cure = "fewer partitions, files or commits for the source to list, and a shorter retention of its log"
            if facts.is_file_source:
                listing = "the driver lists the input folder for each batch, and its files become more"
                cure = "removing or archiving files that were read (option cleanSource), fewer and larger files, or a"
                cure += " narrower path"
            return f"asking the sources for new data takes longer; {listing}", (cure,), (), VerdictKind.LATE_INPUT
        case BatchPart.LOG:
            return (
                "writing the checkpoint log takes longer",
                ("a faster store for the checkpoint folder, and removing what else grows in it",),
                ("the number of files in the checkpoint folder, and the store's own latencies",),
                VerdictKind.STORE,
            )
        case BatchPart.PLANNING:
            return (
                "planning takes longer, as when the table has more files or partitions with each batch,"
                " or the plan grows",
                (_TABLE_CURE,),
                ("the plan of an early and of a late batch (page SQL)",),
                VerdictKind.GROWTH,
            )
        case BatchPart.STATE_COMMIT:
            return (
                "committing the state stores takes longer, though the state is not what is known to grow",
                (),
                ("the rows of the state, and the latencies of the checkpoint store",),
                VerdictKind.STORE,
            )
        case BatchPart.RUN | Rest.REST:
            return (
                f"the time goes to {_WHERE[growth.part]}, but not to the input. Each batch reads more in addition to"
                " its rows: the table's metadata (commits, listed files), an index, or a target into which it merges."
                " Which one, is not decided",
                (_TABLE_CURE,),
                (_JOBS,),
                VerdictKind.GROWTH,
            )
    return (
        "no part has most of the growth, so it is not decided what grows",
        (),
        ("the processors' and the driver's garbage collection, and the latencies of the stores",),
        VerdictKind.UNDECIDED,
    )


def _growth_evidence(growth: Growth) -> tuple[Evidence, ...]:
    rows = [
        Evidence(
            f"the last third of {growth.count} batches takes {say.times(growth.ratio)} as long as the first third",
            "growth of batchDuration",
            value=say.rounded(growth.ratio),
            unit="ratio",
        )
    ]
    if growth.rows_ratio is not None:
        text = f"they read {say.times(growth.rows_ratio)} the rows"
        rows.append(Evidence(text, "growth of numInputRows", value=say.rounded(growth.rows_ratio), unit="ratio"))
    if growth.part is not None:
        text = f"{say.percent(min(1.0, growth.part_ratio))} of the growth is in {_WHERE[growth.part]}"
        rows.append(
            Evidence(text, f"growth of {growth.part.value}", value=say.rounded(growth.part_ratio), unit="ratio")
        )
    return tuple(rows)
