"""Incremental backends on their own: random changes of every kind of state, and the files that they become."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends import sst
from backend.runtime.operators.backends.base import Chain, ChainBackend, Piece, Snapshot
from backend.runtime.operators.backends.changelog import ChangelogBackend
from backend.runtime.operators.backends.choice import backend_of
from backend.runtime.operators.backends.sst import SstBackend
from backend.runtime.operators.changes import Op, consolidated, decoded
from backend.runtime.operators.state import KeyedStates, ListState, MapState, ReducingState, Timers, ValueState

BACKENDS = (StateBackend.CHANGELOG, StateBackend.DIFF, StateBackend.SST)
_CONFIG = RuntimeConfig(diff_chain_max=3, sst_runs_max=3)


class States:
    """One operator with every kind of keyed state, and its backend."""

    def __init__(self, kind: StateBackend, config: RuntimeConfig = _CONFIG, attempt: int = 0) -> None:
        backend = backend_of(f"view-0/{attempt}", replace(config, state_backend=kind))
        assert backend is not None
        self.backend: ChainBackend = backend
        self.keyed = KeyedStates(subtask=0, parallelism=1, max_parallelism=8, backend=backend)
        self.value: ValueState = self.keyed.value(100)
        self.list: ListState = self.keyed.list()
        self.map: MapState = self.keyed.map()
        self.sums: ReducingState = self.keyed.reducing(lambda a, b: a + b)
        self.timers: Timers = self.keyed.timers()

    def change(self, what: int, key: int, at: int) -> None:
        match what % 8:
            case 0:
                self.value.set(key, at)
            case 1:
                self.value.held[key] = self.value.held.get(key, 0) + 1 if key in self.value.held else 0
                self.keyed.touch(key)
            case 2:
                self.list.extend(key, [at, at + 1])
            case 3:
                self.list.replace(key, self.list.held.get(key, [])[2:])
            case 4:
                self.map.set(key, at, key)
            case 5:
                self.map.pop(key, at)
            case 6:
                self.sums.add(key, at, 1)
                self.timers.register(at, key)
            case _:
                if len(self.timers):
                    due_us, of = self.timers.pop()
                    self.sums.pop(of, due_us)

    def snapshot(self, checkpoint_id: int, how: Snapshot = Snapshot.INCREMENT) -> Chain:
        self.backend.prepare(checkpoint_id, how)
        chain = self.keyed.snapshot()
        assert isinstance(chain, Chain)
        return chain


_CHANGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 12), st.integers(0, 5)), max_size=12)
_STEPS = st.lists(
    st.tuples(_CHANGES, st.sampled_from(["confirm", "abort", "pending", "restart", "full", "other"])), max_size=12
)


@pytest.mark.parametrize("kind", BACKENDS)
@given(steps=_STEPS)
def test_the_files_of_each_snapshot_give_the_bytes_of_the_whole_state(
    kind: StateBackend, steps: list[tuple[list[tuple[int, int, int]], str]]
) -> None:
    states = States(kind)
    confirmed: tuple[int, Chain, dict[int, bytes]] | None = None
    pending: dict[int, tuple[Chain, set[Piece]]] = {}
    made: set[Piece] = set()
    for k, (changes, what) in enumerate(steps, 1):
        for change in changes:
            states.change(*change)
        if what == "other" and isinstance(states.backend, ChangelogBackend):
            states.backend.seal()
            whole = states.backend.materialize()
            if whole is not None:
                states.change(0, 1, k)
                states.backend.materialized(whole, is_durable=k % 2 == 0)
        chain = states.snapshot(k, Snapshot.BASE if what == "full" else Snapshot.INCREMENT)
        expected = states.keyed.dump()
        assert dict(chain) == expected
        assert set(chain.pieces) <= set(states.backend.live)
        made |= set(chain.pieces)
        for older, before in pending.values():
            # If the older checkpoint completes first, the files that it does not use may be deleted.
            assert set(chain.pieces) & before <= set(older.pieces)
        pending[k] = (chain, set(made))
        if what == "confirm":
            confirming = min(pending) if k % 3 else k
            states.backend.confirm(confirming)
            confirmed = (confirming, pending[confirming][0], dict(pending[confirming][0]))
            pending = {of: each for of, each in pending.items() if of > confirming}
        elif what == "abort":
            states.backend.abort(k)
            del pending[k]
        elif what == "restart":
            states, pending, made = States(kind, attempt=k), {}, set()
            if confirmed is not None:
                states.keyed.restore(confirmed[2])
                states.backend.resume(confirmed[0], confirmed[1].pieces)
                assert states.keyed.dump() == confirmed[2]
        if what == "full":
            assert len(chain.pieces) == 1


def _driven(kind: StateBackend, rounds: int, config: RuntimeConfig = _CONFIG) -> tuple[States, list[Chain]]:
    """Change a few of 200 keys in each round, and complete a checkpoint after each round."""
    states, chains = States(kind, config), []
    for k in range(1, rounds + 1):
        for key in range(200) if k == 1 else range(k * 7, k * 7 + 9):
            states.value.set(key % 200, k)
            states.value.held[key % 200] = k + 1
        chains.append(states.snapshot(k))
        states.backend.confirm(k)
    return states, chains


@pytest.mark.parametrize("kind", BACKENDS)
def test_only_what_changed_is_written_and_old_files_are_used_again(kind: StateBackend) -> None:
    states, chains = _driven(kind, 3)
    first, second, third = (chain.pieces for chain in chains)
    assert len(first) == 1
    assert first[0].size_bytes == states.keyed.size_bytes == 200 * 116
    assert second[:1] == first
    assert third[:2] == second
    changes = 18 if kind is StateBackend.CHANGELOG else 9
    assert [piece.size_bytes for piece in third[1:]] == [changes * 116] * 2


def test_the_history_of_sorted_files_is_bounded_and_a_merge_leaves_out_deleted_rows() -> None:
    states, chains = _driven(StateBackend.SST, 60)
    # A merge happens after the snapshot with the last file, and the next snapshot adds its own file to the merged one.
    assert max(len(chain.pieces) for chain in chains) == _CONFIG.sst_runs_max + 1
    total = max(sum(piece.size_bytes for piece in chain.pieces) for chain in chains)
    assert total <= 3 * states.keyed.size_bytes
    for key in range(40):
        states.list.extend(key, [1])
    states.snapshot(61)
    for key in range(40):
        states.list.replace(key, [])
    for k in range(62, 80):
        states.value.set(0, k)
        states.snapshot(k)
    oldest, *_ = states.snapshot(80).pieces
    assert all(change.op is Op.PUT for data in oldest.groups.values() for change in decoded(data))


def test_a_row_whose_deletion_is_merged_only_with_newer_files_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest file still has the row, so the merged file has to keep the deletion."""
    monkeypatch.setattr(sst, "_LEVEL_BYTES", 10_000)
    states = States(StateBackend.SST)
    for key in range(200):
        states.value.set(key, key)
    states.list.extend(7, [1])
    whole = states.snapshot(1)
    states.list.replace(7, [])
    for k in range(2, 8):
        states.value.set(k, 2 * k)
        last = states.snapshot(k)
        assert dict(last) == states.keyed.dump()
        assert last.pieces[0] == whole.pieces[0], "the large file is not merged"
    assert len(last.pieces) < 7, "the newer files are merged"


