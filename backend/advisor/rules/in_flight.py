"""Limits the in-flight data of an unaligned checkpoint, so that it can be written and restored in time (rules R-CAP).

If the job's failures are known, the restore must also leave time for a checkpoint before the next one, and the data
must not grow from restore to restore (R-REC-1).

If the engine has a cap in bytes for each subtask (the reference runtime), the rule proposes a cap. If not, it proposes
a target for buffer debloating (Flink from 1.14), which limits queues by the time that they take to drain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.advisor.advice import EvidenceRow, Expected, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.replay import write_ms
from backend.advisor.rules import spiral
from backend.advisor.rules.mode_effects import restore_ms
from backend.advisor.rules.spiral import Growth
from backend.advisor.sentences import will_not_cure
from backend.advisor.situation import Situation, drain_times
from backend.advisor.thresholds import CAP_WRITE_RATIO, DEBLOAT_MIN_MS, GATE_MIN_BYTES, RESTORE_BUDGET_MS
from backend.analysis.numbers.arrays import highest_of, known_of
from backend.analysis.numbers.statistics import median, quantile
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.text import capitalised
from backend.domain.verdict import Basis, Confidence


@dataclass(frozen=True, slots=True)
class _Load:
    """The in-flight data of the recorded checkpoints, and the time needed to write and to restore this data.

    ``subtask_bytes`` is the 95th percentile over the subtasks that persisted data, and ``total_bytes`` is the median
    over the checkpoints that did. The times are for ``total_bytes``; ``write_budget_ms`` and ``restore_budget_ms`` are
    the times that writing and restoring may take. ``is_failing_often`` is whether failures decide the latter (R-REC-1).
    ``growth`` is that from restore to restore.
    """

    subtask_bytes: float
    total_bytes: float
    persisting_count: int
    write_ms: float | None
    write_budget_ms: float | None
    restore_ms: float | None
    restore_budget_ms: float
    is_failing_often: bool
    growth: Growth | None = None

    @property
    def is_restored_late(self) -> bool:
        """Whether the in-flight data makes a restore too long."""
        return self.restore_ms is not None and self.restore_ms > self.restore_budget_ms

    @property
    def share(self) -> float:
        """The share of the in-flight data that can be written and restored within the allowed times; at most 1.

        If the data grows from restore to restore, it is at most the share that it had before it grew.
        """
        shares = [1.0 if self.growth is None else self.growth.share]
        if self.write_ms and self.write_budget_ms is not None:
            shares.append(self.write_budget_ms / self.write_ms)
        if self.restore_ms:
            shares.append(self.restore_budget_ms / self.restore_ms)
        return min(shares)


def advise_in_flight(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend a limit on in-flight data, or return the reason for giving no advice on it."""
    if situation.mode not in (Mode.UNALIGNED, Mode.ALIGNED_WITH_TIMEOUT):
        return _silence("checkpoints are aligned and persist no in-flight data")
    load = _load(situation)
    if load is None:
        return _silence("checkpoints persist no in-flight data")
    carried = f"{say.size(load.total_bytes)} of in-flight data a checkpoint"
    if load.share >= 1.0:
        hopeless = spiral.hopeless(situation)
        if hopeless is not None:
            return NoAdvice(Topic.IN_FLIGHT, "R-REC-1", f"a limit on in-flight data does not help: {hopeless}")
        return _silence(f"{carried} is within the limits for writing and restoring")
    return _cap(situation, load, carried) if situation.engine.has_in_flight_cap else _debloat(situation, load, carried)


def _silence(reason: str) -> NoAdvice:
    return NoAdvice(Topic.IN_FLIGHT, "R-CAP-1", reason)


def _load(situation: Situation) -> _Load | None:
    each = [[known_of(rows.persisted_bytes) for rows in r.phases.values()] for r in situation.recorded if r.phases]
    subtasks = [v for rows in each for values in rows for v in values[values != 0].tolist()]
    total = median(r.persisted_bytes for r in situation.recorded if r.persisted_bytes)
    if not subtasks or not total:
        return None
    counts = [sum(int(np.count_nonzero(values)) for values in rows) for rows in each]
    config = situation.evidence.config
    limits = []
    if config is not None and config.interval_ms:
        limits.append(config.interval_ms / 2)
    if config is not None and config.timeout_ms:
        limits.append(config.timeout_ms / 3)
    writing = None
    if situation.store_bytes_per_ms is not None:
        writing = write_ms(situation, total, total).value
    restore = restore_ms(situation, Interval(total, total, total))
    room = spiral.room_ms(situation)
    # Without any room, failures do not decide what a restore may take: no limit on in-flight data gives room.
    budget = RESTORE_BUDGET_MS if room is None or room <= 0 else min(RESTORE_BUDGET_MS, room)
    return _Load(
        subtask_bytes=quantile(subtasks, 0.95) or 0.0,
        total_bytes=total,
        persisting_count=round(median(counts) or 1),
        write_ms=writing,
        write_budget_ms=CAP_WRITE_RATIO * min(limits) if limits else None,
        restore_ms=restore.value if restore is not None else None,
        restore_budget_ms=budget,
        is_failing_often=budget < RESTORE_BUDGET_MS,
        growth=spiral.growth(situation),
    )


