"""Chooses the aligned timeout: the age at which an aligned checkpoint becomes unaligned (rules R-AT).

The age counts from the trigger. R-AT-1 gives the lower bound of the timeout, from the travel time of healthy barriers.
R-AT-2 gives the upper bound, from the checkpoint interval and the checkpoint timeout. R-AT-3 picks a value between the
bounds by replay. R-AT-4 applies if the lower bound is above the upper bound. R-AT-5 notes that the timeout counts from
the trigger, and not again at each exchange. R-AT-6 notes that a timeout of 0 makes every checkpoint unaligned. The
timeout counts from the trigger since Flink 1.14, and reaches a barrier in the output buffers of its sender since 1.16
(FLINK-27251). Before, only 0 makes a barrier overtake the data in front of it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.advisor.advice import EvidenceRow
from backend.advisor.losses import Loss, Losses
from backend.advisor.replay import Outcome, Recordings, Replay
from backend.advisor.situation import Situation
from backend.advisor.thresholds import (
    HEALTHY_TRAVEL_FACTOR,
    HEALTHY_TRAVEL_MIN_MS,
    INTERVAL_RATIO,
    LOSS_EVEN_RATIO,
    LOSS_GAIN_MIN_RATIO,
    TIMEOUT_MARGIN,
    WRITE_BYTES_PER_MS,
)
from backend.analysis.numbers.statistics import quantile
from backend.analysis.words import sentences as say
from backend.domain.verdict import Basis


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of useful timeouts in milliseconds; ``high_ms`` is None if no setting of the job bounds it."""

    low_ms: float
    high_ms: float | None
    healthy_count: int

    @property
    def is_crossed(self) -> bool:
        """Whether no rounded timeout satisfies both bounds (R-AT-4)."""
        return self.high_ms is not None and nice_ms(self.low_ms) > self.high_ms


@dataclass(frozen=True, slots=True)
class Choice:
    """The proposed timeout, the rules that led to it, and its replay.

    ``considered`` has the replays of all candidates. ``reasons`` are rows of evidence.
    """

    timeout_ms: int
    rules: tuple[str, ...]
    chosen: Replay
    considered: tuple[Replay, ...]
    reasons: tuple[EvidenceRow, ...]