def test_files_of_which_none_is_similar_to_the_newer_ones_are_merged_two_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sst, "_LEVEL_BYTES", 0)
    states = States(StateBackend.SST)
    row_counts = []
    for k, keys in enumerate((range(200), range(60), range(59, 79), range(6), ()), start=1):
        for key in keys:
            states.value.set(key, k)
        pieces = states.snapshot(k).pieces
        row_counts.append([piece.change_count for piece in pieces])
        assert states.backend.sync_bytes == (pieces[-1].size_bytes if keys else 0), "only the new file is copied"

    # Each file is more than twice as large as all newer ones, so only the last two are merged. They share one row.
    assert row_counts == [[200], [200, 60], [200, 60, 20], [200, 79, 6], [200, 79, 6]]


def test_a_difference_is_at_most_as_large_as_the_log_of_the_same_interval() -> None:
    (_, differences), (_, segments) = _driven(StateBackend.DIFF, 3), _driven(StateBackend.CHANGELOG, 3)
    for of_diff, of_log in zip(differences[1:], segments[1:], strict=True):
        assert 0 < of_diff.pieces[-1].size_bytes < of_log.pieces[-1].size_bytes


def test_comparing_needs_the_memory_of_the_base_and_time_and_both_are_told() -> None:
    states, _ = _driven(StateBackend.DIFF, 2, replace(_CONFIG, diff_ns_per_byte=1000))
    assert states.backend.extra_bytes == 2 * states.keyed.size_bytes
    assert states.backend.async_us == 2 * states.keyed.size_bytes
    assert states.backend.sync_bytes == states.keyed.size_bytes
    for kind in (StateBackend.CHANGELOG, StateBackend.SST):
        other, _ = _driven(kind, 2)
        assert (other.backend.extra_bytes, other.backend.async_us) == (0, 0)
        assert other.backend.sync_bytes < other.keyed.size_bytes / 10


def test_a_chain_of_differences_that_is_too_long_or_too_large_is_followed_by_the_whole_state() -> None:
    _, chains = _driven(StateBackend.DIFF, 9)
    assert [len(chain.pieces) for chain in chains] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    states = States(StateBackend.DIFF, replace(_CONFIG, diff_chain_max=100))
    for k in range(1, 5):
        for key in range(50):
            states.value.set(key, k)
        last = states.snapshot(k)
        states.backend.confirm(k)
    assert len(last.pieces) == 1, "the differences were larger than the state"


