"""Tests of GR-4 as users see it: which changes of a job a checkpoint of Flink or of the reference runtime allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    Guarantee,
    SavepointFormat,
)
from backend.domain.engines import FLINK, RUNTIME, SPARK, EngineCapabilities
from backend.runtime.snapshot.capabilities import CAPABILITIES, OF_THIS_RUNTIME, SnapshotKind
from backend.services.checkpoints.restoring import restoring_out
from tests.support.observations import SINK, TOPOLOGY, completed

_BASE = replace(completed(7).header, external_path="s3://c/chk-7", is_discarded=False)
_SAVEPOINT = replace(_BASE, kind=CheckpointKind.SAVEPOINT, persisted_bytes=0)
_HEADERS: dict[SnapshotKind, CheckpointHeader] = {
    SnapshotKind.CANONICAL_SAVEPOINT: replace(_SAVEPOINT, savepoint_format=SavepointFormat.CANONICAL),
    SnapshotKind.NATIVE_SAVEPOINT: replace(_SAVEPOINT, savepoint_format=SavepointFormat.NATIVE),
    SnapshotKind.ALIGNED: replace(_BASE, persisted_bytes=0, is_unaligned=False),
    SnapshotKind.UNALIGNED: replace(_BASE, persisted_bytes=12_000, is_unaligned=True),
}


def _answers(header: CheckpointHeader, engine: EngineCapabilities = FLINK) -> dict[str, str | None]:
    found = restoring_out(Checkpoint(header), engine, TOPOLOGY)
    assert found is not None
    return {use.use: use.support for use in found.uses}


@pytest.mark.parametrize("kind", SnapshotKind)
@pytest.mark.parametrize("engine", [FLINK, RUNTIME])
def test_each_kind_is_answered_by_its_own_column(kind, engine):
    matrix = CAPABILITIES if engine is FLINK else OF_THIS_RUNTIME
    found = restoring_out(Checkpoint(_HEADERS[kind]), engine, TOPOLOGY)
    assert (found.is_restorable, found.kinds, found.location) == (True, [kind.value], "s3://c/chk-7")
    assert _answers(_HEADERS[kind], engine) == {use.value: row[kind].value for use, row in matrix.items()}


def test_an_unaligned_checkpoint_rescales_and_binds_the_graph_where_data_was_in_flight():
    detail = completed(7).details[1]
    assert detail.vertex_id == SINK
    held = Checkpoint(_HEADERS[SnapshotKind.UNALIGNED], (replace(detail, persisted_bytes=(0, 5_000, 7_000)),))
    found = restoring_out(held, FLINK, TOPOLOGY)
    assert [(f.vertex, f.persisted_bytes) for f in found.in_flight] == [("Sink: ledger", 12_000)]
    assert found.sentence == (
        "It is an unaligned checkpoint: the job can continue from it at another parallelism but not with another "
        "graph: it has in-flight data at Sink: ledger."
    )
    notes = {use.use: use.note for use in found.uses}
    assert "redistributed" in notes["rescaling"]
    assert "take a savepoint" in notes["arbitrary job upgrade"]
    # Flink's documentation excludes an upgrade of a job of the same topology from an unaligned checkpoint. The
    # runtime allows it "at own risk".
    runtime = restoring_out(held, RUNTIME, None)
    assert {use.use: use.support for use in runtime.uses}["job upgrade of the same topology"] == "at own risk"
    assert [f.vertex for f in runtime.in_flight] == [SINK]


def test_without_data_in_flight_the_rules_of_an_aligned_one_hold_whatever_its_barriers_did():
    found = restoring_out(Checkpoint(replace(_BASE, persisted_bytes=0, is_unaligned=True)), FLINK, TOPOLOGY)
    assert found.kinds == ["aligned checkpoint"]
    assert found.sentence.endswith("at another parallelism and with another graph.")


def test_what_is_not_reported_is_not_guessed():
    unknown = replace(_SAVEPOINT, savepoint_format=None)
    found = restoring_out(Checkpoint(unknown), FLINK, TOPOLOGY)
    assert found.kinds == ["canonical savepoint", "native savepoint"]
    answers = _answers(unknown)
    assert (answers["rescaling"], answers["arbitrary job upgrade"], answers["state backend change"]) == (
        "yes", "yes", None,
    )  # fmt: skip
    note = {use.use: use.note for use in found.uses}["state backend change"]
    assert note == "yes for a canonical savepoint, no for a native savepoint"
    blank = replace(_BASE, persisted_bytes=None, is_unaligned=None)
    found = restoring_out(Checkpoint(blank), FLINK, TOPOLOGY)
    assert found.kinds == ["aligned checkpoint", "unaligned checkpoint"]
    assert found.sentence.endswith("at another parallelism; whether its graph may change is not known.")
    assert _answers(replace(blank, is_unaligned=True))["arbitrary job upgrade"] == "no"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": CheckpointStatus.FAILED}, "It failed"),
        ({"status": CheckpointStatus.IN_PROGRESS}, "It is not complete"),
        ({"is_discarded": True}, "restore the newest"),
    ],
)
def test_what_cannot_be_restored_says_why_and_promises_nothing(changes, words):
    found = restoring_out(Checkpoint(replace(_BASE, **changes)), FLINK, TOPOLOGY)
    assert (found.is_restorable, found.kinds, found.uses, found.location) == (False, [], [], None)
    assert words in found.sentence


def test_a_micro_batch_of_spark_has_no_such_answer():
    assert restoring_out(Checkpoint(_BASE), SPARK, None) is None


def test_the_documents_table_is_the_matrix():
    text = (Path(__file__).parents[4] / "docs" / "restoring.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    assert rows[0][1:] == [kind.value for kind in SnapshotKind]
    assert {row[0]: row[1:] for row in rows[1:]} == {
        use.value: [support.value for support in row.values()] for use, row in CAPABILITIES.items()
    }


_ONCE, _TWICE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("kind", "guarantee", "name"),
    [
        (SnapshotKind.ALIGNED, _TWICE, "an at-least-once checkpoint"),
        (SnapshotKind.ALIGNED, _ONCE, "an aligned checkpoint"),
        (SnapshotKind.CANONICAL_SAVEPOINT, _TWICE, "a canonical savepoint"),
    ],
)
def test_an_at_least_once_checkpoint_is_not_called_aligned_and_follows_the_same_rules(kind, guarantee, name):
    found = restoring_out(Checkpoint(_HEADERS[kind]), FLINK, TOPOLOGY, guarantee)

    assert found.sentence.startswith(f"It is {name}: the job can continue")
    assert found.kinds == [kind.value]
    assert found.uses == restoring_out(Checkpoint(_HEADERS[kind]), FLINK, TOPOLOGY).uses


@pytest.mark.parametrize("engine", [FLINK, RUNTIME])
@pytest.mark.parametrize(
    ("kind", "guarantee", "expected"),
    [
        (SnapshotKind.ALIGNED, _ONCE, True),
        (SnapshotKind.ALIGNED, _TWICE, False),
        (SnapshotKind.ALIGNED, None, None),
        (SnapshotKind.UNALIGNED, _ONCE, False),
        (SnapshotKind.UNALIGNED, None, False),
        (SnapshotKind.CANONICAL_SAVEPOINT, _ONCE, True),
        (SnapshotKind.CANONICAL_SAVEPOINT, _TWICE, False),
    ],
)
def test_queries_are_consistent_only_without_in_flight_data_and_exactly_once(kind, guarantee, expected, engine):
    found = restoring_out(Checkpoint(_HEADERS[kind]), engine, TOPOLOGY, guarantee)
    assert found.is_consistent_for_queries is expected


def test_whether_queries_are_consistent_is_open_if_the_kind_is_and_absent_if_nothing_is_restorable():
    header = replace(_HEADERS[SnapshotKind.ALIGNED], persisted_bytes=None, is_unaligned=None)
    assert restoring_out(Checkpoint(header), FLINK, TOPOLOGY, _ONCE).is_consistent_for_queries is None
    failed = replace(header, status=CheckpointStatus.FAILED)
    assert restoring_out(Checkpoint(failed), FLINK, TOPOLOGY, _ONCE).is_consistent_for_queries is None
