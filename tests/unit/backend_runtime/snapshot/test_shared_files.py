"""Tests of acknowledgements that arrive after their checkpoint ended: no file is lost, and none is left over."""

from __future__ import annotations

import zlib

import pytest

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.job.config import StateBackend
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot
from backend.runtime.operators.state import NO_STATE, FileHandle, Increment, OperatorSnapshot
from backend.runtime.snapshot.shared_files import SharedFiles, groups_in, register_late, registered


def file(key, path=None):
    return FileHandle(key, path or f"shared/{key}", 10, 1, 0, ())


def snapshot(*handles):
    """Return the snapshot of a subtask whose one keyed operator has these files."""
    increment = Increment(StateBackend.SST, None, handles, len(handles))
    return SubtaskSnapshot((NO_STATE, OperatorSnapshot(increment=increment)), ChannelState(), 0, 0, 0)


def stored(*handles):
    files = SharedFiles()
    for handle in handles:
        files.write(handle.path, b"content")
    return files


def test_the_files_of_a_late_acknowledgement_are_deleted_with_the_next_subsumption():
    """Goal: the files of an expired checkpoint do not stay in the store for ever."""
    files = stored(file("a"))

    register_late(snapshot(file("a")), 3, files)
    assert files.registry.owns(file("a"))
    files.registry.unregister_unused(4)

    assert (len(files), files.deleted_count) == (0, 1)


def test_a_late_acknowledgement_does_not_bring_back_a_file_that_its_subtask_has_deleted():
    files = stored(file("a"))
    files.release(file("a"))

    register_late(snapshot(file("a")), 3, files)

    assert not files.registry.paths
    files.registry.unregister_unused(9)
    assert files.deleted_count == 1


def test_a_late_placeholder_keeps_a_registered_file_and_is_ignored_for_an_unregistered_one():
    files = stored(file("a"), file("b"))
    files.registry.register(file("a"), 1)

    register_late(snapshot(file("a").as_placeholder, file("b").as_placeholder), 3, files)

    assert files.registry.paths == {"shared/a"}
    assert files.registry.last_used_by("shared/a") == 3
    files.registry.unregister_unused(3)
    assert files.paths == {"shared/a", "shared/b"}


def test_a_late_acknowledgement_without_shared_files_changes_nothing():
    files = stored(file("a"))
    plain = SubtaskSnapshot((NO_STATE,), ChannelState(), 0, 0, 0)

    register_late(plain, 3, files)

    assert registered(plain, 3, files) is plain
    assert not files.registry.paths


def test_an_acknowledgement_gets_the_handles_that_a_restore_uses():
    files = stored(file("a"), file("b"))
    files.registry.register(file("a"), 1)

    found = registered(snapshot(file("a").as_placeholder, file("b")), 2, files)

    increment = found.operators[1].increment
    assert increment is not None
    assert increment.files == (file("a"), file("b"))
    assert found.operators[0] is NO_STATE


def test_a_subtask_deletes_its_own_file_once_and_none_of_the_registry():
    files = stored(file("a"), file("b"))
    files.registry.register(file("b"), 1)

    for handle in (file("a"), file("a"), file("b"), file("b", "shared/other")):
        files.release(handle)

    assert (files.paths, files.deleted_count) == ({"shared/b"}, 1)


def test_another_file_under_a_registered_key_belongs_to_its_subtask():
    other = file("b", "shared/other")
    files = stored(file("b"), other)
    files.registry.register(file("b"), 1)

    files.release(other)

    assert files.paths == {"shared/b"}


def test_a_file_that_is_deleted_twice_or_missing_is_reported():
    files = stored(file("a"))
    files.registry.register(file("a"), 1)
    files.registry.register(file("b"), 1)

    assert files.content(file("a")) == b"content"
    with pytest.raises(CorruptCheckpointError, match="shared/b is missing"):
        files.content(file("b"))
    with pytest.raises(ProtocolViolationError, match="shared/b is deleted twice"):
        files.registry.unregister_unused(2)


def test_no_two_files_get_the_same_path():
    files = SharedFiles()

    assert [files.new_path("a"), files.new_path("a"), files.new_path("b")] == ["shared/a-1", "shared/a-2", "shared/b-3"]


@pytest.mark.parametrize("is_used", [True, False])
def test_a_claimed_file_is_deleted_when_no_checkpoint_uses_it(is_used):
    files = SharedFiles()
    files.adopt({"shared/a": file("a")}, {"shared/a": b"content", "shared/not-of-it": b""}, 5)
    if is_used:
        files.registry.register(file("a").as_placeholder, 7)

    files.registry.unregister_unused(6)

    assert files.paths == ({"shared/a"} if is_used else set())


@pytest.mark.parametrize("off", [-1, 1])
def test_a_file_whose_checksum_differs_is_damaged(off):
    content = b"abcde"
    sound = FileHandle("a", "shared/a", 5, 1, zlib.crc32(content), ((7, 0, 2), (9, 2, 3)))
    damaged = FileHandle("a", "shared/a", 5, 1, zlib.crc32(content) + off, sound.spans)

    assert groups_in(sound, {"shared/a": content}, place="map/0") == {7: b"ab", 9: b"cde"}
    with pytest.raises(CorruptCheckpointError, match="of map/0 is damaged"):
        groups_in(damaged, {"shared/a": content}, place="map/0")
