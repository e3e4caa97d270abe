"""Advises on the settings of a micro-batched query (rules R-MB; measurements on Spark 4.3, ``docs/spark.md``).

The rules read the newest micro-batches: the trigger's interval (R-MB-1), the limit of a batch's input (R-MB-2), the
state store (R-MB-3), its changelog (R-MB-4) and the number of partitions (R-MB-5). None speaks if a change does not
touch the cause of the verdict (R-MB-6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from backend.advisor.advice import EvidenceRow, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.proposing import Proposal, expect, proposal
from backend.advisor.rules.aligned_timeout import nice_ms
from backend.advisor.thresholds import (
    CHANGELOG_COMMIT_RATIO,
    COMMIT_MIN_RATIO,
    IDLE_MAX_RATIO,
    LOG_MAX_RATIO,
    MEMORY_MIN_BYTES,
    PARTITION_ROWS,
    STORE_ROWS_MAX,
    STORES_MIN_COUNT,
)
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.statistics import median
from backend.analysis.queries.facts import Found
from backend.analysis.queries.micro_batches import BatchPart, BatchReport
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Topic
from backend.domain.engines import EngineCapabilities
from backend.domain.micro_batch import BatchState, MicroBatch, PressureSign
from backend.domain.verdict import Basis, Confidence

_PARTITIONS_MIN = 8
_BY_PARTS = "logs, planning and sources cost the same for each micro-batch, and the rest grows with its rows"
_BATCH_TARGET_MS = 10_000.0
_LAG_OF_CHANGELOG = 2
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PINNED = Precondition(
    "the query starts with a new checkpoint folder: the folder keeps the value of its first run", None
)


@dataclass(frozen=True, slots=True)
class Query:
    """The facts of a query that the rules use."""

    evidence: JobEvidence
    engine: EngineCapabilities
    report: BatchReport
    cause: Found | None = None
    """The cause that the verdict names, if it is one that the batches show."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of the judged micro-batches."""
        return tuple(c.header.checkpoint_id for c in self.report.judged)

    @property
    def batches(self) -> tuple[MicroBatch, ...]:
        """The judged micro-batches that have data of their phases."""
        return tuple(c.batch for c in self.report.judged if c.batch is not None)

    @property
    def states(self) -> tuple[BatchState, ...]:
        """The state stores of the judged micro-batches; empty for a query without state."""
        return tuple(b.state for b in self.batches if b.state is not None)

    @property
    def took_ms(self) -> float:
        """The median duration of a micro-batch."""
        return self.report.duration_median_ms or 0.0

    def row(self, statement: str, metric: str, value: float, unit: str, basis: Basis = Basis.MEASURED) -> EvidenceRow:
        """Return a row of evidence on the judged micro-batches."""
        return EvidenceRow(statement, metric, basis, value, unit, checkpoint_ids=self.ids)

    def duration_row(self) -> EvidenceRow:
        """Return the row with the durations of the micro-batches."""
        values = tuple(c.header.end_to_end_duration_ms for c in self.report.judged)
        text = "duration of a micro-batch, median"
        return EvidenceRow(
            text, "batchDuration", Basis.MEASURED, self.took_ms, "ms", checkpoint_ids=self.ids, values=values
        )


# The topics of which a change touches the cause. What is not listed here touches none of them.
_TOUCHED: Mapping[str, tuple[Topic, ...]] = {
    "fixed-cost": (Topic.INTERVAL,),
    "lagging-snapshots": (Topic.INTERVAL, Topic.BATCH_SIZE, Topic.PARALLELISM),
}


def untouched(query: Query, topic: Topic) -> NoAdvice | None:
    """Return the reason for no advice if this topic does not touch the cause that the verdict names (R-MB-6).

    Return None if it does, or if the verdict names no cause.
    """
    cause = query.cause
    if cause is None or topic in _TOUCHED.get(cause.name, ()):
        return None
    reason = f"{cause.headline[:1].lower()}{cause.headline[1:]}, and no setting of this kind touches the cause"
    return NoAdvice(topic, "R-MB-6", reason)


