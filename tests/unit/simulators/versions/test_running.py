"""The batches of ``make test-versions``."""

from __future__ import annotations

from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.running import SLOTS_AT_ONCE, batches


def test_batches_have_all_jobs_in_their_order_and_fit_the_slots():
    found = list(batches(JOBS))

    assert [job for batch in found for job in batch] == list(JOBS)
    assert all(sum(job.slots for job in batch) <= SLOTS_AT_ONCE for batch in found)
