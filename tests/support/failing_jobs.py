"""Jobs whose failures are known, as a target tells them: settings can be chosen for these."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.observation import JobObservation
from tests.support.observations import job

FAILURES = 5
_EVERY = timedelta(minutes=20)


def failing_job(found: JobEvidence, *, name: str = "orders", run: str = "a" * 32) -> JobObservation:
    """Return what a target tells of the job with this evidence. It failed every 20 minutes."""
    times = [found.now - _EVERY * n for n in range(FAILURES, 0, -1)]
    return replace(
        job(found.checkpoints, name=name, run=run),
        topology=found.topology,
        placements=found.placements,
        config=found.config,
        counts=None,
        pressure=found.pressure,
        started_at=found.now - timedelta(hours=9),
        exceptions=tuple((at, f"lost host {at}") for at in times),
        restart_count=FAILURES,
    )
