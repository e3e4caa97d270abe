"""Advises on how the state is written: incremental checkpoints and a changelog (rules R-ST).

Full checkpoints write the whole state each time. If writing takes most of a checkpoint and little of the state can
change within an interval, incremental checkpoints write less. Incremental uploads that now and then take many times as
long come from compaction, which a changelog takes out of the checkpoint. The number of files (R-FILE-1) is reported by
no engine, so nothing is advised on it.
"""

from __future__ import annotations

import re

from backend.advisor.advice import EvidenceRow, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.proposing import Proposal, expect, proposal
from backend.advisor.situation import Situation
from backend.advisor.thresholds import (
    CHANGED_MAX_RATIO,
    FULL_MIN_RATIO,
    NOISE_MS,
    STORE_MIN_RATIO,
    TAIL_FACTOR,
)
from backend.analysis.numbers.statistics import median, quantile, ratio
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import SLOW_MIN_MS
from backend.domain.advice import Metric, Topic
from backend.domain.verdict import Basis, Confidence

_ROCKS = "rocksdb"
_HEAP = "hashmap"
# A checkpoint is in DIRECTORY/JOB/chk-NUMBER.
_CHECKPOINT_PATH = re.compile(r"(.+)/[^/]+/chk-\d+/?$")


def advise_state(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend how the state is written, or return the reason for none."""
    done = [r for r in situation.recorded if not r.is_failed]
    full = median(r.checkpoint.header.full_state_size_bytes for r in done)
    written = median(_state_bytes(r.written_bytes, r.persisted_bytes) for r in done)
    writing = median(ratio(r.own_async_ms, r.duration_ms) for r in situation.recorded)
    if not full or written is None or writing is None:
        return _silence("the sizes or the async parts of the checkpoints are not known")
    took = situation.duration_ms or 0.0
    if took < SLOW_MIN_MS:
        return _silence(f"checkpoints take {say.duration(took)}, so it matters little how they are written")
    if written / full < FULL_MIN_RATIO:
        return _tail(situation, written / full)
    if writing <= STORE_MIN_RATIO:
        return _silence(f"writing takes {say.percent(writing)} of the duration: fewer bytes would change little")
    return _incremental(situation, full, written, writing)


def _silence(reason: str, rule: str = "R-ST-1") -> NoAdvice:
    return NoAdvice(Topic.STATE, rule, reason)


def _state_bytes(written: float | None, persisted: float | None) -> float | None:
    return None if written is None else max(0.0, written - (persisted or 0.0))


def _incremental(situation: Situation, full: float, written: float, writing: float) -> Recommendation | NoAdvice:
    config = situation.evidence.config
    backend = ((config.state_backend if config is not None else None) or "").lower()
    keys = situation.engine.settings
    if keys.incremental is None:
        return _silence(f"{situation.engine_words} has no setting for incremental checkpoints")
    is_rocks, can_move = _ROCKS in backend, keys.state_backend is not None
    if not can_move and (not backend or _HEAP in backend):
        text = (
            "checkpoints write the whole state, and this backend has no incremental ones. Start the job with another:"
            " changelog if little changes and processing is scarce, diff if the state is small and overwritten often"
        )
        return _silence(text, "R-ST-2")
    taken = max((sum(situation.intake_bytes_per_ms.get(v, ())) for v in situation.intake_bytes_per_ms), default=0.0)
    every_ms = situation.every_ms
    if not taken or not every_ms:
        return _silence("how much the state can change in an interval is not known: no input rate was read")
    changed = taken * every_ms
    if changed > CHANGED_MAX_RATIO * full:
        text = f"up to {say.size(changed)} arrive in an interval, so much of the {say.size(full)} of state may change"
        return _silence(text)
    part = changed / full
    after = Interval(changed, 0.0, full)
    now = situation.duration_ms or 0.0
    own = median(r.own_async_ms for r in situation.recorded) or 0.0
    duration = Interval(now - own * (1 - part), max(0.0, now - own), now + NOISE_MS)
    is_moved = not is_rocks and can_move
    proposed = Setting(is_incremental=True, state_backend=_ROCKS if is_moved else None)
    current = Setting(is_incremental=False)
    moved = " on RocksDB" if is_moved else ""
    rows = (
        EvidenceRow(
            "state of the job, median",
            "fullStateSize",
            Basis.MEASURED,
            full,
            "bytes",
            checkpoint_ids=situation.ids,
            values=tuple(r.checkpoint.header.full_state_size_bytes for r in situation.recorded),
        ),
        EvidenceRow(
            "written by a checkpoint, median",
            "checkpointedSize",
            Basis.MEASURED,
            written,
            "bytes",
            checkpoint_ids=situation.ids,
            values=tuple(r.written_bytes for r in situation.recorded),
        ),
        EvidenceRow(
            "share of the duration that is writing",
            "asyncDuration",
            Basis.RECONSTRUCTED,
            writing,
            "ratio",
            checkpoint_ids=situation.ids,
        ),
        EvidenceRow(
            "input of the busiest vertex in an interval",
            "numBytesIn",
            Basis.RECONSTRUCTED,
            changed,
            "bytes",
            since=situation.since,
            until=situation.until,
        ),
    )
    method = "at most the input of an interval changes the state; the interval reaches from nothing to the whole state"
    preconditions = [Precondition("the state backend is RocksDB", is_rocks or None)] if not is_moved else []
    if is_moved:
        preconditions.append(
            Precondition("the job starts from a canonical savepoint, which another state backend can read", None)
        )
    made = Proposal(
        topic=Topic.STATE,
        rules=("R-ST-1", "R-UC-2"),
        direction="incremental",
        headline=f"Write incremental checkpoints{moved}",
        reason=(
            f"A checkpoint writes {say.size(written)}, all of the state, and writing takes {say.percent(writing)} of"
            f" its {say.duration(now)}. In an interval at most {say.size(changed)} arrive to change it."
        ),
        current=current,
        proposed=proposed,
        evidence=rows,
        expected=(
            expect(Metric.WRITTEN, written, after, method),
            expect(Metric.DURATION, situation.duration_ms, duration, "writing shrinks with the bytes; the rest stays"),
        ),
        unpredicted=("no prediction of the throughput on another state backend",) if is_moved else (),
        confidence_reason=(
            f"{len(situation.recorded)} checkpoints; whether they are incremental follows from their sizes"
        ),
        preconditions=tuple(preconditions),
        risks=(
            "a restore reads more files and may take longer",
            "the files of older checkpoints stay until compaction replaces them: the store needs more space",
        ),
        will_not_cure=("a store that is slow for small writes too",),
        withdrawn_if=("most of the state changes in an interval", "writing takes less than half of the duration"),
    )
    return proposal(situation.engine, made, situation.ids)


def _tail(situation: Situation, share: float) -> Recommendation | NoAdvice:
    own = [r.own_async_ms for r in situation.recorded if not r.is_failed]
    sizes = [r.written_bytes for r in situation.recorded if not r.is_failed]
    usual, late = median(own) or 0.0, quantile(own, 0.95) or 0.0
    small, large = median(sizes) or 0.0, quantile(sizes, 0.95) or 0.0
    told = f"a checkpoint writes {say.percent(share)} of the state"
    is_long = late >= SLOW_MIN_MS and late > TAIL_FACTOR * usual and large > TAIL_FACTOR * small
    if not is_long:
        return _silence(f"{told}, and its uploads have no long tail")
    if situation.engine.settings.changelog is None:
        return _silence(
            f"{told}; some take {say.duration(late)}, and {situation.engine_words} has no changelog", "R-ST-2"
        )
    directory = _changelog_directory(situation)
    made = Proposal(
        topic=Topic.STATE,
        rules=("R-ST-1", "R-ST-2"),
        direction="changelog",
        headline="Enable the changelog of the state",
        reason=(
            f"Incremental checkpoints usually write for {say.duration(usual)}, but 5 % of them for"
            f" {say.duration(late)} and {say.times(large / small if small else 0.0)} as much: compaction. A changelog"
            " writes the changes as they come, and compaction no longer delays a checkpoint."
        ),
        current=Setting(has_changelog=False),
        proposed=Setting(has_changelog=True, changelog_directory=directory),
        evidence=(
            EvidenceRow(
                "async part of a checkpoint, p95",
                "asyncDuration",
                Basis.MEASURED,
                late,
                "ms",
                checkpoint_ids=situation.ids,
                values=tuple(r.own_async_ms for r in situation.recorded),
            ),
            EvidenceRow(
                "written by a checkpoint, p95",
                "checkpointedSize",
                Basis.MEASURED,
                large,
                "bytes",
                checkpoint_ids=situation.ids,
                values=tuple(r.written_bytes for r in situation.recorded),
            ),
        ),
        unpredicted=("no prediction of durations: how much of the state changes is not reported",),
        confidence=Confidence.LOW,
        confidence_reason="compaction itself is not seen, only uploads that are long and large",
        preconditions=(
            Precondition("the store of the changelog accepts small writes at all times", None),
            *_directory_conditions(situation, directory),
        ),
        risks=(
            "every change is written twice: more load on the store, and slower processing",
            "a restore replays the changelog and takes longer",
        ),
        will_not_cure=("uploads that are long without being large",),
        withdrawn_if=("no upload takes three times the median",),
    )
    return proposal(situation.engine, made, situation.ids)


def _changelog_directory(situation: Situation) -> str | None:
    """Return a directory next to the job's checkpoints, from the path of one; None if no path is known."""
    if situation.engine.settings.changelog_directory is None:
        return None
    paths = (c.header.external_path for c in reversed(situation.evidence.checkpoints))
    match = next((m for path in paths if path and (m := _CHECKPOINT_PATH.match(path))), None)
    return None if match is None else f"{match[1]}/changelog"


def _directory_conditions(situation: Situation, directory: str | None) -> tuple[Precondition, ...]:
    key = situation.engine.settings.changelog_directory
    if key is None:
        return ()
    if directory is None:
        return (Precondition(f"{key} names a directory of the store; without it, no task starts", None),)
    return (Precondition(f"the task managers may write to {directory}, a directory next to the checkpoints", None),)
