"""Goal: a checkpoint that took many times as long as its neighbours is explained by what was different in it.

Method: in a job of the reference runtime, one checkpoint in ten is struck by a known mechanism. These few jobs are the
everyday part; ``python -m tests.simulators.outliers`` draws more.
"""

from __future__ import annotations

import pytest

from tests.simulators.outliers import judged, report


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["sync/0", "store/0"])
async def test_the_struck_checkpoints_are_explained_and_the_others_are_not_called_different(name):
    found, wrong_count = await judged(name)

    assert len(found) == 2
    assert all(o.is_compared and o.is_place_right and o.is_mechanism_right for o in found), report(found, wrong_count)
    assert wrong_count == 0
