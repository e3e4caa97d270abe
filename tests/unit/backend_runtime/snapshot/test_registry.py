"""The registry of shared files: which files it keeps, replaces and deletes (IN-15 to IN-19)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.operators.state import FileHandle
from backend.runtime.snapshot.registry import SharedStateRegistry
from backend.runtime.snapshot.shared_files import SharedFiles, groups_in


def _file(key: str, path: str = "") -> FileHandle:
    return FileHandle(key, path or f"shared/{key}", 10, 1, 0, ())


class _Checkpoints:
    """A registry, and the retained checkpoints with the files that each uses."""

    def __init__(self, retained: int) -> None:
        self.deleted: list[str] = []
        self.registry = SharedStateRegistry(lambda handle: self.deleted.append(handle.path))
        self._retained = retained
        self.kept: dict[int, list[str]] = {}

    def complete(self, checkpoint_id: int, new: list[str], again: list[str]) -> None:
        for key in new:
            self.registry.register(_file(key), checkpoint_id)
        for key in again:
            self.registry.register(_file(key).as_placeholder, checkpoint_id)
        self.kept[checkpoint_id] = [*new, *again]
        while len(self.kept) > self._retained:
            del self.kept[min(self.kept)]
        self.registry.unregister_unused(min(self.kept))

    @property
    def counts(self) -> dict[str, int]:
        """How many retained checkpoints use each file."""
        every = [key for keys in self.kept.values() for key in keys]
        return {key: every.count(key) for key in sorted(set(every))}


def test_the_example_of_two_retained_checkpoints_and_merged_files() -> None:
    run = _Checkpoints(retained=2)
    run.complete(1, ["1", "2"], [])
    assert (run.counts, run.deleted) == ({"1": 1, "2": 1}, [])
    run.complete(2, ["3", "4"], ["1", "2"])
    assert (run.counts, run.deleted) == ({"1": 2, "2": 2, "3": 1, "4": 1}, [])
    run.complete(3, ["123", "5"], ["4"])
    assert (run.counts, run.deleted) == ({"1": 1, "2": 1, "3": 1, "4": 2, "123": 1, "5": 1}, [])
    run.complete(4, ["456"], ["123"])
    assert run.counts == {"123": 2, "4": 1, "5": 1, "456": 1}
    assert run.deleted == ["shared/1", "shared/2", "shared/3"]
    run.complete(5, [], ["123", "456"])
    assert run.deleted[3:] == ["shared/4", "shared/5"]


def test_a_placeholder_for_an_unknown_file_is_an_error() -> None:
    run = _Checkpoints(1)
    with pytest.raises(ProtocolViolationError, match=r"IN-15.*view/1, which is not registered"):
        run.registry.register(_file("view/1").as_placeholder, 3)


def test_the_same_file_again_only_advances_its_last_use() -> None:
    run = _Checkpoints(1)
    first = run.registry.register(_file("a"), 1)
    assert run.registry.register(_file("a"), 4) == first
    assert run.registry.register(_file("a").as_placeholder, 2) == first
    run.registry.unregister_unused(4)
    assert run.deleted == []
    run.registry.unregister_unused(5)
    assert run.deleted == ["shared/a"]
    run.registry.unregister_unused(9)
    assert run.deleted == ["shared/a"]


def test_another_file_under_a_registered_key_is_an_error() -> None:
    run = _Checkpoints(1)
    run.registry.register(_file("a", "old"), 1)
    with pytest.raises(ProtocolViolationError, match="IN-15: checkpoint 2 has new as a, which is old"):
        run.registry.register(_file("a", "new"), 2)
    assert run.registry.register(_file("a", "old"), 3).path == "old"
    assert run.deleted == []


@pytest.mark.parametrize(("is_claimed", "deleted"), [(True, ["shared/a"]), (False, [])])
def test_files_of_a_checkpoint_that_is_not_claimed_are_never_deleted(is_claimed: bool, deleted: list[str]) -> None:
    run = _Checkpoints(1)
    run.registry.restored([_file("a")], 7, is_claimed=is_claimed)
    run.registry.register(_file("b"), 8)
    run.registry.unregister_unused(9)
    assert run.deleted == [*deleted, "shared/b"]


_UPDATES = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), max_size=25)


@given(retained=st.integers(1, 3), steps=_UPDATES)
def test_no_file_of_a_retained_checkpoint_is_deleted_and_none_twice(
    retained: int, steps: list[tuple[int, bool, int]]
) -> None:
    run = _Checkpoints(retained)
    base: list[str] = []
    for k, (dropped, is_aborted, added) in enumerate(steps, 1):
        new = [f"{k}-{n}" for n in range(added)]
        if is_aborted:
            for key in new:
                run.registry.register(_file(key), k)
            continue
        run.complete(k, new, base[dropped:])
        base = [*base[dropped:], *new]
        needed = {f"shared/{key}" for keys in run.kept.values() for key in keys}
        assert not needed & set(run.deleted)
        assert len(run.deleted) == len(set(run.deleted))
    run.registry.unregister_unused(len(steps) + 1)
    assert run.registry.paths == frozenset()


def test_a_file_belongs_to_its_subtask_until_it_is_registered() -> None:
    files = SharedFiles()
    mine, handed = _file("mine", files.new_path("mine")), _file("handed", files.new_path("handed"))
    for file in (mine, handed):
        files.write(file.path, b"content")
    files.registry.register(handed, 1)
    for file in (mine, handed, mine):
        files.release(file)
    assert files.paths == {handed.path}
    assert files.deleted_count == 1
    files.registry.unregister_unused(2)
    assert files.paths == frozenset()


def test_a_file_that_is_deleted_twice_is_an_error() -> None:
    files = SharedFiles()
    files.registry.register(_file("a"), 1)
    with pytest.raises(ProtocolViolationError, match=r"IN-19.*deleted twice"):
        files.registry.unregister_unused(2)
    with pytest.raises(CorruptCheckpointError, match="is missing"):
        files.content(_file("a"))


def test_a_missing_or_damaged_file_is_named_with_its_place_and_the_cure() -> None:
    handle = FileHandle("a", "shared/a-1", 10, 1, 3421780262, ((0, 0, 9),))
    assert groups_in(handle, {"shared/a-1": b"123456789"}, place="view/0") == {0: b"123456789"}
    for contents, word in (({}, "missing"), ({"shared/a-1": b"12345678X"}, "damaged")):
        with pytest.raises(CorruptCheckpointError) as caught:
            groups_in(handle, contents, place="view/0")
        assert str(caught.value) == (
            f"CK-3: the shared file shared/a-1 of view/0 is {word}; restore another checkpoint or savepoint"
        )
        assert caught.value.part == "shared/a-1"
