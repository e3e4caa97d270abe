"""Tests of which days are stored, and of the names of their partitions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store.schema.partitions import Retention, day_of, day_of_partition, partition_name
from backend.store.schema.tables import PARTITIONED

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TODAY = date(2026, 11, 21)
_SECOND = timedelta(seconds=1)


def test_stored_days_are_from_the_retention_limit_to_tomorrow_inclusive():
    kept = Retention(max_age=timedelta(days=7))

    assert kept.accepts(_NOW - timedelta(days=7), _NOW)
    assert not kept.accepts(_NOW - timedelta(days=7) - _SECOND, _NOW)
    assert kept.accepts(_NOW + timedelta(days=1), _NOW)
    assert not kept.accepts(_NOW + timedelta(days=1) + _SECOND, _NOW)


def test_a_day_is_the_utc_day_in_any_time_zone():
    east = timezone(timedelta(hours=9))
    assert day_of(datetime(2026, 11, 22, 3, 0, tzinfo=east)) == _TODAY


@given(st.sampled_from(PARTITIONED), st.dates(date(1970, 1, 1), date(9999, 12, 30)))
def test_the_name_of_a_partition_gives_its_day(table, day):
    assert day_of_partition(partition_name(table, day)) == day


@pytest.mark.parametrize("name", ["runs", "checkpoints", "o_p20261121", "checkpoints_p2026112", "pressure_p20261121x"])
def test_names_of_other_tables_are_not_partitions(name):
    assert day_of_partition(name) is None