def advise_trigger(query: Query) -> Recommendation | NoAdvice:
    """Recommend a longer interval of the trigger, or return the reason for none (R-MB-1)."""
    interval, log = query.report.interval, query.report.share(BatchPart.LOG)

    def silence(reason: str) -> NoAdvice:
        return NoAdvice(Topic.INTERVAL, "R-MB-1", reason)

    if log is None:
        return silence("the phases of the micro-batches are not reported")
    if interval is None:
        busy = next((s for s in query.report.signs if s.sign is PressureSign.UTILISATION), None)
        if busy is not None and busy.is_raised and busy.value is not None and log >= LOG_MAX_RATIO:
            if not query.report.is_drained:
                return silence(
                    "micro-batches follow each other without a pause, and whether the query keeps up is not known: a"
                    " backlog of its sources that stays below a batch, or shrinks, decides"
                )
            return _with_interval(query, log, busy.value)
        return silence("the interval of the trigger is not known: pass it to the listener")
    use = query.took_ms / interval.ms
    if use > 1:
        return silence(f"micro-batches take {say.times(use)} the interval: a longer one would only delay them")
    if log < LOG_MAX_RATIO or use > IDLE_MAX_RATIO:
        return silence(
            f"writing the logs takes {say.percent(log)} of micro-batches that fill {say.percent(use)} of the interval"
        )
    wanted = nice_ms(2 * interval.ms)
    fixed, rest = _fixed_and_rest_ms(query)
    after = Interval(
        (fixed + rest * wanted / interval.ms) / wanted, fixed / wanted, min(1.0, query.took_ms / interval.ms)
    )
    made = Proposal(
        topic=Topic.INTERVAL,
        rules=("R-MB-1",),
        direction="raise",
        headline=f"Raise the trigger's interval from {say.duration(interval.ms)} to {say.duration(wanted)}",
        reason=(
            f"A micro-batch takes {say.duration(query.took_ms)}, of which {say.percent(log)} is writing the logs of"
            f" offsets and commits. It fills {say.percent(use)} of the interval, so fewer batches keep up too."
        ),
        current=Setting(interval_ms=round(interval.ms)),
        proposed=Setting(interval_ms=wanted),
        evidence=(query.duration_row(), query.row("share of the logs", "walCommit, commitOffsets", log, "ratio")),
        expected=(expect(Metric.OPEN_RATIO, use, after, _BY_PARTS),),
        confidence_reason=f"{len(query.ids)} micro-batches",
        risks=(f"results come up to {say.duration(wanted - interval.ms)} later",),
        will_not_cure=("a slow store of the checkpoint folder",),
        withdrawn_if=("the logs take less than 30 % of a micro-batch",),
    )
    return proposal(query.engine, made, query.ids)


def _fixed_and_rest_ms(query: Query) -> tuple[float, float]:
    """Return the part of a micro-batch that costs the same whatever its rows, and the rest, in milliseconds."""
    parts = (BatchPart.LOG, BatchPart.PLANNING, BatchPart.SOURCE)
    fixed = sum(query.report.share(p) or 0.0 for p in parts) * query.took_ms
    return fixed, max(0.0, query.took_ms - fixed)


def _with_interval(query: Query, log: float, busy: float) -> Recommendation:
    """Recommend an interval to a query whose micro-batches follow each other without a pause."""
    fixed, rest = _fixed_and_rest_ms(query)
    wanted = nice_ms(2 * query.took_ms)
    # A micro-batch then has the rows of ``wanted`` instead of those of the time that one takes now.
    after = Interval(
        min(busy, fixed / wanted + rest / query.took_ms), fixed / wanted, max(busy, query.took_ms / wanted)
    )
    made = Proposal(
        topic=Topic.INTERVAL,
        rules=("R-MB-1",),
        direction="raise",
        headline=f"Trigger a micro-batch every {say.duration(wanted)}",
        reason=(
            f"Micro-batches of {say.duration(query.took_ms)} follow each other without a pause, and {say.percent(log)}"
            " of each is writing the logs of offsets and commits. Fewer and larger ones write less of them. A Kafka"
            " source can wait for more rows instead (minOffsetsPerTrigger, maxTriggerDelay)."
        ),
        current=Setting(),
        proposed=Setting(interval_ms=wanted),
        evidence=(query.duration_row(), query.row("share of the logs", "walCommit, commitOffsets", log, "ratio")),
        expected=(expect(Metric.OPEN_RATIO, busy, after, _BY_PARTS),),
        confidence=Confidence.LOW,
        confidence_reason=(
            f"{len(query.ids)} micro-batches; whether the trigger has an interval is not reported, only that none shows"
        ),
        preconditions=(Precondition("the trigger has no interval, or a shorter one", None),),
        risks=(f"results come up to {say.duration(wanted)} later",),
        will_not_cure=("a slow store of the checkpoint folder",),
        withdrawn_if=("the logs take less than 30 % of a micro-batch",),
    )
    return proposal(query.engine, made, query.ids)


