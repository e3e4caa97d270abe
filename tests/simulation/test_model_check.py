"""Goal: no interleaving of a small job breaks INV-1 to INV-3 or INV-6, or leaves anything behind (T-8).

Method: explore the whole state space of ``tests/simulators/model_job.py``, which uses the real input handlers.
This test explores only the smallest state spaces, and checks that broken handlers are found. ``make
model-check`` explores the larger state spaces.
"""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.core.elements import Alignment
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.at_least_once import AtLeastOnce
from backend.runtime.protocols.base import Close, Persist, Resume, Snapshot
from backend.runtime.protocols.capped import Capped
from backend.runtime.protocols.chandy_lamport import ChandyLamport
from backend.runtime.protocols.last_barrier import LastBarrier
from backend.runtime.protocols.unaligned import Unaligned
from backend.runtime.task.ending import Ending
from tests.simulators.model_check import TooManyStatesError, explore
from tests.simulators.model_ending import EndingWorld
from tests.simulators.model_handlers import ModelError
from tests.simulators.model_job import TIMEOUT_US, World


def test_two_aligned_checkpoints_hold_in_every_interleaving() -> None:
    states, _, endings = explore(World(Alignment.ALIGNED, None, 1, expires=False))
    assert states > 500
    assert endings == {"1 completed", "2 completed"}


def test_an_unaligned_checkpoint_holds_in_every_interleaving() -> None:
    states, _, endings = explore(World(Alignment.UNALIGNED, None, 1, checkpoints=1, expires=False))
    assert states > 1_000
    assert endings == {"1 completed"}


@pytest.mark.parametrize(
    ("alignment", "triggers_all"),
    [
        (Alignment.MARKER, False),
        pytest.param(Alignment.MARKER, True, marks=pytest.mark.slow),
        (Alignment.OVERTAKING_MARKER, False),
        (Alignment.BLOCKING_MARKER, False),
        (Alignment.UNALIGNED_LAST, False),
    ],
)
def test_a_chandy_lamport_checkpoint_or_one_on_the_last_barrier_holds_in_every_interleaving(
    alignment: Alignment, triggers_all: bool
) -> None:
    world = World(alignment, None, 1, checkpoints=1, expires=False, triggers_all=triggers_all)
    states, _, endings = explore(world)
    assert states > 400
    assert endings == {"1 completed"}


@pytest.mark.slow
def test_an_aligned_checkpoint_that_may_time_out_at_any_moment_holds_in_every_interleaving() -> None:
    states, _, endings = explore(World(Alignment.ALIGNED, TIMEOUT_US, 1, checkpoints=1, expires=False))
    assert states > 5_000
    assert endings == {"1 completed"}


@pytest.mark.parametrize(
    ("cap", "on_cap", "stalls", "least", "endings"),
    [
        (1, "wait", False, 800, {"1 completed"}),
        pytest.param(1, "wait", True, 2_000, {"1 completed", "1 failed"}, marks=pytest.mark.slow),
        (0, "partial", False, 800, {"1 completed"}),
        (1, "decline", False, 900, {"1 completed", "1 failed"}),
    ],
)
def test_a_capped_checkpoint_holds_and_persists_no_more_than_its_cap_in_every_interleaving(
    cap: int, on_cap: str, stalls: bool, least: int, endings: set[str]
) -> None:
    world = World(Alignment.UNALIGNED, None, 1, checkpoints=1, expires=False, cap=cap, on_cap=on_cap, stalls=stalls)
    states, _, found = explore(world)
    assert states > least
    assert found == endings


def test_at_least_once_loses_no_record_in_any_interleaving_and_repeats_known_ones_only() -> None:
    states, _, endings = explore(World(Alignment.AT_LEAST_ONCE, None, 1, expires=False))
    assert states > 1_000
    assert endings == {"1 completed", "2 completed"}


def _world(alignment: Alignment, *, records: int = 1, cap: int | None = None) -> World:
    return World(alignment, None, records, checkpoints=1, expires=False, cap=cap)


