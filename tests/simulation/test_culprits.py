"""Goal: the verdict names the drawn cause of a job, at its place, and accuses nothing in a healthy job.

Method: a job of the reference runtime is drawn with a known cause, runs in virtual time and is polled like a live
target. These few jobs are the everyday part; ``make culprits`` draws more. To replay one job:
python -m tests.simulators.culprits --replay commit/102
"""

from __future__ import annotations

import pytest

from tests.simulators.culprits import judged, report

_NAMES = (
    # Once called a lack of capacity: the commit holds the sink all the time.
    "commit/102",
    # Once called a lack of capacity: readings are too far apart to show that the vertex stands still.
    "callback/100/intermittent",
    "capacity/100",
    "healthy/1000",
)


@pytest.mark.anyio
@pytest.mark.parametrize("name", _NAMES)
async def test_the_verdict_names_the_drawn_cause(name):
    found = await judged(name)

    assert found.is_first_right, found.diagnosis.verdict.sentence
    assert found.is_health_right, found.diagnosis.health
    assert report([found])