def nice_ms(value: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 ... that is at least ``value``.

    Rounding keeps the advice the same when the measured values change a little.
    """
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def bounds(situation: Situation, overtaking_ms: float) -> Bounds:
    """Return the lower bound (R-AT-1) and the upper bound (R-AT-2) of the aligned timeout.

    ``overtaking_ms`` is the duration of an unaligned checkpoint (CM-4).
    """
    healthy = [r.travel_ms for r in situation.healthy if r.travel_ms is not None]
    travel = quantile(healthy, 0.99)
    low = HEALTHY_TRAVEL_FACTOR * max(HEALTHY_TRAVEL_MIN_MS if travel is None else travel, 1.0)
    config = situation.evidence.config
    limits: list[float] = []
    if config is not None and config.timeout_ms:
        limits.append(config.timeout_ms / TIMEOUT_MARGIN - overtaking_ms)
    if config is not None and config.interval_ms:
        limits.append(config.interval_ms * INTERVAL_RATIO)
    return Bounds(low, min(limits) if limits else None, len(healthy))


def choose(situation: Situation, recordings: Recordings) -> Choice | None:
    """Choose the aligned timeout with the lowest cost in the replay: delay plus time to write in-flight data.

    If the bounds cross, or if the engine has no aligned timeout that reaches every barrier, the choice is 0 (always
    unaligned), provided that every aligned checkpoint takes longer than the lower bound. Return None if the queues are
    not known, or if no timeout fits.
    """
    # The grid is a part of this one. At once, the replay of all its timeouts costs hardly more than that of one.
    recordings.prepare([0, *_grid(bounds(situation, 0.0))])
    at_once = recordings.replay(0)
    if at_once is None:
        return None
    limit = bounds(situation, at_once.duration_ms.value)
    is_constant = all(not o.is_natural or o.duration_ms.value > limit.low_ms for o in _aligned(recordings))
    if limit.is_crossed or not situation.engine.has_aligned_timeout:
        return _at_once(situation, at_once, limit) if is_constant else None
    grid = _grid(limit)
    replays = [r for t in grid if (r := recordings.replay(t)) is not None]
    if not replays:
        return None
    best = min(replays, key=lambda r: (_cost(situation, r), r.aligned_timeout_ms or 0))
    depth = _depth(situation)
    rules = ["R-AT-1", "R-AT-2", "R-AT-3", *(["R-AT-5"] if depth > 1 else [])]
    reasons = [*_bound_rows(situation, limit), _choice_row(situation, best, replays)]
    if depth > 1:
        reasons.append(_age_row(depth))
    return Choice(best.aligned_timeout_ms or 0, tuple(rules), best, (at_once, *replays), tuple(reasons))


def choose_by_loss(situation: Situation, recordings: Recordings, losses: Losses) -> tuple[Choice, Loss] | None:
    """Choose the aligned timeout, together with the interval, with the least loss (R-INT-1).

    A timeout within the bounds of R-AT-1 and R-AT-2 is preferred to 0 if it loses hardly more, and so is the present
    interval. Return None if no choice saves enough, compared with the best interval of the present mode.
    """
    at_once = recordings.replay(0)
    if at_once is None:
        return None
    limit, now = bounds(situation, at_once.duration_ms.value), losses.now
    is_bounded = limit.is_crossed or not situation.engine.has_aligned_timeout
    grid = [] if is_bounded else _grid(limit)
    recordings.prepare(grid)
    choices = [x for t in (0, *grid) if (x := losses.best(t)) and x.keeps_bounds(now)]
    if not choices:
        return None
    best = min(choices, key=lambda x: x.ratio.value)
    even = (1 + LOSS_EVEN_RATIO) * best.ratio.value
    best = next((x for x in choices if x.aligned_timeout_ms and x.ratio.value <= even), best)
    same = losses.of(best.aligned_timeout_ms, now.interval_ms)
    if same and same.keeps_bounds(now) and same.ratio.value <= (1 + LOSS_GAIN_MIN_RATIO) * best.ratio.value:
        best = same
    # The present timeout is simulated as if it reached every barrier.
    is_simulated = situation.engine.has_aligned_timeout or not situation.aligned_timeout_ms
    stays = losses.best(situation.aligned_timeout_ms) if is_simulated else None
    baseline = now if stays is None or not stays.keeps_bounds(now) else stays
    if not best.is_worth(baseline) or not best.is_worth(now):
        return None
    chosen = at_once if not best.aligned_timeout_ms else recordings.replay(best.aligned_timeout_ms)
    if chosen is None:
        return None
    rows = [*_bound_rows(situation, limit), *([] if best.aligned_timeout_ms else [_always_row()])]
    rules = ("R-INT-1", "R-INT-2", "R-AT-3", *(() if best.aligned_timeout_ms else ("R-AT-6",)))
    considered = (at_once,) if chosen is at_once else (at_once, chosen)
    return Choice(best.aligned_timeout_ms or 0, rules, chosen, considered, tuple(rows)), best


def healthy_but_unaligned(situation: Situation) -> tuple[int, tuple[int, ...]] | None:
    """Check whether the aligned timeout is so short that healthy checkpoints persist data (R-AT-1 violated).

    Return the timeout that is needed, and the ids of the healthy checkpoints that persisted data. Return None if the
    timeout is long enough, if too few healthy checkpoints persisted data, or if the bounds cross.
    """
    timeout_ms, healthy = situation.aligned_timeout_ms, situation.healthy
    if not timeout_ms or len(healthy) < 5 or not situation.engine.has_aligned_timeout:
        return None
    switched = [r for r in healthy if r.persisted_bytes]
    # In checkpoints that became unaligned, barriers travelled faster than aligned ones would. So this limit is only a
    # lower bound of the timeout that is needed.
    limit = bounds(situation, 0.0)
    if len(switched) * 5 < len(healthy) or limit.low_ms <= timeout_ms or limit.is_crossed:
        return None
    return nice_ms(limit.low_ms), tuple(r.id for r in switched)


def _aligned(recordings: Recordings) -> tuple[Outcome, ...]:
    natural = recordings.replay(None)
    return natural.outcomes if natural is not None else ()


def _at_once(situation: Situation, at_once: Replay, limit: Bounds) -> Choice:
    if limit.is_crossed:
        text = (
            f"no timeout fits: healthy barriers need {say.duration(limit.low_ms)}, interval and checkpoint timeout"
            f" leave {say.duration(max(0.0, limit.high_ms or 0.0))}; 0 because back-pressure is constant"
        )
        row = EvidenceRow(text, "alignedCheckpointTimeout", Basis.PREDICTED, 0.0, "ms", checkpoint_ids=situation.ids)
        return Choice(0, ("R-AT-4", "R-AT-6"), at_once, (at_once,), (row, _always_row()))
    text = f"{situation.engine_words} has no aligned timeout"
    if situation.engine.aligned_timeout_stops_at_senders:
        text = (
            f"in {situation.engine_words}, an aligned timeout does not reach a barrier that waits in the output buffers"
            " of its sender (FLINK-27251, mended in 1.16): only 0 lets it overtake"
        )
    row = EvidenceRow(text, "alignedCheckpointTimeout")
    return Choice(0, ("R-AT-6",), at_once, (at_once,), (row, _always_row()))


def _grid(limit: Bounds) -> list[int]:
    low = nice_ms(limit.low_ms)
    high = limit.high_ms if limit.high_ms is not None else 100.0 * low
    grid = [low]
    while nice_ms(grid[-1] + 1) <= high:
        grid.append(nice_ms(grid[-1] + 1))
    return grid


def _cost(situation: Situation, r: Replay) -> float:
    """Return the cost of a candidate: milliseconds of delay plus milliseconds to write the persisted bytes."""
    return r.duration_ms.value + r.persisted_bytes.value / (situation.store_bytes_per_ms or WRITE_BYTES_PER_MS)


def _depth(situation: Situation) -> int:
    """Return the largest number of exchanges between a source and a vertex."""
    topology = situation.evidence.topology
    depth: dict[str, int] = {}
    for vertex in topology.vertices:
        depth[vertex.id] = max((depth[u] + 1 for u in topology.upstream(vertex.id) if u in depth), default=0)
    return max(depth.values(), default=0)


def _bound_rows(situation: Situation, limit: Bounds) -> list[EvidenceRow]:
    if limit.healthy_count:
        low = f"1.5 times the barriers' travel time without back-pressure (p99 of {limit.healthy_count} checkpoints)"
    else:
        low = "1.5 times 100 ms, because no checkpoint without back-pressure was recorded"
    rows = [EvidenceRow(f"lower bound, {low}", "alignedCheckpointTimeout", Basis.PREDICTED, limit.low_ms, "ms")]
    if limit.high_ms is not None:
        text = "upper bound, half of the interval, and half of the checkpoint timeout less the rest of the work"
        rows.append(EvidenceRow(text, "alignedCheckpointTimeout", Basis.PREDICTED, limit.high_ms, "ms"))
    return rows


def _choice_row(situation: Situation, best: Replay, replays: list[Replay]) -> EvidenceRow:
    count = len(situation.recorded)
    text = (
        f"least delay and writing of {len(replays)} values between the bounds, replayed on the last {count} checkpoints"
    )
    return EvidenceRow(
        text,
        "alignedCheckpointTimeout",
        Basis.PREDICTED,
        float(best.aligned_timeout_ms or 0),
        "ms",
        checkpoint_ids=situation.ids,
    )


def _age_row(depth: int) -> EvidenceRow:
    text = f"the timeout counts from the trigger, not at each of the {depth} exchanges"
    return EvidenceRow(text, "exchanges", Basis.MEASURED, float(depth), "count")


def _always_row() -> EvidenceRow:
    return EvidenceRow("0 means that every checkpoint is unaligned from its trigger on", "alignedCheckpointTimeout")
