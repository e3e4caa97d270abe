"""Compares the effects that advice predicts with a run of the same job and seed under the advised settings (AD-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.advisor import advise
from backend.advisor.advice import Advice, Expected, Recommendation
from backend.domain.advice import Metric, Topic
from backend.domain.engines import RUNTIME
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.simulate import simulate
from backend.runtime.job import config as settings
from tests.support.simulated_target import SimulatedTarget

MEASURED = (Metric.DURATION, Metric.PERSISTED, Metric.EXPIRED)


@dataclass(frozen=True, slots=True)
class Compared:
    """One prediction, and the value measured in the run with the advised settings."""

    job: str
    headline: str
    expected: Expected
    measured: float

    @property
    def is_inside(self) -> bool:
        """Whether the measured value is inside the predicted interval."""
        return self.expected.predicted.low <= self.measured <= self.expected.predicted.high

    def __str__(self) -> str:
        span = self.expected.predicted
        held = "inside" if self.is_inside else "OUTSIDE"
        numbers = f"{span.value:.5g} ({span.low:.5g} to {span.high:.5g}), measured {self.measured:.5g}"
        return f"{self.job}, {self.headline}: {self.expected.metric.value} {numbers}, {held}"


async def advice_of(spec: JobSpec, run_s: float) -> Advice:
    """Run the job for ``run_s`` seconds, and return the advice of ``diagnose``."""
    async with SimulatedTarget([spec]) as target:
        await target.sleep(run_s)
        (evidence,) = await target.evidence()
    return advise(evidence, engine=RUNTIME, version="0.0.0")


async def compared(spec: JobSpec, *, run_s: float, topic: Topic = Topic.MODE) -> list[Compared]:
    """Run the job again with the settings advised on ``topic``, and return each prediction with the measured value.

    The result is empty if there is no such advice.
    """
    advice = await advice_of(spec, run_s)
    found = [r for r in advice.recommendations if r.topic is topic]
    return [c for r in found for c in _applied(spec, r, run_s)]


def _applied(spec: JobSpec, advice: Recommendation, run_s: float) -> list[Compared]:
    changed = replace(spec, config=settings.change(spec.config, advice.how_to.patch, live=True))
    document = simulate(changed, duration_us=round(run_s * 1e6)).to_json()
    measured = _measured(document)
    return [
        Compared(spec.name, advice.headline, e, measured[e.metric])
        for e in advice.expected
        if measured.get(e.metric) is not None
    ]


def _measured(document: Mapping[str, Any]) -> dict[Metric, float]:
    counts, summary = document["counts"], document["summary"]
    duration_us, persisted = summary["end_to_end_us"]["median"], summary["persisted_bytes"]["median"]
    ended = counts["completed"] + counts["failed"]
    found = {Metric.EXPIRED: counts["failed"] / ended} if ended else {}
    if duration_us is not None:
        found |= {Metric.DURATION: duration_us / 1000, Metric.PERSISTED: float(persisted)}
    return found