def advise_batch_size(query: Query) -> Recommendation | NoAdvice:
    """Recommend a limit of the input of a micro-batch, or return the reason for none (R-MB-2)."""

    def silence(reason: str) -> NoAdvice:
        return NoAdvice(Topic.BATCH_SIZE, "R-MB-2", reason)

    growth = next((s for s in query.report.signs if s.sign is PressureSign.ROWS_GROWTH), None)
    if growth is None or growth.value is None:
        return silence("the rows of the micro-batches are not reported")
    if not growth.is_raised or not query.report.is_behind:
        return silence("micro-batches do not grow from one to the next")
    rate = median(b.processed_rows_per_s for b in query.batches[-3:])
    if not rate:
        return silence("the rows that the query processes in a second are not known")
    newest = query.batches[-1]
    sources = [s.description for s in newest.sources]
    if not any("kafka" in s.lower() for s in sources):
        files = any("file" in s.lower() for s in sources)
        key = (
            "maxFilesPerTrigger limits files, and the rows of a file are not reported" if files else "no limit is known"
        )
        return silence(
            f"each micro-batch is larger than the one before, but for {say.listed(sources) or 'its source'} {key}"
        )
    interval = query.report.interval
    target = interval.ms if interval is not None else _BATCH_TARGET_MS
    wanted = max(1, int(rate * target / 1000))
    now = query.took_ms
    made = Proposal(
        topic=Topic.BATCH_SIZE,
        rules=("R-MB-2",),
        direction="limit",
        headline=f"Limit a micro-batch to {wanted} offsets",
        reason=(
            f"Each micro-batch reads at least {growth.value:.1f} times the rows of the one before, and takes longer for"
            f" them. The query processes {rate:.0f} rows in a second."
        ),
        current=Setting(),
        proposed=Setting(batch_offset_count=wanted),
        evidence=(
            query.duration_row(),
            query.row("rows that the query processes", "processedRowsPerSecond", rate, "records/s"),
        ),
        expected=(
            expect(
                Metric.DURATION,
                now,
                Interval(min(now, target), min(now, target) / 2, max(now, 2 * target)),
                "the limit divided by the rows that are processed in a second; half to twice that",
            ),
        ),
        confidence_reason=f"{len(query.ids)} micro-batches; an offset is taken to be a row",
        preconditions=(Precondition("an alert watches the backlog at the source", None),),
        risks=("what is not read stays at the source: the backlog grows there, and the progress no longer shows it",),
        will_not_cure=("the lack of capacity: results come later and later",),
        withdrawn_if=("the rows of the micro-batches do not grow",),
    )
    return proposal(query.engine, made, query.ids)


def advise_store(query: Query) -> Recommendation | NoAdvice:
    """Recommend a state store or its changelog, or return the reason for none (R-MB-3, R-MB-4)."""
    if not query.states:
        return NoAdvice(Topic.STATE, "R-MB-3", "the query keeps no state, or does not report it")
    memory = median(s.memory_bytes for s in query.states)
    upload = median(s.upload_total_ms for s in query.states)
    if upload is None:
        if memory is None or memory < MEMORY_MIN_BYTES:
            size = "an unknown amount" if memory is None else say.size(memory)
            return NoAdvice(Topic.STATE, "R-MB-3", f"the state takes {size} of memory, which the heap can hold")
        return _provider(query, memory)
    return _changelog(query, upload)


def _provider(query: Query, memory: float) -> Recommendation:
    made = Proposal(
        topic=Topic.STATE,
        rules=("R-MB-3",),
        direction="rocksdb",
        headline="Keep the state in RocksDB",
        reason=f"The state takes {say.size(memory)} on the executors' heap, which garbage collection has to walk.",
        current=Setting(),
        proposed=Setting(state_backend=_ROCKS),
        evidence=(query.row("memory of the state stores, median", "memoryUsedBytes", memory, "bytes"),),
        unpredicted=("no prediction of durations: pauses of garbage collection are not in the progress of a query",),
        confidence=Confidence.LOW,
        confidence_reason="the store is taken to be the one on the heap, because it reports no RocksDB metrics",
        preconditions=(_PINNED,),
        risks=("each access to the state costs more than on the heap",),
        will_not_cure=("state that grows without a bound: see the watermark",),
        withdrawn_if=(f"the state takes less than {say.size(MEMORY_MIN_BYTES)}",),
    )
    return proposal(query.engine, made, query.ids)


