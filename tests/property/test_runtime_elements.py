"""The wire format, key groups and routing of the runtime work for any records, buffer boundaries and parallelisms."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.runtime.core.elements import HEADER, Element, Record, Watermark, WatermarkStatus, decode
from backend.runtime.core.hashing import groups_of, key_group, murmur3_32, owner_of_group
from backend.runtime.job.graph import EdgeSpec, Partitioner
from backend.runtime.network.routes import route

_WORD = st.integers(-(2**63), 2**63 - 1)
_records = st.builds(
    Record, key=_WORD, origin=_WORD, event_time_us=_WORD, value=_WORD, size_bytes=st.integers(HEADER.size, 3000)
)
_elements = st.one_of(_records, st.builds(Watermark, _WORD), st.builds(WatermarkStatus, st.booleans()))


@given(st.lists(_elements, max_size=20), st.data())
def test_elements_survive_any_cut_of_their_bytes(elements: list[Element], data: st.DataObject) -> None:
    stream = b"".join(e.encode() for e in elements)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    read: list[Element] = []
    rest = b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        rest += stream[start:end]
        at = 0
        while (element := decode(rest, at)) is not None:
            read.append(element)
            at += element.size_bytes
        rest = rest[at:]
    assert read == elements
    assert rest == b""


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_ranges_of_all_subtasks_partition_the_key_groups(parallelism: int, more: int) -> None:
    maximum = parallelism + more
    owned = [g for j in range(parallelism) for g in groups_of(j, parallelism, maximum)]
    assert owned == list(range(maximum))
    for j in range(parallelism):
        assert {owner_of_group(g, parallelism, maximum) for g in groups_of(j, parallelism, maximum)} <= {j}


@given(key=st.integers(-(2**63), 2**63 - 1), maximum=st.integers(1, 32768))
def test_a_key_group_is_the_published_hash_of_the_keys_eight_bytes(key: int, maximum: int) -> None:
    assert key_group(key, maximum) == murmur3_32(key.to_bytes(8, "little", signed=True)) % maximum


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 64), st.integers(0, 200))
def test_a_hashed_record_reaches_the_owner_of_its_key_group(key: int, parallelism: int, more: int) -> None:
    maximum = parallelism + more
    record = Record(key, 0, 0, 0, 100)
    spread = route(
        EdgeSpec("a", "b", Partitioner.HASH),
        index=0,
        subtask=0,
        targets=list(range(parallelism)),
        max_parallelism=maximum,
        parallelism=parallelism,
        seed=1,
    )
    assert spread(record) == (owner_of_group(key_group(key, maximum), parallelism, maximum),)
    assert spread(record) == spread(record)


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_each_partitioner_spreads_as_its_name_says(partitioner: Partitioner) -> None:
    spread = route(
        EdgeSpec("a", "b", partitioner),
        index=0,
        subtask=1,
        targets=[0, 1, 2, 3],
        max_parallelism=128,
        parallelism=4,
        seed=3,
    )
    counts = Counter(t for n in range(4000) for t in spread(Record(n, n, 0, 0, 100)))
    if partitioner is Partitioner.BROADCAST:
        assert set(counts.values()) == {4000}
    elif partitioner is Partitioner.GLOBAL:
        assert counts == {0: 4000}
    elif partitioner in (Partitioner.REBALANCE, Partitioner.RESCALE, Partitioner.FORWARD):
        assert set(counts.values()) == {1000}
    else:
        assert all(800 < counts[t] < 1200 for t in range(4)), counts


@given(shares=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6).filter(lambda of: sum(of) > 0.5))
def test_each_receiver_gets_its_share_whether_records_are_sent_one_by_one_or_together(shares: list[float]) -> None:
    edge = EdgeSpec("a", "b", Partitioner.HASH, shares=tuple(shares))
    count = len(shares)
    way = route(edge, index=2, subtask=0, targets=list(range(count)), max_parallelism=128, parallelism=count, seed=1)
    records = [Record(0, origin, 0, 0, 100) for origin in range(4000)]

    places = way.places(records)

    assert places == [way(record)[0] for record in records]
    for position, share in enumerate(shares):
        expected = share / sum(shares)
        assert abs(Counter(places)[position] / 4000 - expected) < 0.05, shares
        assert expected > 0 or position not in places


def test_each_edge_hashes_by_origin_independently() -> None:
    spreads = [
        route(
            EdgeSpec("a", "b", Partitioner.HASH, by_origin=True),
            index=index,
            subtask=0,
            targets=list(range(4)),
            max_parallelism=128,
            parallelism=4,
            seed=1,
        )
        for index in range(3)
    ]
    records = [Record(0, origin, 0, 0, 100) for origin in range(6400)]
    ways = Counter(tuple(spread(record)[0] for spread in spreads) for record in records)
    assert len(ways) == 64
    assert max(ways.values()) < 2 * min(ways.values()), ways
