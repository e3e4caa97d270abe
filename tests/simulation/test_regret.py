"""Goal: the settings that advisor and twin choose for a job that they only observed are nearly the best ones.

Method: a drawn job of the reference runtime is polled like a live target, and every chooser chooses settings. Then all
settings of a small grid run with other records. ``make eval`` has all settings and more jobs. To see one job:
python -m tests.simulators.regret --replay skew/0
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tests.simulators.regret import judged
from tests.simulators.regret_jobs import Choice, Drawn


def few(job: Drawn) -> Sequence[Choice]:
    """Return four settings: two modes at two intervals."""
    return [Choice(i, t) for i, t in product((job.interval_ms, 2 * job.interval_ms), (None, 0))]


def test_advisor_and_twin_cure_a_job_whose_aligned_checkpoints_expire():
    found = judged("skew/0", run_s=100.0, grid=few).chosen

    assert found["as it is"].is_broken
    assert found["as it is"].expired >= 0.5
    assert found["always unaligned"].expired == 0.0
    for who in ("advisor", "twin", "twin, 3 tried"):
        assert not found[who].is_broken, found[who]
        assert found[who].regret <= 0.08, found[who]
        assert found[who].loss < 0.9 * found["always unaligned"].loss


def test_advisor_and_twin_choose_nearly_the_best_settings_of_a_job_with_a_mechanism_that_they_do_not_know():
    judgement = judged("some_syncs/55", run_s=100.0, grid=few)

    twin = judgement.chosen["twin"]
    assert not twin.is_broken, twin
    assert 0.0 <= twin.regret <= 0.08, (twin, judgement.best)
    assert twin.loss < judgement.chosen["as it is"].loss
    # The advisor is not bound to the grid, and finds a longer interval that loses less.
    assert not judgement.chosen["advisor"].is_broken
    assert judgement.chosen["advisor"].regret <= 0.02
