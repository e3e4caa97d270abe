"""``diagnose`` on short recordings of real Flink clusters of every version from 1.13 on, with Flink's defaults.

``make test-versions`` records them, and knows what each job was built to do.
"""

from __future__ import annotations

import gzip

import pytest

from backend.advisor.advice import Advice
from collectors import diagnose
from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.judging import Outcome, judged
from tests.simulators.versions.watching import documents
from tests.support.recorded_versions import FOLDER, diagnosed, recorded

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


@pytest.mark.parametrize("version", sorted({version for version, _ in recorded()}))
def test_a_recording_is_small_and_has_no_folder_of_the_machine_that_made_it(version: str) -> None:
    content = (FOLDER / version / "rest.jsonl.gz").read_bytes()

    assert len(content) < 300_000
    assert b"barrierscope-flink-" not in gzip.decompress(content)
