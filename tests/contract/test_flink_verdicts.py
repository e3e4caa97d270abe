"""``diagnose`` on short recordings of real Flink clusters of every version from 1.13 on, with Flink's defaults.

``make test-versions`` records them, and knows what each job was built to do.
"""

from __future__ import annotations

import pytest

from backend.advisor.advice import Advice
from collectors import diagnose
from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.judging import Outcome, judged
from tests.simulators.versions.watching import documents
from tests.support.recorded_versions import diagnosed, recorded

BUILT = {job.name: job for job in JOBS}


@pytest.fixture(autouse=True)
def without_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice has tests of its own, and takes most of the time."""
    monkeypatch.setattr(diagnose, "advise", lambda *_, **__: Advice((), (), considered_count=0))


@pytest.mark.anyio
@pytest.mark.parametrize(("version", "name"), list(recorded()))
async def test_the_verdict_names_what_the_job_was_built_with(version: str, name: str, anyio_backend: str) -> None:
    answer = await diagnosed(version, name)
    printed = documents(answer)

    found = judged(BUILT[name], printed[0] if printed else None)

    assert answer.problems == ()
    assert found.outcome is Outcome.RIGHT, f"{found.why}: {found.sentence}"
