"""Tests of how uneven the queues of recorded checkpoints are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.advisor.choice.uneven_queues import Uneven
from backend.domain.advice import Mode

_TRAVELS_MS = [1_000.0] * 9 + [6_000.0] * 3
_MEAN_BYTES, _LIMIT_BYTES = 1_000.0, 2_000.0


def _of(travels_ms, mode=Mode.ALIGNED, *, persisted=None, is_failed=False, expired_ms=None):
    """Return how uneven checkpoints are; those whose barriers travelled for ``expired_ms`` expired."""
    rows = [
        SimpleNamespace(
            travel_ms=ms, persisted_bytes=size, is_failed=is_failed or ms == expired_ms, is_expired=ms == expired_ms
        )
        for ms, size in zip(travels_ms, persisted or [0.0] * len(travels_ms), strict=True)
    ]
    return Uneven.of(rows, mode)


def test_checkpoints_persist_as_unevenly_as_their_aligned_barriers_travelled():
    found = _of(_TRAVELS_MS)

    assert found.share_above(_LIMIT_BYTES, _MEAN_BYTES, 1e9) == pytest.approx(3 / 12)
    assert found.share_above(3 * _LIMIT_BYTES, _MEAN_BYTES, 1e9) == 0.0
    # A cap leaves none of them above the limit.
    assert found.share_above(_LIMIT_BYTES, _MEAN_BYTES, _LIMIT_BYTES) == 0.0


def test_a_queue_that_fills_is_not_uneven():
    fills = _of([100.0 * n for n in range(1, 8)] + [1_000.0, 950.0, 1_050.0, 1_000.0, 980.0, 1_020.0])

    assert fills.factors == pytest.approx([1.0] * 6, abs=0.06)
    # A queue that still fills at the end says nothing.
    assert not _of([100.0 * n for n in range(1, 13)]).factors.size


def test_aligned_checkpoints_that_expired_had_the_largest_queues_and_count():
    found = _of(_TRAVELS_MS, expired_ms=6_000.0)

    assert found.share_above(_LIMIT_BYTES, _MEAN_BYTES, 1e9) == pytest.approx(3 / 12)


def test_unaligned_checkpoints_that_expired_wrote_only_a_part_and_do_not_count():
    travels = [1_000.0] * 12 + [6_000.0] * 3
    found = _of(travels, Mode.UNALIGNED, persisted=travels, expired_ms=6_000.0)

    assert found.factors == pytest.approx([1.0] * 12)


def test_unaligned_checkpoints_say_themselves_how_uneven_they_are():
    found = _of([50.0] * 12, Mode.UNALIGNED, persisted=_TRAVELS_MS)

    assert found.share_above(_LIMIT_BYTES, _MEAN_BYTES, 1e9) == pytest.approx(3 / 12)


@pytest.mark.parametrize(
    "found",
    [
        _of(_TRAVELS_MS[4:]),
        _of(_TRAVELS_MS, is_failed=True),
        _of([None] * 12),
        _of([0.0] * 12),
        _of(_TRAVELS_MS, Mode.ALIGNED_WITH_TIMEOUT),
        _of(_TRAVELS_MS, None),
    ],
    ids=["few", "failed", "not known", "nothing queued", "a part of the queues", "mode not known"],
)
def test_without_comparable_checkpoints_nothing_is_said(found):
    assert found.share_above(_LIMIT_BYTES, 10 * _LIMIT_BYTES, 1e9) == 0.0
