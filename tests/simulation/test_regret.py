"""Goal: the settings that the twin chooses for a job that it only observed are hardly worse than the best ones.

Method: a drawn job of the reference runtime is polled like a live target, and every chooser chooses settings. Then all
settings of a small grid run with other records. ``make eval`` has all settings and more jobs. To see one job:
python -m tests.simulators.regret --replay skew/0
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from tests.simulators.regret import judged
from tests.simulators.regret_jobs import Choice, Drawn


def few(job: Drawn) -> Sequence[Choice]:
    """Return six settings: two modes, one of them capped, at two intervals."""
    modes = ((None, None), (0, None), (0, 131_072))
    return [Choice(i, t, c) for i, (t, c) in product((job.interval_ms, 2 * job.interval_ms), modes)]


@pytest.mark.parametrize("name", ["skew/0", "bursts/1"])
def test_the_twin_chooses_settings_that_lose_little_and_break_no_bound(name: str):
    found = judged(name, run_s=80.0, grid=few)

    twin = found.chosen["twin"]
    assert not twin.is_broken, twin
    assert twin.regret <= 0.08, (twin, found.best)
    assert found.chosen["twin, 3 tried"].regret <= 0.08
    assert found.best_loss <= min(c.loss for c in found.chosen.values() if not c.is_broken)


def test_the_defaults_break_a_bound_of_a_job_whose_aligned_checkpoints_expire():
    found = judged("skew/0", run_s=80.0, grid=few)

    assert found.chosen["as it is"].is_broken
    assert found.chosen["as it is"].expired >= 0.5
    assert found.chosen["always unaligned"].expired == 0.0