def _cap(situation: Situation, load: _Load, carried: str) -> Recommendation | NoAdvice:
    config = situation.evidence.config
    current = config.inflight_cap_bytes if config is not None else None
    wanted = _nice_bytes(load.subtask_bytes * load.share)
    if wanted < GATE_MIN_BYTES:
        return _silence(
            f"{carried} is too much, but with a cap of {say.size(wanted)} a subtask checkpoints would wait until"
            " queues are empty, like aligned ones: give the store more bandwidth or the job more capacity"
        )
    if current is not None and current <= wanted * 1.1:
        return _silence(f"{carried} is too much, but the cap of {say.size(current)} is already low enough")
    fit = _fit_ratio(situation, wanted)
    total = Interval(
        min(load.total_bytes, wanted * load.persisting_count),
        0.0,
        float(wanted * load.persisting_count),
    )
    wait = _wait_ms(situation, max(0.0, 1.0 - wanted / load.subtask_bytes))
    written = write_ms(situation, total.value, float(wanted))
    duration = Interval(wait + written.value, 0.0, 2.0 * wait + 2.0 * written.high + 500.0)
    proposed = Setting(inflight_cap_bytes=wanted)
    answer = situation.predictor.of(proposed)
    if answer is not None and answer.duration_ms is not None:
        duration = answer.duration_ms
    limit_ms = 2.0 * load.write_budget_ms if load.write_budget_ms is not None else None
    if limit_ms is not None and duration.value > limit_ms:
        return _silence(
            f"{carried} is too much, but with a cap of {say.size(wanted)} a subtask checkpoints would wait"
            f" {say.duration(duration.value)} for their queues to drain, longer than interval and timeout allow: give"
            " the job more capacity"
        )
    method = (
        "a checkpoint waits like an aligned one until its in-flight data fits the cap;"
        f" {say.percent(fit)} of the recorded ones would have fitted at once. A subtask never writes more than the"
        " cap. The interval reaches to twice the time that the rest of the queues takes to drain"
    )
    return _recommendation(
        situation,
        load,
        Setting(inflight_cap_bytes=current),
        proposed,
        headline=f"Cap in-flight data at {say.size(wanted)} a subtask",
        carried=carried,
        duration=duration,
        total=total,
        method=method,
        preconditions=(Precondition("unaligned checkpoints are on", True),),
        risks=(
            "a checkpoint that does not fit the cap waits for the queues to drain: if back-pressure grows, durations"
            " grow too and may reach the timeout",
            "with a cap far below the queued data, checkpoints behave like aligned ones",
        ),
    )


def _debloat(situation: Situation, load: _Load, carried: str) -> Recommendation | NoAdvice:
    if not situation.engine.has_buffer_debloating:
        return _silence(f"{carried} is too much, but {situation.engine_words} has no buffer debloating")
    queue_ms = _queue_ms(situation)
    if queue_ms is None:
        return _silence(f"{carried} is too much, but the rate at which queues drain is not known")
    target = int(_nice_bytes(queue_ms * load.share))
    if target < DEBLOAT_MIN_MS:
        return _silence(f"{carried} is too much, but a debloating target of {target} ms would leave buffers too small")
    total = Interval(load.total_bytes * load.share, load.total_bytes * load.share * 0.5, load.total_bytes)
    now = situation.duration_ms or 0.0
    method = (
        "queues shrink to the data that drains in the target time, over several checkpoints, and persisted data"
        " shrinks with them; the interval reaches from half of that to no effect"
    )
    return _recommendation(
        situation,
        load,
        Setting(),
        Setting(debloat_target_ms=target),
        headline=f"Size network buffers for {target} ms of data (buffer debloating)",
        carried=carried,
        duration=Interval(now * load.share, 0.0, now + 100.0),
        total=total,
        method=method,
        preconditions=(
            Precondition("records are smaller than the reduced buffers", None),
            Precondition("the inputs of each operator have similar rates", None),
        ),
        risks=(
            "throughput falls by a few per cent, and by more if buffers become smaller than a record",
            "buffer sizes adapt over several checkpoints: the first ones change little",
            _other_limit(situation),
            "Flink reports neither setting to its clients, so Barrierscope cannot see whether the change was made",
        ),
    )


def _other_limit(situation: Situation) -> str:
    """Return what limits the same data if debloating does not suit the job, if the version has such a setting."""
    if situation.engine.settings.floating_buffers is None:
        return f"{situation.engine_words} has no other limit: no cap in bytes, and the number of its buffers is fixed"
    return (
        f"{situation.engine.name} has no cap in bytes; if debloating does not suit the job, fewer buffers"
        " (taskmanager.network.memory.buffers-per-channel, floating-buffers-per-gate) limit the same data"
    )


