"""The jobs that the recorded proofs drew stay the same jobs: a seed gives the same document as when it was recorded."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from tests.simulators import culprits, early_warning_jobs, outliers, regret_jobs, twin_jobs
from tests.support import chained_jobs, drawn_jobs

SEEDS = range(20)


def _culprits() -> Iterator[object]:
    for kind in culprits.KINDS:
        for seed in SEEDS:
            yield culprits.drawn(f"{kind}/{seed}").spec()
            yield culprits.drawn(f"{kind}/{seed}/intermittent").spec()


def _early_warning() -> Iterator[object]:
    return (early_warning_jobs.drawn(f"{kind}/{seed}").spec() for kind in early_warning_jobs.KINDS for seed in SEEDS)


def _regret() -> Iterator[object]:
    for kind in regret_jobs.KINDS:
        for seed in SEEDS:
            job = regret_jobs.Drawn.of(f"{kind}/{seed}")
            yield job.spec(job.grid()[seed % len(job.grid())].config(), seed=seed)


def _twin() -> Iterator[object]:
    return (twin_jobs.drawn_job(seed, is_unaligned=bool(seed % 2)) for seed in SEEDS)


def _verdict() -> Iterator[object]:
    return (draw(random.Random(seed)) for draw in drawn_jobs.CAUSES.values() for seed in SEEDS)


def _outliers() -> Iterator[object]:
    for kind, add in outliers.KINDS.items():
        for seed in SEEDS:
            job = outliers.Draft(random.Random(f"{kind}/{seed}"))
            add(job)
            yield job.spec()


@pytest.mark.parametrize(
    ("draw", "digest"),
    [
        (_culprits, "18c58c7fba195b3e"),
        (_early_warning, "9b0888f961ebc6b2"),
        (_regret, "836443778a6027e2"),
        (_twin, "964be251d0b58614"),
        (_verdict, "713001a0ed4480ae"),
        (_outliers, "26f65b456b788769"),
    ],
)
def test_a_seed_draws_the_same_job_as_when_its_proof_was_recorded(
    draw: Callable[[], Iterator[object]], digest: str, monkeypatch: pytest.MonkeyPatch
):
    documents: list[dict[str, Any]] = []

    def load(document: dict[str, Any]) -> JobSpec:
        documents.append(document)
        return load_job_document(document)

    monkeypatch.setattr(chained_jobs, "load_job_document", load)

    drawn = sum(1 for _ in draw())

    assert len(documents) == drawn
    assert hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:16] == digest
