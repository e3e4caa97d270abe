"""Tests of the conversion between rows and values: each field has the name of its column."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest
from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

from backend.domain.checkpoint import Checkpoint
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.schema import tables
from backend.store.schema.rows import row_of, value_of, values_of
from tests.support.observations import NOW, failed


class _Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class _Part:
    colour: _Colour | None
    note: str | None


@dataclass(frozen=True)
class _Whole:
    id: str
    part: _Part
    size_bytes: int | None = None
    subtask_count: int = 0


_TABLE = Table(
    "wholes",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("colour", Text),
    Column("note", Text),
    Column("size_bytes", BigInteger),
    Column("subtask_count", Integer, nullable=False),
)


def test_a_row_becomes_a_value_with_nested_values():
    row = {"id": "a", "colour": "red", "note": None, "size_bytes": 5, "subtask_count": 2, "unknown": 1}

    assert value_of(_Whole, row) == _Whole("a", _Part(_Colour.RED, None), 5, 2)
    assert value_of(_Part, {"colour": None, "note": "n"}) == _Part(None, "n")


def test_many_rows_become_values_as_each_row_alone():
    names = ("note", "unknown", "size_bytes", "id", "colour", "subtask_count")
    rows = [(None, 1, 5, "a", "red", 2), ("n", 2, None, "b", None, 0)]

    found = values_of(_Whole, names, rows)

    assert found == [value_of(_Whole, dict(zip(names, row, strict=True))) for row in rows]
    assert found[0].part.colour is _Colour.RED
    assert values_of(_Whole, names, []) == []


@pytest.mark.parametrize(
    ("names", "row", "error"),
    [(("colour",), ("red",), KeyError), (("colour", "note"), ("blue", None), ValueError)],
    ids=["no column", "no member"],
)
def test_many_rows_are_refused_as_one_row_is(names, row, error):
    with pytest.raises(error):
        values_of(_Part, names, [row])
    with pytest.raises(error):
        value_of(_Part, dict(zip(names, row, strict=True)))


def test_a_field_passed_directly_needs_no_column():
    assert value_of(_Part, {"colour": "red"}, note="given") == _Part(_Colour.RED, "given")


def test_a_field_without_a_column_or_a_given_value_is_an_error():
    with pytest.raises(KeyError, match="note"):
        value_of(_Part, {"colour": "red"})


def test_a_value_becomes_columns_named_like_its_fields():
    assert row_of(_TABLE, _Part(_Colour.RED, "a\0b")) == {"colour": "red", "note": "a\ufffdb"}
    assert row_of(_TABLE, _Part(None, None), note="given") == {"colour": None, "note": "given"}


@pytest.mark.parametrize(("size_bytes", "stored"), [(2**63 - 1, 2**63 - 1), (2**63, None), (None, None)])
def test_a_number_that_does_not_fit_its_column_is_missing(size_bytes, stored):
    assert row_of(_TABLE, _Whole("a", _Part(None, None), size_bytes))["size_bytes"] == stored


def test_a_count_that_does_not_fit_its_column_is_capped():
    assert row_of(_TABLE, _Whole("a", _Part(None, None), None, 2**40))["subtask_count"] == 2**31 - 1


def test_a_checkpoint_is_read_back_from_its_row():
    header = Checkpoint(failed(2).header).header
    own = {"job_id": "j", "run_id": "r", "triggered_on": NOW.date(), "observed_at": NOW}
    maxima = dict.fromkeys(("start_delay_max_ms", "alignment_max_ms", "sync_max_ms", "async_max_ms"), 7)

    record = value_of(CheckpointRecord, row_of(tables.checkpoints, header, **own, **maxima))

    assert record.header == header
    assert (record.run_id, record.observed_at, record.sync_max_ms) == ("r", NOW, 7)
