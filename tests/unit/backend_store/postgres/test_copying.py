"""Tests that arrays are packed into the same bytes that PostgreSQL's driver sends."""

from __future__ import annotations

import struct

import psycopg
import pytest
from psycopg.types.numeric import Float4, Int2, Int4, Int8

from backend.store.postgres.copying import _ARRAY_DUMPERS


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [None, -1], [None], [0] * 40], ids=str)
@pytest.mark.parametrize("number", range(4), ids=("int2", "int4", "int8", "float4"))
def test_arrays_are_packed_into_the_same_bytes_as_by_the_driver(number, values):
    dumper, wrap = _ARRAY_DUMPERS[number], (Int2, Int4, Int8, Float4)[number]
    theirs = psycopg.adapt.Transformer()
    wrapped = [None if v is None else wrap(v) for v in values]
    if wrapped == [None]:
        # The driver cannot infer a type if every value is missing, so the expected bytes are written by hand.
        expected = struct.pack(">iiIiii", 1, 1, dumper.element_oid, 1, 1, -1)
    else:
        expected = theirs.get_dumper(wrapped, psycopg.adapt.PyFormat.BINARY).dump(wrapped)

    assert bytes(dumper(list).dump(values)) == bytes(expected)