@pytest.mark.parametrize(
    ("handler", "method", "drop", "world", "rule"),
    [
        (Unaligned, "start", Persist, _world(Alignment.UNALIGNED), "INV-2"),
        (ChandyLamport, "start", Persist, _world(Alignment.MARKER), "INV-2"),
        (LastBarrier, "_advance", Persist, _world(Alignment.UNALIGNED_LAST), "INV-2"),
        (LastBarrier, "barrier", Close, _world(Alignment.UNALIGNED_LAST), "INV-2|INV-3"),
        (Aligned, "_complete", Resume, _world(Alignment.ALIGNED), "INV-9"),
        (Capped, "_advance", Persist, _world(Alignment.UNALIGNED, cap=2), "INV-2"),
        (Capped, "barrier", Close, _world(Alignment.UNALIGNED, cap=2), r"INV-2|INV-3"),
        (Capped, "recheck", Snapshot, _world(Alignment.UNALIGNED, cap=1), "INV-9"),
        (AtLeastOnce, "_snapshot", Snapshot, _world(Alignment.AT_LEAST_ONCE), "INV-9"),
    ],
    ids=[
        "no copies",
        "no log",
        "no copies, last barrier",
        "none closed, last barrier",
        "no channel resumed",
        "no copies, capped",
        "none closed",
        "no room seen",
        "no snapshot",
    ],
)
def test_a_handler_that_leaves_a_command_out_is_found(
    handler: Any, method: str, drop: type, world: World, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(handler, method)
    without = lambda *given: [c for c in whole(*given) if not isinstance(c, drop)]  # noqa: E731
    monkeypatch.setattr(handler, method, without)
    with pytest.raises(ModelError, match=rule) as found:
        explore(world)
    assert found.value.path


@pytest.mark.parametrize(
    ("handler", "method", "world", "rule"),
    [
        (Aligned, "_complete", _world(Alignment.ALIGNED), r"INV-2|INV-3"),
        (Capped, "_advance", _world(Alignment.UNALIGNED, cap=2), r"INV-2|INV-3"),
    ],
)
def test_a_snapshot_at_the_first_barrier_is_found(
    handler: Any, method: str, world: World, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(handler, method)

    def hasty(self: Any, *given: Any) -> list[Any]:
        self._open = frozenset(self._arrived)
        commands: list[Any] = whole(self, *given)
        return commands

    monkeypatch.setattr(handler, method, hasty)
    with pytest.raises(ModelError, match=rule):
        explore(world)


def test_a_count_that_ends_at_the_first_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = AtLeastOnce.barrier

    def hasty(self: AtLeastOnce, *given: Any) -> list[Any]:
        self._open = 1
        return barrier(self, *given)

    monkeypatch.setattr(AtLeastOnce, "barrier", hasty)
    with pytest.raises(ModelError, match="INV-6: checkpoint 1"):
        explore(_world(Alignment.AT_LEAST_ONCE))


def test_a_sink_that_never_empties_its_queue_is_an_error_with_its_channel_and_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = World._read

    def leaves_it(self: World, c: int, *, is_priority: bool) -> None:
        if c != 2:
            read(self, c, is_priority=is_priority)

    monkeypatch.setattr(World, "_read", leaves_it)
    with pytest.raises(ModelError, match="INV-9: the sink reads channel 2 and its queue gets no shorter"):
        explore(World(Alignment.ALIGNED, None, 1, expires=False))


def test_a_cap_that_is_not_enforced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Capped._advance

    def greedy(self: Capped, now_us: int) -> list[Any]:
        self._cap_bytes = 9
        return advance(self, now_us)

    monkeypatch.setattr(Capped, "_advance", greedy)
    with pytest.raises(ModelError, match="CAP-2: checkpoint 1, task 2: 2 persisted, cap 1"):
        explore(_world(Alignment.UNALIGNED, cap=1))


# --- sources that end -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("alignment", [Alignment.ALIGNED, Alignment.UNALIGNED, Alignment.MARKER])
def test_a_job_whose_sources_end_commits_everything_in_every_interleaving(alignment: Alignment) -> None:
    """The first states are explored. ``make model-check`` explores all of them."""
    try:
        _, ends, endings = explore(EndingWorld(alignment, 1), most=20_000)
    except TooManyStatesError:
        return
    assert ends > 0
    assert endings >= {"1 completed"}


def test_a_job_without_records_ends_after_a_final_checkpoint_in_every_interleaving() -> None:
    states, ends, endings = explore(EndingWorld(Alignment.ALIGNED, 0, checkpoints=0))
    assert states > 100
    assert ends > 0
    assert endings == {"1 completed"}


@pytest.mark.parametrize(
    ("patch", "rule"),
    [
        (("may_close", property(lambda self: self.is_at_end and self._are_inputs_ended)), "FN-32|INV-"),
        (("processed", lambda self: None), "FN-28"),
        (("snapshotting", lambda self, _: None), "FN-28"),
    ],
    ids=["the final checkpoint is not awaited", "no report that all is processed", "no checkpoint is the final one"],
)
def test_a_broken_end_is_found(patch: tuple[str, Any], rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ending, *patch)
    with pytest.raises(ModelError, match=rule):
        explore(EndingWorld(Alignment.ALIGNED, 1, checkpoints=0), most=200_000)
