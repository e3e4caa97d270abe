"""Tests of the check of a checkpoint's metadata from a user: what a job writes passes, and a forged part is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.errors import CorruptCheckpointError
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.snapshot.checked import check_stored
from backend.runtime.snapshot.metadata import StoredCheckpoint
from tests.support.runtime_jobs import small_job

_MERGED: dict[str, object] = {"execution.checkpointing.file-merging.enabled": True}

Document = dict[str, Any]


@pytest.fixture(scope="module")
def stored() -> StoredCheckpoint:
    """Return a checkpoint with in-flight data in shared files, and with state in files and in the metadata."""
    engine = JobEngine(small_job("unaligned", seed=3, config=_MERGED))
    engine.run_until(330_000)
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph)


def _refused(stored: StoredCheckpoint, forge: Callable[[Document], object]) -> str | None:
    """Return the part of a forged document that is refused, or None if it is accepted."""
    document = deepcopy(json.loads(stored.metadata))
    forge(document)
    try:
        check_stored(replace(stored, metadata=json.dumps(document).encode()))
    except CorruptCheckpointError as error:
        return error.part
    return None


def _subtasks(document: Document) -> list[Document]:
    return [subtask for vertex in document["vertices"] for subtask in vertex["subtasks"]]


def _in_segments(document: Document) -> Document:
    return next(s["outputs"] for s in _subtasks(document) if s["outputs"].get("segments"))


def _last_state(document: Document) -> Document:
    return [state for s in _subtasks(document) for o in s["operators"] for state in o["states"]][-1]


def test_what_a_job_writes_passes(stored):
    assert _in_segments(json.loads(stored.metadata))
    assert _refused(stored, lambda document: None) is None


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"watermark_us": 2**63 - 1}, None),
        ({"watermark_us": 2**63}, "checkpoint.vertices[0].subtasks[0].watermark_us"),
        ({"watermark_us": -1}, None),
        ({"watermark_us": -2}, "checkpoint.vertices[0].subtasks[0].watermark_us"),
        ({"watermark_us": True}, "checkpoint.vertices[0].subtasks[0].watermark_us"),
    ],
)
def test_numbers_are_whole_and_fit_eight_bytes(stored, changes, refused):
    assert _refused(stored, lambda document: _subtasks(document)[0].update(changes)) == refused


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"max_parallelism": 2}, None),
        ({"max_parallelism": 1}, "checkpoint.vertices[2].max_parallelism"),
        ({"max_parallelism": 32768}, None),
        ({"max_parallelism": 32769}, "checkpoint.vertices[2].max_parallelism"),
        ({"number": 0}, None),
        ({"number": -1}, "checkpoint.vertices[2].number"),
        ({"parallelism": 3}, "checkpoint.vertices[2].parallelism"),
        ({"subtasks": []}, "checkpoint.vertices[2].parallelism"),
    ],
)
def test_a_vertex_has_as_many_subtasks_as_it_says_and_not_more_than_key_groups(stored, changes, refused):
    assert json.loads(stored.metadata)["vertices"][2]["parallelism"] == 2
    assert _refused(stored, lambda document: document["vertices"][2].update(changes)) == refused


@pytest.mark.parametrize(("number", "refused"), [(1, None), (0, "checkpoint.id")])
def test_ids_of_checkpoints_begin_with_one(stored, number, refused):
    assert _refused(stored, lambda document: document.update(id=number)) == refused


def test_state_after_shared_files_is_checked_too(stored):
    """A forged handle may stand behind one whose bytes are in shared files."""
    document = json.loads(stored.metadata)
    assert "inline" in _last_state(document) or "file" in _last_state(document)

    def longer(document: Document) -> None:
        state = _last_state(document)
        state["size"] += 1
        state["spans"][-1][1] += 1

    assert _refused(stored, longer) == "checkpoint.vertices[2]"


@pytest.mark.parametrize("column", [1, 2])
def test_a_part_of_a_shared_file_has_no_negative_place_or_size(stored, column):
    def negative(document: Document) -> None:
        _in_segments(document)["segments"][0][column] = -1

    assert (_refused(stored, negative) or "").startswith("checkpoint.vertices[")


def test_no_more_bytes_are_used_than_there_are(stored):
    def huge(document: Document) -> None:
        _in_segments(document)["segments"][0][2] = sum(map(len, stored.files.values())) + 1

    assert _refused(stored, huge) == "checkpoint.files"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("number", [-1, 99])
def test_channels_lead_from_one_subtask_of_the_graph_to_another(stored, place, number):
    def elsewhere(document: Document) -> None:
        _in_segments(document)["channels"][0][place] = number

    assert (_refused(stored, elsewhere) or "").endswith(".outputs.channels")


def test_a_part_of_a_shared_file_may_be_empty(stored):
    def empty(document: Document) -> None:
        _in_segments(document)["segments"][0][2] = 0

    assert _refused(stored, empty) is None


@pytest.mark.parametrize("groups", [[0], [0, 63, 64], []])
def test_a_range_of_key_groups_has_two_ends(stored, groups):
    def other(document: Document) -> None:
        _subtasks(document)[0]["operators"][0]["key_groups"] = groups

    assert _refused(stored, other) == "checkpoint.vertices[0].subtasks[0].operators[0].key_groups"
