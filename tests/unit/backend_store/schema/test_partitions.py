"""Which days are kept, and how their partitions are called."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store.retention import days_to_drop
from backend.store.schema.partitions import PartitionSize, Retention, day_of, day_of_partition, partition_name
from backend.store.schema.tables import PARTITIONED

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TODAY = date(2026, 11, 21)
_SECOND = timedelta(seconds=1)


def _partitions(sizes):
    return [PartitionSize(partition_name("checkpoints", d), d, s) for d, s in sizes.items()]


def test_what_is_stored_lies_between_retention_and_tomorrow_and_both_ends_count():
    kept = Retention(max_age=timedelta(days=7))

    assert kept.accepts(_NOW - timedelta(days=7), _NOW)
    assert not kept.accepts(_NOW - timedelta(days=7) - _SECOND, _NOW)
    assert kept.accepts(_NOW + timedelta(days=1), _NOW)
    assert not kept.accepts(_NOW + timedelta(days=1) + _SECOND, _NOW)


def test_a_day_is_the_utc_day_wherever_the_instant_was_read():
    east = timezone(timedelta(hours=9))
    assert day_of(datetime(2026, 11, 22, 3, 0, tzinfo=east)) == _TODAY


@given(st.sampled_from(PARTITIONED), st.dates(date(1970, 1, 1), date(9999, 12, 30)))
def test_a_partitions_name_tells_its_day(table, day):
    assert day_of_partition(partition_name(table, day)) == day


@pytest.mark.parametrize("name", ["runs", "checkpoints", "o_p20261121", "checkpoints_p2026112", "pressure_p20261121x"])
def test_other_tables_are_no_partitions(name):
    assert day_of_partition(name) is None


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
    # The rest fits, or cannot be dropped.
    assert sum(left.values()) <= max_size or all(d >= _TODAY for d in left)
    # The last one had to go: it was too old, or without it the rest would not have fitted.
    if dropped:
        assert dropped[-1] < kept.oldest_day(_NOW) or sum(left.values()) + sizes[dropped[-1]] > max_size
