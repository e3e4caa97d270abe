"""The cards of the state of a Spark query: by operator, and what its checkpoint folder holds."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from backend.contracts.checkpoint_folders import (
    CheckpointFolderOut,
    FolderBatchOut,
    OperatorFilesOut,
    PartitionFilesOut,
)
from backend.contracts.micro_batches import BatchStateOut, MicroBatchOut, OperatorStateOut
from backend.domain.verdict import Basis
from dashboard.components import query_state
from tests.support.dash_calls import texts

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NOTHING = dict.fromkeys(OperatorStateOut.model_fields)


def batch(number=12, *states, **changed) -> MicroBatchOut:
    sums = dict.fromkeys(BatchStateOut.model_fields)
    state = BatchStateOut.model_validate(sums | {"by_operator": list(states)})
    values = {
        "checkpoint_id": number, "run_id": "r1", "triggered_at": AT, "duration_ms": 4_000,
        "number_basis": Basis.MEASURED, "phases": [], "other_ms": None, "input_row_count": None,
        "processed_rows_per_s": None, "watermark_at": None, "state": state, "sources": [],
    }  # fmt: skip
    return MicroBatchOut.model_validate(values | changed)


def partition(number, size) -> PartitionFilesOut:
    return PartitionFilesOut(
        number=number, size_bytes=size, file_count=5, delta_count=4, snapshot_count=1, version=7, snapshot_version=None
    )


def operator(**changed) -> OperatorFilesOut:
    values = {
        "number": 0, "name": None, "partition_count": 200, "file_count": 1_000, "size_bytes": 300_000_000,
        "delta_count": 800, "snapshot_count": 200, "median_bytes": 1_000_000, "skew_ratio": 60.0, "version": 7,
        "snapshot_lag": 3, "partitions": [partition(41, 60_000_000), partition(3, 1_000_000)],
    }  # fmt: skip
    return OperatorFilesOut.model_validate(values | changed)


def folder(**changed) -> CheckpointFolderOut:
    batches = [
        FolderBatchOut(
            number=n, is_committed=n < 13, triggered_at=AT, offsets_at=AT, committed_at=AT if n < 13 else None,
            offsets=['{"t":{"0":5}}', None],
        )
        for n in (12, 13)
    ]  # fmt: skip
    values = {
        "target_id": "t", "target_name": "orders", "url": "file:///srv/orders", "observed_at": AT, "query_id": "q",
        "offsets_count": 100, "commits_count": 99, "batches": batches, "watermark_at": None, "file_count": 1_200,
        "small_count": 900, "small_bytes": 100_000, "size_bytes": 300_000_000, "checksum_count": 1_200,
        "temporary_count": 2, "is_cut": False, "operators": [operator()], "operator_count": 1, "problems": [],
        "source_logs": [{"number": 1, "file_count": 12, "compact_number": 29, "compact_bytes": 2_000}],
    }  # fmt: skip
    return CheckpointFolderOut.model_validate(values | changed)


def shown(*batches, folders=()) -> str:
    return texts(query_state.cards_of(SimpleNamespace(id="j1", batches=list(batches), folders=list(folders))))


def strong(part) -> list[str]:
    """The texts that stand out."""
    if isinstance(part, list | tuple):
        return [word for one in part for word in strong(one)]
    inner = getattr(part, "children", None)
    own = [texts(part)] if type(part).__name__ == "Strong" else []
    return own + (strong(inner) if inner is not None and not isinstance(inner, str) else [])


def hints(part) -> list[str]:
    """The texts that explain a value."""
    if isinstance(part, list | tuple):
        return [word for one in part for word in hints(one)]
    own = getattr(part, "title", None)
    inner = getattr(part, "children", None)
    return ([own] if isinstance(own, str) and not isinstance(part, str) else []) + (
        [] if inner is None else hints(inner)
    )


def test_a_query_without_state_and_folder_has_no_card():
    assert query_state.cards_of(SimpleNamespace(id="j1", batches=[batch(state=None), batch()], folders=[])) == []


def test_the_state_is_that_of_the_newest_batch_that_has_it_and_what_is_not_reported_is_missing():
    old = batch(3, OperatorStateOut.model_validate(NOTHING | {"name": "old"}))
    new = batch(
        4,
        OperatorStateOut.model_validate(NOTHING | {"name": "stateStoreSave", "row_count": 900_000, "size_bytes": 0}),
        triggered_at=AT.replace(hour=13),
    )

    said = shown(new, old, batch(5, triggered_at=AT.replace(hour=14)))

    assert "batch 4" in said
    assert "stateStoreSave 900 000 – – – – 0 B – –" in said
    assert "old" not in said


def test_the_folder_says_its_batches_offsets_and_small_files():
    said = shown(batch(12), folders=[folder()])

    for words in (
        "file:///srv/orders", "by target orders", "Newest offsets batch 13", "Newest commit batch 12",
        "1 200", "900 (75 %)",
        "Unfinished writes 2", "batch 13", "not yet", '{"t":{"0":5}} – –',
        "none yet 12 29.compact, 2.0 kB",
    ):  # fmt: skip
        assert words in said, (words, said)


def test_a_batch_of_the_folder_that_another_channel_reported_is_linked():
    from dash import dcc

    def links(part):
        if isinstance(part, dcc.Link):
            return [texts(part)]
        inner = getattr(part, "children", part)
        return [w for one in inner for w in links(one)] if isinstance(inner, list | tuple) else (
            links(inner) if hasattr(inner, "children") else []
        )  # fmt: skip

    cards = query_state.cards_of(SimpleNamespace(id="j1", batches=[batch(12)], folders=[folder()]))
    assert links(cards) == ["batch 12"]


@pytest.mark.parametrize(
    ("ratio", "largest", "is_marked"), [(60.0, 60_000_000, True), (4.9, 60_000_000, False), (60.0, 1_000_000, False)]
)
def test_a_partition_stands_out_if_it_is_large_and_far_from_the_median(ratio, largest, is_marked):
    of = folder(operators=[operator(skew_ratio=ratio, partitions=[partition(41, largest)])])
    cards = query_state.cards_of(SimpleNamespace(id="j1", batches=[], folders=[of]))

    assert bool(strong(cards)) is is_marked
    assert "(no. 41)" in texts(cards)


def test_a_folder_with_too_many_files_says_that_its_counts_are_lower_bounds():
    assert "at least 1 200" in shown(folders=[folder(is_cut=True)])


def test_of_a_folder_that_was_not_read_to_its_end_nothing_is_shown_as_measured():
    cut = folder(is_cut=True, operators=[operator(partition_count=2, snapshot_count=0)])
    cards = query_state.cards_of(SimpleNamespace(id="j1", batches=[], folders=[cut]))
    said = texts(cards)

    assert (
        "name not known at least 300 MB at least 2 – – – at least 1 000 at least 800 at least 0 – –"
        " Operator 0: 2 of at least 2 partitions"
    ) in said
    assert "Partition 41 at least 60.0 MB at least 5 at least 4 at least 1 – –" in said
    assert [hint for hint in hints(cards) if hint.startswith("and at least 1")]
    for words in ("Unfinished writes at least 2", "none yet at least 12 –"):
        assert words in said, (words, said)
    for words in ("75 %", "60×", "all 2", "29.compact", "no snapshot"):
        assert words not in said
    assert strong(cards) == []


def test_what_could_not_be_read_is_said():
    assert "offsets/5 is broken" in shown(folders=[folder(problems=["offsets/5 is broken: Spark cannot read it"])])
    assert "3 more operators left out" in shown(folders=[folder(operator_count=4)])


def test_a_folder_before_its_first_batch_has_missing_numbers_and_no_zero():
    said = shown(
        folders=[folder(batches=[], operators=[], operator_count=0, offsets_count=0, commits_count=0, source_logs=[])]
    )

    assert "Newest offsets –" in said
    assert "Newest commit –" in said
