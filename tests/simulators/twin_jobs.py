"""Jobs of known parameters on the live runtime, whose evidence the twin's model is built from without knowing them.

A job runs in virtual time behind its REST API, a collector polls it, and the model is built from what the collector
read. Then the job runs again with the changed settings, and its checkpoints are compared with the prediction.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.outcomes import Outcome
from backend.advisor.twin.tiers.calibration import calibrated
from backend.advisor.twin.tiers.predicting import predict
from backend.domain.advice import Mode
from backend.domain.engines import RUNTIME
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job import config as settings
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from tests.support.chained_jobs import UNALIGNED, chain, hashed, loaded, settings_of
from tests.support.twin_evidence import runtime_evidence

RUN_S = 60.0
_WARM_UP_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the completed checkpoints after the warm-up, and the records per second of the sources."""

    duration_ms: float
    persisted_bytes: float
    records_per_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A prediction for a job with another mode, and what its run with this mode measured."""

    name: str
    mode: Mode
    outcome: Outcome
    measured: Measured

    def __str__(self) -> str:
        rows = []
        for measure in ("duration_ms", "persisted_bytes", "records_per_s"):
            found, real = getattr(self.outcome, measure), getattr(self.measured, measure)
            rows.append(f"{measure} {found.value:.4g} [{found.low:.4g} to {found.high:.4g}], measured {real:.4g}")
        return f"{self.name} -> {self.mode.value}: " + "; ".join(rows)


def drawn_job(seed: int, *, is_unaligned: bool) -> JobSpec:
    """Return a random job: one to three stages, of which one is slow, skewed or has a straggler."""
    rnd = random.Random(f"twin/{seed}")
    stages, parallelism = rnd.randint(1, 3), rnd.randint(2, 4)
    common = {"parallelism": parallelism, "record_bytes": rnd.choice([1000, 2000, 4000]), "cost_us": 100}
    names = [f"stage-{n}" for n in range(1, stages + 1)]
    vertices = chain(names, common, {"cost_us": 50, "keys": 2000}, kind="map")
    slow = vertices[rnd.randint(1, stages)]
    slow["cost_us"] = rnd.choice([5_000, 10_000])
    match rnd.choice(["capacity", "straggler", "skew"]):
        case "straggler":
            slow["slow_subtasks"] = {"0": 3.0}
        case "skew":
            vertices[0]["hot_key_ratio"] = 0.2
        case _:
            pass
    edges = hashed(pairwise(["source", *names]))
    for edge in edges:
        edge["hash_by"] = "key" if edge["to"] == slow["id"] else "origin"
    config = settings_of("4 s") | {UNALIGNED: is_unaligned}
    return loaded(vertices, config, seed=seed, name=f"twin-{seed}", edges=edges)


def compared(spec: JobSpec, *, run_s: float = RUN_S, seeds: tuple[int, ...] = (1, 2)) -> Compared:
    """Calibrate on a job as it is, predict the other mode, and run the job in the other mode."""
    other = Mode.ALIGNED if spec.config.is_unaligned else Mode.UNALIGNED
    evidence = runtime_evidence(spec, run_s=run_s)
    model = calibrated(evidence, engine=RUNTIME, version="0.0.0")
    outcome = predict(model, WhatIf(mode=other), seeds=seeds)
    changes = {UNALIGNED: "false" if other is Mode.ALIGNED else "true"}
    changed = replace(spec, config=settings.change(spec.config, changes))
    return Compared(spec.name, other, outcome, _measured(changed, run_s))


def drawn(count: int) -> Iterator[Compared]:
    """Yield the comparison of drawn jobs, in both directions in turn."""
    for seed in range(count):
        yield compared(drawn_job(seed, is_unaligned=bool(seed % 2)))


def _measured(spec: JobSpec, run_s: float) -> Measured:
    engine = JobEngine(spec, is_size_only=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    warm_us, end_us = int(run_s * _WARM_UP_SHARE * 1e6), int(run_s * 1e6)
    engine.run_until(warm_us)
    sources = [t for t in engine.tasks if t.spec.kind.is_source]
    before = sum(t.records_out for t in sources)
    engine.run_until(end_us)
    counted = [r for r in ended if r.state is CheckpointState.COMPLETED and r.triggered_at_us >= warm_us]
    return Measured(
        duration_ms=median((r.end_to_end_us or 0) / 1000 for r in counted),
        persisted_bytes=median(r.persisted_bytes for r in counted),
        records_per_s=(sum(t.records_out for t in sources) - before) * 1e6 / (end_us - warm_us),
    )