def _changelog(query: Query, upload: float) -> Recommendation | NoAdvice:
    share = query.report.share(BatchPart.STATE_COMMIT)
    if share is None or share < COMMIT_MIN_RATIO:
        part = "an unknown part" if share is None else say.percent(share)
        return NoAdvice(Topic.STATE, "R-MB-4", f"the commit of the state takes {part} of a micro-batch")
    if any((s.snapshot_lag or 0) >= _LAG_OF_CHANGELOG for s in query.states):
        return NoAdvice(
            Topic.STATE, "R-MB-4", "the commit is slow, and snapshots lag behind: a changelog is on already"
        )
    commit = share * query.took_ms
    after = Interval(
        query.took_ms - (1 - CHANGELOG_COMMIT_RATIO) * commit, max(0.0, query.took_ms - commit), query.took_ms
    )
    made = Proposal(
        topic=Topic.STATE,
        rules=("R-MB-4",),
        direction="changelog",
        headline="Write a changelog of the state instead of its snapshots",
        reason=(
            f"The commit of the state takes {say.percent(share)} of a micro-batch, and {say.duration(upload)} of all"
            " stores' time is writing files."
        ),
        current=Setting(),
        proposed=Setting(has_changelog=True),
        evidence=(
            query.duration_row(),
            query.row("share of the state's commit", "commitTimeMs", share, "ratio", Basis.RECONSTRUCTED),
            query.row("writing files, summed over the stores", "rocksdbCommitFileSyncLatencyMs", upload, "ms"),
        ),
        expected=(
            expect(
                Metric.DURATION,
                query.took_ms,
                after,
                "the commit shrinks by 57 %, as measured once on Spark 4.3; the interval reaches from all to nothing",
            ),
        ),
        confidence=Confidence.LOW,
        confidence_reason="whether a changelog is already on is not reported",
        preconditions=(Precondition("the changelog is off now", None),),
        risks=("a restart replays the changelog since the last snapshot",),
        will_not_cure=("a slow store of the checkpoint folder",),
        withdrawn_if=("the commit takes less than 30 % of a micro-batch",),
    )
    return proposal(query.engine, made, query.ids)


def advise_partitions(query: Query) -> Recommendation | NoAdvice:
    """Recommend fewer partitions of the state, or return the reason for none (R-MB-5)."""
    stores = median(s.store_count for s in query.states)
    rows = median(s.row_count for s in query.states)
    if stores is None or rows is None:
        return NoAdvice(
            Topic.PARALLELISM, "R-MB-5", "the query reports no state stores, whose number partitions decide"
        )
    if stores < STORES_MIN_COUNT or rows / stores >= STORE_ROWS_MAX:
        text = f"{stores:.0f} state stores with {rows / stores if stores else 0:.0f} rows each are not too many"
        return NoAdvice(Topic.PARALLELISM, "R-MB-5", text)
    wanted = max(_PARTITIONS_MIN, ceil(rows / PARTITION_ROWS))
    if wanted >= stores:
        return NoAdvice(Topic.PARALLELISM, "R-MB-5", f"{stores:.0f} state stores suit {rows:.0f} rows")
    commit = median(s.commit_total_ms for s in query.states)
    found = [query.row("state stores", "numStateStoreInstances", stores, "count")]
    found += [query.row("rows in all of them", "numRowsTotal", rows, "count")]
    if commit is not None:
        found.append(query.row("their commits, summed", "commitTimeMs", commit, "ms"))
    made = Proposal(
        topic=Topic.PARALLELISM,
        rules=("R-MB-5",),
        direction="lower",
        headline=f"Shuffle into {wanted} partitions",
        reason=(
            f"{stores:.0f} state stores have {rows / stores:.0f} rows each. Every one is loaded and committed in each"
            " micro-batch."
        ),
        current=Setting(),
        proposed=Setting(parallelism=wanted),
        evidence=tuple(found),
        unpredicted=("no prediction of durations: the number of cores is not reported",),
        confidence=Confidence.LOW,
        confidence_reason="the number of cores is not known; a query needs at least as many partitions",
        preconditions=(Precondition("the executors have no more cores than partitions", None), _PINNED),
        risks=("with fewer partitions than cores, cores stay idle",),
        will_not_cure=("a slow store of the checkpoint folder",),
        withdrawn_if=(f"the stores have more than {STORE_ROWS_MAX} rows each",),
    )
    return proposal(query.engine, made, query.ids)