def _recommendation(
    situation: Situation,
    load: _Load,
    current: Setting,
    proposed: Setting,
    *,
    headline: str,
    carried: str,
    duration: Interval,
    total: Interval,
    method: str,
    preconditions: tuple[Precondition, ...],
    risks: tuple[str, ...],
) -> Recommendation:
    changes = changes_of(situation.engine, current, proposed)
    why = []
    if load.write_ms is not None and load.write_budget_ms is not None and load.write_ms > load.write_budget_ms:
        why.append(f"writing it takes {say.duration(load.write_ms)}")
    is_spiral = load.is_restored_late and load.is_failing_often
    if load.is_restored_late:
        often = ", and the job fails again before it has completed a checkpoint" if is_spiral else ""
        why.append(f"a restore takes {say.duration(load.restore_ms or 0.0)} longer because of it{often}")
    if load.growth is not None:
        why.append(f"it grew {load.growth.words}")
    hopeless = spiral.hopeless(situation)
    more = () if hopeless is None else (f"it does not suffice: {hopeless}",)
    return Recommendation(
        topic=Topic.IN_FLIGHT,
        rules=("R-CAP-1", "R-REC-1") if is_spiral or load.growth is not None else ("R-CAP-1",),
        headline=headline,
        reason=f"{capitalised(carried)}: {say.listed(why)}.",
        current=current,
        proposed=proposed,
        changes=changes,
        expected=situation.predictor.expected(
            proposed,
            (
                Expected(Metric.PERSISTED, "bytes", load.total_bytes, total, method),
                Expected(Metric.DURATION, "ms", situation.duration_ms, duration, method, situation.is_cut_off),
            ),
        ),
        candidates=(),
        evidence=_rows(situation, load),
        confidence=Confidence.MEDIUM,
        confidence_reason=(
            f"{len(situation.recorded)} checkpoints; the queues after the change are modelled, not measured"
        ),
        preconditions=preconditions,
        risks=(*risks, *more),
        will_not_cure=will_not_cure(situation),
        withdrawn_if=(
            "persisted bytes fall below the limits for writing and restoring",
            "the vertex behind the queues gets more capacity",
        ),
        how_to=how_to(situation.engine, changes),
        checkpoint_ids=situation.ids,
    )


def _rows(situation: Situation, load: _Load) -> tuple[EvidenceRow, ...]:
    ids, since, until = situation.ids, situation.since, situation.until
    rows = [
        EvidenceRow(
            "in-flight data of a checkpoint, median",
            "persistedData",
            value=load.total_bytes,
            unit="bytes",
            checkpoint_ids=ids,
            values=tuple(r.persisted_bytes for r in situation.recorded),
        ),
        EvidenceRow(
            "in-flight data of one subtask, p95",
            "persistedData",
            value=load.subtask_bytes,
            unit="bytes",
            checkpoint_ids=ids,
        ),
    ]
    if load.growth is not None:
        rows.append(
            EvidenceRow(
                f"in-flight data of the newest restore; it grew {load.growth.words}",
                "persistedData",
                value=load.growth.restored_bytes[-1],
                unit="bytes",
                checkpoint_ids=load.growth.checkpoint_ids,
                values=load.growth.restored_bytes,
            )
        )
    if load.write_ms is not None:
        rows.append(
            EvidenceRow(
                "time to write it at the store's measured speed",
                "asyncDuration",
                Basis.RECONSTRUCTED,
                load.write_ms,
                "ms",
                checkpoint_ids=ids,
            )
        )
    if load.write_budget_ms is not None:
        rows.append(
            EvidenceRow(
                "time for writing: half of what interval and timeout leave",
                "interval",
                Basis.PREDICTED,
                load.write_budget_ms,
                "ms",
            )
        )
    if load.restore_ms is not None:
        rows.append(
            EvidenceRow(
                "additional restore time because of it",
                "numBytesInPerSecond",
                Basis.PREDICTED,
                load.restore_ms,
                "ms",
                since=since,
                until=until,
            )
        )
    return tuple(rows)


def _fit_ratio(situation: Situation, cap_bytes: float) -> float:
    most = [
        max((highest_of(rows.persisted_bytes) or 0.0 for rows in r.phases.values()), default=0.0)
        for r in situation.recorded
        if r.phases
    ]
    return sum(m <= cap_bytes for m in most) / len(most) if most else 0.0


def _queue_ms(situation: Situation) -> float | None:
    """Return the milliseconds that the longest queue takes to drain, or None if no rate is known."""
    return max(drain_times(situation), default=None)


def _wait_ms(situation: Situation, share: float) -> float:
    """Return the milliseconds that ``share`` of all queues takes to drain, if they drain one after the other."""
    return share * sum(drain_times(situation))


def _nice_bytes(value: float) -> int:
    """Return the largest of 1, 2, 5, 10, 20, 50 ... that is at most ``value``.

    Rounding keeps the advice the same when the measured values change a little.
    """
    step = 1
    while step * 10 <= value:
        step *= 10
    return max((step * f for f in (1, 2, 5) if step * f <= value), default=1)
