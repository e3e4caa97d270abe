"""Retention drops the oldest days, and no more than needed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from backend.store.retention import days_to_drop
from backend.store.schema.partitions import PartitionSize, Retention, partition_name

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TODAY = date(2026, 11, 21)


def _partitions(sizes):
    return [PartitionSize(partition_name("checkpoints", d), d, s) for d, s in sizes.items()]


@given(
    st.dictionaries(st.integers(-30, 2), st.integers(0, 100), max_size=12),
    st.integers(0, 500),
    st.integers(0, 20),
)
def test_dropped_days_are_the_oldest_and_no_more_than_needed(sizes_by_age, max_size, max_days):
    sizes = {_TODAY + timedelta(days=n): size for n, size in sizes_by_age.items()}
    kept = Retention(max_age=timedelta(days=max_days), max_size_bytes=max_size)

    dropped = days_to_drop(_partitions(sizes), kept, _NOW)

    left = {d: s for d, s in sizes.items() if d not in dropped}
    assert dropped == sorted(sizes)[: len(dropped)]
    assert all(d < _TODAY for d in dropped)
    assert not [d for d in left if d < kept.oldest_day(_NOW)]
    # The remaining days fit into the limit, or cannot be dropped.
    assert sum(left.values()) <= max_size or all(d >= _TODAY for d in left)
    # The newest dropped day was too old, or the remaining days would not have fitted with it.
    if dropped:
        assert dropped[-1] < kept.oldest_day(_NOW) or sum(left.values()) + sizes[dropped[-1]] > max_size
