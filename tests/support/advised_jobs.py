"""Handwritten jobs for tests of the advisor's rules. A test sets their queues, pressure and durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from backend.advisor import advise
from backend.advisor.advice import Advice, Expected, NoAdvice, Recommendation
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.engines import EngineCapabilities, flink
from backend.domain.pressure import VertexPressure
from tests.support.handwritten_jobs import (
    ALIGNED,
    LAST,
    MIDDLE,
    SOURCE,
    completed,
    detail,
    failed,
    held_back,
    job,
    reading,
)

FOUR = (0, 1, 2, 3)
EXACTLY_ONCE = replace(ALIGNED, mode="exactly_once", max_concurrent=1)
UNALIGNED = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=0)
DELAYS = {SOURCE: [5] * 4, MIDDLE: [1_500] * 4, LAST: [4_800] * 4}


def slow_run(count: int = 8, last_ms: int = 4_800, middle_ms: int = 1_500) -> list[Checkpoint]:
    """Build completed checkpoints whose barriers wait in the queues of both exchanges."""
    delays = {SOURCE: [5] * 4, MIDDLE: [middle_ms] * 4, LAST: [last_ms] * 4}
    return [held_back(n, delays) for n in range(1, count + 1)]


def expired_run(count: int = 8, after_ms: int = 3_000) -> list[Checkpoint]:
    """Build checkpoints that expire before the last vertex has received the barrier."""
    rows = (detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_500] * 4), detail(LAST, first=[None] * 4))
    return [failed(n, *rows, after_ms=after_ms) for n in range(1, count + 1)]


def writing(number: int, took_ms: int, *, every_s: float = 5.0) -> Checkpoint:
    """Build a checkpoint whose duration is the time in which all subtasks write."""
    vertices = (SOURCE, MIDDLE, LAST)
    return completed(number, *(detail(v, first=[2] * 4, async_=took_ms - 2) for v in vertices), every_s=every_s)


def persisting(checkpoint: Checkpoint, subtask_bytes: int, async_ms: int = 5) -> Checkpoint:
    """Return a copy of the checkpoint in which every subtask persisted ``subtask_bytes`` of in-flight data."""
    details = tuple(
        replace(
            d,
            persisted_bytes=(subtask_bytes,) * 4,
            checkpointed_size_bytes=(subtask_bytes,) * 4,
            async_duration_ms=(async_ms,) * 4,
            unaligned=(1,) * 4,
        )
        for d in checkpoint.details
    )
    total = subtask_bytes * 4 * len(details)
    header = replace(checkpoint.header, is_unaligned=True, persisted_bytes=total, checkpointed_size_bytes=total)
    return Checkpoint(header, details)


def readings(
    held: float = 1.0, queued_bytes: int = 400_000, *, busy: float = 1.0, rate_bytes_per_s: int = 250_000
) -> list[VertexPressure]:
    """Build five readings, two seconds apart.

    The source and the middle are backpressured, and the last vertex is busy.
    """
    found = []
    for n in range(5):
        at_s = 52 + 2 * n
        taken = rate_bytes_per_s * 2 * n
        for vertex, full, back, queue in (
            (SOURCE, 0.0, held, queued_bytes),
            (MIDDLE, 0.0, held, queued_bytes),
            (LAST, busy, 0.0, 0),
        ):
            one = reading(vertex, [full] * 4, [back] * 4, [500 * n] * 4, at_s=at_s)
            found.append(
                replace(
                    one,
                    observed_at=one.observed_at + timedelta(milliseconds=len(found)),
                    queued_out_bytes=(queue,) * 4,
                    queued_in_bytes=(0,) * 4,
                    bytes_in_count=(taken,) * 4,
                )
            )
    return found


def advised(
    checkpoints: Sequence[Checkpoint],
    pressure: Sequence[VertexPressure] | None = None,
    *,
    config: CheckpointConfig | None = EXACTLY_ONCE,
    engine: EngineCapabilities | None = None,
    version: str | None = "1.20.5",
    **more: object,
) -> Advice:
    """Return the advice for these checkpoints. The engine is Flink ``version`` unless ``engine`` is passed."""
    known = readings() if pressure is None else pressure
    evidence = job(checkpoints, known, config=config, **more)  # type: ignore[arg-type]
    return advise(evidence, engine=engine or flink(version), version=version)


def on(topic: Topic, advice: Advice) -> Recommendation | NoAdvice:
    """Return the recommendation on a topic, or the reason for giving none. The advice must have exactly one of them."""
    (answer,) = [a for a in (*advice.recommendations, *advice.silences) if a.topic is topic]
    return answer


def mode_of(advice: Advice) -> Recommendation | NoAdvice:
    """Return the recommendation on the checkpoint mode, or the reason for giving none."""
    return on(Topic.MODE, advice)


def in_flight_of(advice: Advice) -> Recommendation | NoAdvice:
    """Return the recommendation on in-flight data, or the reason for giving none."""
    return on(Topic.IN_FLIGHT, advice)


def with_timeout(ms: int) -> CheckpointConfig:
    """Return settings with unaligned checkpoints enabled and this aligned timeout in milliseconds."""
    return replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=ms)


def recommended(advice: Advice) -> Recommendation:
    """Return the recommendation on the checkpoint mode. Fail the test if the advice contains no such recommendation."""
    found = mode_of(advice)
    assert isinstance(found, Recommendation), found
    return found


def silent(advice: Advice, rule: str) -> NoAdvice:
    """Return the reason why no checkpoint mode is recommended. Fail the test unless ``rule`` gave this reason."""
    found = mode_of(advice)
    assert isinstance(found, NoAdvice), found
    assert found.rule == rule, found
    return found


def expected(advice: Recommendation, metric: Metric) -> Expected:
    """Return the value that a recommendation predicts for a metric."""
    return next(e for e in advice.expected if e.metric is metric)
