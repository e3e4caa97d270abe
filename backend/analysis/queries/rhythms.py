"""The causes of batches that are slow every n-th time: a log that is rewritten whole (``compaction``).

Spark keeps a log of all files that a file sink has written, in the folder ``_spark_metadata``, and one of all files
that a file source has read, in the checkpoint folder. Every tenth batch the driver writes the whole log as one file.
Delta writes a checkpoint of its own log every tenth commit, at any number of the batch.
"""

from __future__ import annotations

from typing import Final

from backend.analysis.queries.facts import Facts, Found
from backend.analysis.queries.inside_jobs import outside_rows
from backend.analysis.queries.micro_batches import BatchPart
from backend.analysis.queries.series import USUAL_PERIOD, Rest, Rhythm
from backend.analysis.words import sentences as say
from backend.domain.verdict import Basis, Confidence, Evidence, Health, VerdictKind

RHYTHM_MIN_EXTRA_MS: Final = 5_000.0
"""Slow batches every n-th time are a cause if each takes this much longer, and if they cost or delay the others."""
RHYTHM_MIN_COST_RATIO: Final = 0.1
"""They cost if they take this share of the time in addition, and delay if they exceed the trigger's interval."""

_SINK_LOG: Final = "the log of the file sink (the folder _spark_metadata)"
_SOURCE_LOG: Final = "the log of the file source (the folder sources of the checkpoint)"
_DELTA_LOG: Final = "the Delta table's log"
_CURES: Final = {
    _SINK_LOG: "an age limit for the files that the sink's log lists (option retention, since Spark 3.1), fewer and"
    " larger files in each batch, or a table format in place of the file sink",
    _SOURCE_LOG: "removing input files that were read (option cleanSource), and maxFileAge; fewer and larger files",
    _DELTA_LOG: "a shorter retention of the table's log (delta.logRetentionDuration), and fewer, larger commits",
}
_NO_CURES: Final = (
    "more executors, because the driver writes the log alone",
    "a longer interval of compaction (spark.sql.streaming.fileSink.log.compactInterval), which makes it rarer but not"
    " shorter",
)
_WORDS: Final = {
    BatchPart.RUN: "running the batch and writing to the sink",
    BatchPart.SOURCE: "asking the sources for new data",
    BatchPart.LOG: "writing the checkpoint log",
    BatchPart.PLANNING: "planning",
    BatchPart.STATE_COMMIT: "committing the state stores",
    Rest.REST: "what no reported phase covers",
}


def compaction(facts: Facts) -> Found | None:
    """Return the log whose compaction makes every n-th batch slow, or that it is not known which."""
    rhythm = facts.rhythm
    if rhythm is None:
        return None
    logs = _logs(facts, rhythm)
    lead = (
        f"Every {_ordinal(rhythm.period)} batch takes {say.duration(rhythm.slow_ms)} instead of"
        f" {say.duration(rhythm.usual_ms)}, with the same rows"
    )
    is_note = not _costs(facts, rhythm)
    if logs:
        why = f"{say.listed(logs)} {'is' if len(logs) == 1 else 'are'} rewritten whole (compacted)"
        if logs == [_DELTA_LOG]:
            why = f"a checkpoint of {_DELTA_LOG} is written, as after every 10 commits"
        is_sure = rhythm.is_of_file_log and len(rhythm.slow) > 2
        confidence = Confidence.HIGH if is_sure else Confidence.MEDIUM
    else:
        why = "as when a log is compacted; which, is not decided"
        confidence = Confidence.LOW
    return Found(
        name="compaction",
        kind=VerdictKind.STORE if logs else VerdictKind.UNDECIDED,
        headline=f"Every {_ordinal(rhythm.period)} batch is slow",
        sentence=f"{lead}: {why}" if logs else f"{lead}, {why}",
        confidence=confidence,
        evidence=(*_evidence(rhythm), *outside_rows(rhythm.slow)),
        cures=() if is_note else tuple(_CURES[log] for log in logs),
        no_cures=_NO_CURES if logs and not is_note else (),
        would_decide=() if logs else _would_decide(facts, rhythm),
        explains_delay=True,
        health=Health.HEALTHY if is_note else Health.INTERMITTENT,
        is_note=is_note,
    )


def _costs(facts: Facts, rhythm: Rhythm) -> bool:
    if rhythm.extra_ms < RHYTHM_MIN_EXTRA_MS:
        return False
    interval = facts.report.interval
    if interval is not None and rhythm.usual_ms <= interval.ms:
        return rhythm.slow_ms > interval.ms
    return rhythm.cost_ratio >= RHYTHM_MIN_COST_RATIO


def _logs(facts: Facts, rhythm: Rhythm) -> list[str]:
    """Return the logs that the slow batches rewrite, the one that takes longest first."""
    logs: list[str] = []
    for part, _ in rhythm.parts:
        if part in (BatchPart.RUN, Rest.REST) and facts.is_file_sink:
            logs.append(_SINK_LOG)
        elif part is BatchPart.SOURCE and facts.is_file_source:
            logs.append(_SOURCE_LOG)
        elif part in (BatchPart.RUN, Rest.REST) and facts.is_delta_sink and rhythm.period == USUAL_PERIOD:
            logs.append(_DELTA_LOG)
    return list(dict.fromkeys(logs))


def _would_decide(facts: Facts, rhythm: Rhythm) -> tuple[str, ...]:
    sink = "the query's sink, which is not reported" if facts.sink is None else f"what {facts.sink[:80]} does then"
    every = f"in every {_ordinal(rhythm.period)} batch"
    return (
        f"{sink}: a file sink rewrites its log, and a table may be compacted, {every}",
        "the query's checkpoint folder, as a target: the log of a file source has a file N.compact of such a batch",
        f"the driver's log of such a batch, and code of foreachBatch that does more {every}",
    )


def _evidence(rhythm: Rhythm) -> tuple[Evidence, ...]:
    numbers = say.listed([str(r.number) for r in rhythm.slow[-3:]])
    rows = [
        Evidence(
            f"batch {numbers} took {say.duration(rhythm.slow_ms)} in the median, the others"
            f" {say.duration(rhythm.usual_ms)}",
            "batchDuration",
            value=say.rounded(rhythm.slow_ms),
            unit="ms",
        ),
        Evidence(
            f"every {_ordinal(rhythm.period)} batch costs {say.percent(rhythm.cost_ratio)} of all time in addition",
            "cost of the slow batches",
            Basis.RECONSTRUCTED,
            say.rounded(rhythm.cost_ratio),
            "ratio",
        ),
    ]
    rows += [
        Evidence(f"in them {_WORDS[part]} takes {say.duration(ms)} longer", f"extra {part.value}", value=ms, unit="ms")
        for part, ms in rhythm.parts
    ]
    return tuple(rows)


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else endings.get(number % 10, 'th')}"
