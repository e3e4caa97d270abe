"""The job for which settings are chosen.

The process that distributes the tests reads this file too, so it imports nothing of the product.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

_JOB = "light/1"
_FAILURES = 5


@pytest.fixture(scope="module")
def evidence():
    """A job whose checkpoints complete. It fails every 20 minutes."""
    from tests.simulators.regret_jobs import Drawn
    from tests.support.twin_evidence import runtime_evidence

    job = Drawn.of(_JOB)
    found = runtime_evidence(job.spec(job.now.config(), seed=1), run_s=120, every_s=5)
    times = [found.now - timedelta(minutes=20 * n) for n in range(_FAILURES, 0, -1)]
    done = tuple(c for c in found.checkpoints if c.header.status.is_terminal)
    return replace(found, checkpoints=done, exceptions=tuple((at, "a lost host") for at in times))


@pytest.fixture(scope="module")
def known(evidence):
    from backend.advisor.situation import situation
    from backend.domain.engines import RUNTIME

    return situation(evidence, engine=RUNTIME, version="0.0.0")