def test_the_base_is_the_last_confirmed_checkpoint_and_never_one_that_is_only_acknowledged() -> None:
    states, chains = _driven(StateBackend.DIFF, 1)
    states.value.set(5, 77)
    pending = states.snapshot(2)
    states.value.set(6, 78)
    after = states.snapshot(3)
    assert pending.pieces[-1] not in after.pieces
    assert after.pieces[:-1] == chains[0].pieces
    assert after.pieces[-1].change_count == 2


def test_a_snapshot_alone_leaves_the_chain_as_it_was() -> None:
    for kind in BACKENDS:
        states, chains = _driven(kind, 2)
        states.value.set(3, 99)
        states.backend.prepare(3, Snapshot.ALONE)
        assert states.keyed.snapshot() == states.keyed.dump()
        chain = states.snapshot(4)
        assert chain.pieces[: len(chains[-1].pieces)] == chains[-1].pieces
        assert dict(chain) == states.keyed.dump()
        states.backend.prepare(5, Snapshot.RESET)
        assert states.keyed.snapshot() == states.keyed.dump()
        assert len(states.snapshot(6).pieces) == 1


def test_materializing_shortens_the_log_and_a_failed_write_of_it_does_not() -> None:
    states, _ = _driven(StateBackend.CHANGELOG, 5)
    backend = states.backend
    assert isinstance(backend, ChangelogBackend)
    states.value.set(1, 50)
    whole = backend.materialize()
    assert whole is not None
    assert backend.materialize() is None, "one at a time"
    states.value.set(2, 51)
    assert len(states.snapshot(6).pieces) == 7
    backend.materialized(whole, is_durable=False)
    assert whole not in states.snapshot(7).pieces
    whole = backend.materialize()
    assert whole is not None
    backend.materialized(whole, is_durable=True)
    states.value.set(3, 52)
    chain = states.snapshot(8)
    assert chain.pieces[0] is whole
    assert len(chain.pieces) == 2
    assert dict(chain) == states.keyed.dump()


def test_every_operation_on_every_kind_of_state_is_recorded() -> None:
    states = States(StateBackend.CHANGELOG)
    states.snapshot(1)
    for what in (0, 1, 2, 2, 3, 4, 5, 6, 7):
        states.change(what, 1, 2)
    states.list.replace(1, [])
    taken = states.keyed.changes_since_last()
    assert {change.op for change in taken} == {Op.PUT, Op.APPEND, Op.DELETE, Op.SET, Op.UNSET, Op.ADD, Op.DISCARD}
    assert {change.part for change in taken} == set(range(5))
    assert states.keyed.changes_since_last() == []


@pytest.mark.parametrize("kind", [StateBackend.CHANGELOG, StateBackend.SST])
def test_changes_are_recorded_only_if_the_next_snapshot_needs_them(kind: StateBackend) -> None:
    states = States(kind)
    assert isinstance(states.backend, ChangelogBackend | SstBackend)
    log = states.backend.log

    def recorded() -> int:
        for at in range(500):
            states.change(at, at % 5, at % 3)
        return len(log)

    assert recorded() == 0, "the first chain begins with the whole state"
    states.snapshot(1)
    assert recorded() > 0
    states.backend.prepare(2, Snapshot.RESET)
    states.keyed.snapshot()
    assert recorded() == 0, "so does the chain after a reset"
    chain = states.snapshot(3)
    assert recorded() > 0
    again = States(kind, attempt=1)
    again.keyed.restore(dict(chain))
    again.backend.resume(3, chain.pieces)
    again.change(0, 1, 1)
    assert dict(again.snapshot(4)) == again.keyed.dump()


def test_a_row_that_changes_often_is_noted_once() -> None:
    states = States(StateBackend.SST)
    assert isinstance(states.backend, SstBackend)
    states.snapshot(1)
    for at in range(1000):
        states.value.set(at % 5, at)
    assert len(states.backend.log) == 5


def test_files_applied_in_another_order_give_another_state() -> None:
    states = States(StateBackend.CHANGELOG)
    states.value.set(1, 1)
    first = states.snapshot(1)
    states.value.held[1] = 2
    second = states.snapshot(2)
    groups = [piece.groups for piece in second.pieces]
    assert consolidated(groups, 5) == states.keyed.dump()
    assert consolidated(groups[::-1], 5) == dict(first)


def test_a_handle_finds_each_key_group_in_its_file() -> None:
    _, chains = _driven(StateBackend.SST, 1)
    piece: Piece = chains[0].pieces[0]
    handle = piece.handle_at("shared/a")
    assert {g: piece.content[at : at + n] for g, at, n in handle.spans} == dict(piece.groups)
    assert handle.as_placeholder.is_placeholder
    assert not handle.is_placeholder
