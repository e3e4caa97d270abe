"""Tests of the subtasks that share files: who shares them, and what happens to the others if one fails to write."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.runtime.network.segments import SegmentStore
from backend.runtime.snapshot.channel_files import ChannelFiles, SharedStream
from backend.runtime.snapshot.merging import FileMerging


def settings(*, merges=True, task_managers=1, subtasks_max=2, merges_across=False, amplification_percent=200):
    return SimpleNamespace(
        task_managers=task_managers,
        merges_files=merges,
        merged_subtasks_max=subtasks_max,
        merges_across=merges_across,
        merged_bytes_max=100,
        amplification_percent_max=amplification_percent,
    )


def groups_of(config, count=8):
    """Return the subtasks of a vertex by the files that they share."""
    files = ChannelFiles()
    found = {}
    for index in range(count):
        found.setdefault(id(files.stream(config, (0, index))), []).append(index)
    return sorted(found.values())


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        (settings(), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (settings(subtasks_max=3), [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (settings(task_managers=2), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (settings(merges=False), [[n] for n in range(8)]),
    ],
)
def test_a_number_of_subtasks_on_one_task_manager_share_files(config, groups):
    assert groups_of(config) == groups


def test_subtasks_of_two_vertices_share_no_files():
    files = ChannelFiles()

    assert files.stream(settings(), (0, 0)) is not files.stream(settings(), (1, 0))


def test_if_one_write_fails_the_other_writes_of_the_checkpoint_fail_too_and_no_more():
    told: list[str] = []
    stream = SharedStream(None)  # type: ignore[arg-type]
    for name, key, checkpoint_id in (("a", (0, 0), 1), ("b", (0, 1), 1), ("c", (0, 2), 1), ("next", (0, 0), 2)):
        stream.begin(key, checkpoint_id, lambda name=name: told.append(name))  # type: ignore[misc]
    stream.end((0, 1), 1)

    stream.fail_others(1)
    assert told == ["a", "c"]
    stream.fail_others(1)
    assert told == ["a", "c"]
    stream.fail_others(2)
    assert told == ["a", "c", "next"]


def test_ended_writes_are_forgotten():
    stream = SharedStream(None)  # type: ignore[arg-type]
    stream.begin((0, 0), 1, lambda: None)
    stream.end((0, 0), 1)
    stream.end((0, 0), 1)

    assert stream._writing == {}


def written(files, key, checkpoint_id, config=None):
    merging = files.stream(config or settings(), key).merging
    merging.end(merging.begin(key, checkpoint_id), key, checkpoint_id, [b"x" * 10])


def test_a_checkpoint_that_is_given_up_leaves_no_file():
    files = ChannelFiles()
    for key in ((0, 0), (0, 1), (1, 0)):
        written(files, key, 1)

    files.aborted(1)

    assert not files.store.paths
    assert files.store.created_count == 2


def test_a_write_that_ends_after_its_checkpoint_was_given_up_is_deleted_with_the_next_complete_one():
    """Goal: a late write does not leave a file for ever."""
    files = ChannelFiles()
    written(files, (0, 0), 1)
    files.aborted(1)
    written(files, (0, 1), 1)
    written(files, (0, 0), 2)
    files.completed(2)
    assert len(files.store.paths) == 2

    files.retain(2, [])

    assert len(files.store.paths) == 1


def test_the_files_of_a_retained_checkpoint_stay_until_it_is_subsumed():
    files = ChannelFiles()
    for checkpoint_id in (1, 2, 3):
        written(files, (0, 0), checkpoint_id)
        files.completed(checkpoint_id)

    for lowest_id, left in ((1, 3), (2, 2), (3, 1), (4, 0)):
        files.retain(lowest_id, [])
        assert len(files.store.paths) == left


def test_the_end_of_the_job_closes_files_without_data_and_keeps_the_others():
    files = ChannelFiles()
    written(files, (0, 0), 1)

    files.close()
    assert len(files.store.paths) == 1
    files.retain(2, [])
    assert not files.store.paths


@pytest.mark.parametrize(
    ("config", "files_after"),
    [
        (settings(merges_across=True), {1: 1, 10: 1, 11: 2}),
        (settings(), {1: 1, 10: 10, 11: 11}),
        (settings(merges=False, merges_across=True), {1: 1, 10: 10, 11: 11}),
    ],
    ids=["across checkpoints, at most 100 bytes", "within checkpoints", "not merged"],
)
def test_later_checkpoints_append_to_a_file_only_if_the_settings_say_so_and_until_it_is_full(config, files_after):
    files = ChannelFiles()
    for checkpoint_id in range(1, 12):
        written(files, (0, 0), checkpoint_id, config)
        if checkpoint_id in files_after:
            assert files.store.created_count == files_after[checkpoint_id]


def test_a_file_of_which_less_than_half_is_needed_is_not_appended_to_at_200_percent():
    files, across = ChannelFiles(), settings(merges_across=True)
    for checkpoint_id, created in ((1, 1), (2, 1), (3, 1), (4, 2)):
        written(files, (0, 0), checkpoint_id, across)
        files.completed(checkpoint_id)
        files.retain(checkpoint_id, [])
        assert files.store.created_count == created


def test_the_private_file_of_a_subtask_waits_until_all_subtasks_have_given_up_the_checkpoint():
    store = SegmentStore()
    merging = FileMerging(store, name="f", is_across=False, file_bytes_max=100)
    for subtask in ("a", "b"):
        merging.add(subtask)

    def write(subtask, checkpoint_id):
        file = merging.begin(subtask, checkpoint_id, is_private=True)
        merging.end(file, subtask, checkpoint_id, [b"x"], is_private=True)
        return file

    first, other = write("b", 1), write("a", 1)
    merging.aborted("a", 1)
    assert not other.is_open
    assert write("b", 1) is first, "b may still write for this checkpoint"
    merging.aborted("b", 1)
    assert not first.is_open
    assert not store.paths


def test_the_end_that_all_subtasks_but_one_know_is_forgotten_if_it_is_very_old():
    merging = FileMerging(SegmentStore(), name="f", is_across=False, file_bytes_max=100)
    for subtask in ("a", "b"):
        merging.add(subtask)
    for checkpoint_id in range(1, 40):
        merging.subsumed("a", checkpoint_id)

    assert sorted(merging._told) == list(range(24, 40))
    assert merging._ended == []


@pytest.mark.parametrize("is_across", [False, True])
def test_the_files_of_a_complete_checkpoint_are_closed_unless_later_ones_append_to_them(is_across):
    merging = FileMerging(SegmentStore(), name="f", is_across=is_across, file_bytes_max=100)
    merging.add("a")
    file = merging.begin("a", 1)
    merging.end(file, "a", 1, [b"x"])

    merging.all_completed(1)

    assert file.is_open is is_across


def test_if_files_are_not_merged_an_empty_write_gets_a_file_of_its_own_too():
    files = ChannelFiles()
    config = settings(merges=False, merges_across=True)
    for checkpoint_id in (1, 2):
        merging = files.stream(config, (0, 0)).merging
        merging.end(merging.begin((0, 0), checkpoint_id), (0, 0), checkpoint_id, [])

    assert files.store.created_count == 2


@pytest.mark.parametrize(("percent", "created"), [(150, 1), (149, 2)])
def test_the_limit_on_space_is_a_percentage(percent, created):
    """Of three equal writes two are needed, so the file is 1.5 times as large as what is needed of it."""
    files, across = ChannelFiles(), settings(merges_across=True, amplification_percent=percent)
    for checkpoint_id in (1, 2, 3):
        written(files, (0, 0), checkpoint_id, across)
    files.retain(2, [])

    written(files, (0, 0), 4, across)

    assert files.store.created_count == created


def test_the_files_of_each_stream_are_closed_when_the_checkpoint_is_complete():
    files = ChannelFiles()
    opened = []
    for key in ((0, 0), (1, 0)):
        merging = files.stream(settings(), key).merging
        opened.append(merging.begin(key, 1))
        merging.end(opened[-1], key, 1, [b"x"])

    files.completed(1)

    assert [file.is_open for file in opened] == [False, False]
