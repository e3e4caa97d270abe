"""Checks the commands of the input handlers for every pair of state and event (runtime.md Appendix A, T-7).

All protocols share one table. A row brings a new input handler with the given number of channels into a state,
applies one event, and names the expected commands.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.config import FrontInput, OnCap
from backend.runtime.measure.cap_decisions import CapAction, CapDecision
from backend.runtime.protocols.aligned_timeout import AlignedTimeout
from backend.runtime.protocols.base import (
    COORDINATOR,
    Began,
    Block,
    CheckpointProtocol,
    Close,
    Command,
    Convert,
    Ended,
    GiveUp,
    LogClosed,
    Persist,
    Reopen,
    Resume,
    SetStallTimer,
    SetTimer,
    Snapshot,
    Switched,
)
from backend.runtime.protocols.capped import Capped
from backend.runtime.protocols.gatekeeper import Gatekeeper
from backend.runtime.protocols.mode import Cap, InFlight, TaskView
from backend.runtime.protocols.registry import commands_at_source, protocol_of

AL = Barrier(5, 1_000, Alignment.ALIGNED)
AT = Barrier(5, 1_000, Alignment.ALIGNED, aligned_timeout_us=500)
UC = Barrier(5, 1_000, Alignment.UNALIGNED)
UL = Barrier(5, 1_000, Alignment.UNALIGNED_LAST)
CL = Barrier(5, 1_000, Alignment.MARKER)
CB = Barrier(5, 1_000, Alignment.BLOCKING_MARKER)
CAP = Barrier(5, 1_000, Alignment.UNALIGNED, is_capped=True)
SUBSUMED, CANCELLED = FailureReason.DECLINED_SUBSUMED, FailureReason.DECLINED_ON_CANCELLATION
EARLY, AT_TIMEOUT, LATE = 1_100, 1_500, 1_501


def _make(barrier: Barrier, channels: frozenset[int]) -> CheckpointProtocol:
    return protocol_of(barrier, channels, TaskView())


Step = Callable[[Gatekeeper], list[Command]]


def barrier(channel: int, which: Barrier, now_us: int = EARLY) -> Step:
    return lambda keeper: keeper.barrier(channel, which, now_us)


def announced(channel: int, which: Barrier = AT, now_us: int = EARLY) -> Step:
    return lambda keeper: keeper.announcement(channel, which, now_us)


def timer(now_us: int = AT_TIMEOUT, checkpoint_id: int = 5) -> Step:
    return lambda keeper: keeper.timer(checkpoint_id, now_us)


def end(channel: int, now_us: int = EARLY) -> Step:
    return lambda keeper: keeper.end_of_partition(channel, now_us)


def cancelled(checkpoint_id: int = 5) -> Step:
    return lambda keeper: keeper.cancel(checkpoint_id, 0)


def aborted(checkpoint_id: int = 5) -> Step:
    return lambda keeper: keeper.aborted(checkpoint_id)


def newer(which: Barrier, checkpoint_id: int = 6) -> Barrier:
    return Barrier(checkpoint_id, 2_000, which.alignment, which.aligned_timeout_us, None, which.is_capped)


SWITCHED_AT = AT.as_unaligned()
U_SNAPSHOT: list[Command] = [Persist(), Snapshot(SWITCHED_AT)]
ROWS: list[tuple[str, int, list[Step], Step, list[Command]]] = [
    # --- aligned ---
    ("AL wait, Bal not last", 2, [], barrier(0, AL), [Began(AL), Block(0)]),
    (
        "AL wait, Bal last on one channel",
        1,
        [],
        barrier(0, AL),
        [Began(AL), Block(0), Ended(), Snapshot(AL), Resume(0)],
    ),
    (
        "AL collecting, Bal last",
        2,
        [barrier(0, AL)],
        barrier(1, AL),
        [Block(1), Ended(), Snapshot(AL), Resume(0), Resume(1)],
    ),
    ("AL collecting, Eop not last", 3, [barrier(0, AL)], end(1), []),
    (
        "AL collecting, Eop last",
        2,
        [barrier(0, AL)],
        end(1),
        [Ended(), Snapshot(AL), Resume(0)],
    ),
    (
        "AL Eop after its own barrier",
        3,
        [barrier(0, AL), barrier(1, AL), end(0)],
        barrier(2, AL),
        [Block(2), Ended(), Snapshot(AL), Resume(1), Resume(2)],
    ),
    ("AL Eop before any barrier", 2, [end(0)], barrier(1, AL), [
        Began(AL), Block(1), Ended(), Snapshot(AL), Resume(1)]),
    (
        "AL collecting, new id",
        2,
        [barrier(0, AL)],
        barrier(1, newer(AL)),
        [Ended(), Resume(0), GiveUp(5, SUBSUMED), Began(newer(AL)), Block(1)],
    ),
    ("AL obsolete after completion", 2, [barrier(0, AL), barrier(1, AL)], barrier(0, AL), [Resume(0)]),
    ("AL obsolete lower id", 2, [barrier(0, newer(AL))], barrier(1, AL), [Resume(1)]),
    ("AL cancel while collecting", 2, [barrier(0, AL)], cancelled(), [Ended(), Resume(0), GiveUp(5, CANCELLED)]),
    ("AL cancel of an unseen id", 2, [], cancelled(), [GiveUp(5, CANCELLED)]),
    ("AL cancel of a done id", 2, [barrier(0, AL), barrier(1, AL)], cancelled(), []),
    ("AL barrier after its cancel", 2, [cancelled()], barrier(0, AL), [Resume(0)]),
    ("AL coordinator's abort while collecting", 2, [barrier(0, AL)], aborted(), [Ended(), Resume(0)]),
    ("AL barrier after the coordinator's abort", 2, [aborted()], barrier(0, AL), [Resume(0), GiveUp(5, CANCELLED)]),
    ("AL second barrier after the coordinator's abort", 2, [aborted(), barrier(0, AL)], barrier(1, AL), [Resume(1)]),
    ("AL abort of a done id", 2, [barrier(0, AL), barrier(1, AL)], aborted(), []),
    ("AL timer", 2, [barrier(0, AL)], timer(), []),
    # --- unaligned ---
    (
        "UC wait, Bun not last",
        2,
        [],
        barrier(0, UC),
        [Began(UC), Persist(), Snapshot(UC)],
    ),
    ("UC collect, Bun last", 2, [barrier(0, UC)], barrier(1, UC), [Ended()]),
    (
        "UC collect, Bal keeps its channel blocked to the end",
        3,
        [barrier(0, UC), barrier(1, AL)],
        barrier(2, UC),
        [Ended(), Resume(1)],
    ),
    ("UC collect, Ann", 2, [barrier(0, UC)], announced(1), [Convert(1)]),
    ("UC collect, Ann of an arrived channel", 2, [barrier(0, UC)], announced(0), []),
    ("UC collect, Eop last", 2, [barrier(0, UC)], end(1), [Ended()]),
    ("UC obsolete Bun", 2, [barrier(0, UC), barrier(1, UC)], barrier(0, UC), []),
    ("UC obsolete Ann", 2, [barrier(0, UC), barrier(1, UC)], announced(0), []),
    (
        "UC collect, new id",
        2,
        [barrier(0, UC)],
        barrier(0, newer(UC)),
        [Ended(), GiveUp(5, SUBSUMED), Began(newer(UC)), Persist(), Snapshot(newer(UC))],
    ),
    ("UC cancel", 2, [barrier(0, UC)], cancelled(), [Ended(), GiveUp(5, CANCELLED)]),
    ("UC timer", 2, [barrier(0, UC)], timer(), []),
    # --- unaligned on the last barrier ---
    ("UL wait, Bul not last", 2, [], barrier(0, UL), [Began(UL), SetStallTimer(), Close(0)]),
    ("UL wait, Bul last on one channel", 1, [], barrier(0, UL), [
        Began(UL), SetStallTimer(), Close(0), Persist(), Snapshot(UL), Reopen(0), Ended()]),
    ("UL collect, Bul last", 2, [barrier(0, UL)], barrier(1, UL), [
        Close(1), Persist(), Snapshot(UL), Reopen(0), Reopen(1), Ended()]),
    ("UL collect, Bal keeps its channel blocked to the end", 3, [barrier(0, UL), barrier(1, AL)], barrier(2, UL), [
        Close(2), Persist(), Snapshot(UL), Reopen(0), Reopen(2), Ended(), Resume(1)]),
    ("UL collect, Eop last", 2, [barrier(0, UL)], end(1), [Persist(), Snapshot(UL), Reopen(0), Ended()]),
    ("UL wait, Eop", 2, [], end(1), []),
    ("UL obsolete Bul", 2, [barrier(0, UL), barrier(1, UL)], barrier(0, UL), []),
    ("UL cancel", 2, [barrier(0, UL)], cancelled(), [Ended(), GiveUp(5, CANCELLED)]),
    ("UL coordinator's abort", 2, [barrier(0, UL)], aborted(), [Ended()]),
    ("UL timer", 2, [barrier(0, UL)], timer(), []),
    (
        "UL collect, new id",
        2,
        [barrier(0, UL)],
        barrier(0, newer(UL)),
        [Ended(), GiveUp(5, SUBSUMED), Began(newer(UL)), SetStallTimer(), Close(0)],
    ),
    # --- Chandy-Lamport ---
    ("CL wait, Mrk not last", 2, [], barrier(0, CL), [Began(CL), Persist(), Snapshot(CL)]),
    ("CL wait, Mrk last on one channel", 1, [], barrier(0, CL), [Began(CL), Persist(), Snapshot(CL), Ended()]),
    ("CL wait, coordinator's message", 2, [], barrier(COORDINATOR, CL), [Began(CL), Persist(), Snapshot(CL)]),
    ("CL wait, Mrk that has arrived on another channel", 2, [announced(1, CL)], barrier(0, CL), [
        Began(CL), Persist(), LogClosed(1), Snapshot(CL), Ended()]),
    ("CL wait, Mrk whose own arrival was announced", 2, [announced(0, CL)], barrier(0, CL), [
        Began(CL), Persist(), Snapshot(CL)]),
    ("CL wait, arrival", 2, [], announced(0, CL), []),
    ("CL log, Mrk last", 2, [barrier(0, CL)], barrier(1, CL), [Ended()]),
    ("CL log, arrival closes the log and ends", 2, [barrier(0, CL)], announced(1, CL), [LogClosed(1), Ended()]),
    ("CL log, arrival of one of two", 3, [barrier(0, CL)], announced(1, CL), [LogClosed(1)]),
    ("CL log, coordinator's message comes late", 2, [barrier(0, CL)], barrier(COORDINATOR, CL), []),
    ("CL log after the coordinator's message, Mrk of every channel", 2, [barrier(COORDINATOR, CL), barrier(0, CL)],
        barrier(1, CL), [Ended()]),
    ("CL log, Eop last", 2, [barrier(0, CL)], end(1), [Ended()]),
    ("CL log after the coordinator's message, Eop of one of two", 2, [barrier(COORDINATOR, CL)], end(1), []),
    ("CL obsolete Mrk after its arrival ended the log", 2, [barrier(0, CL), announced(1, CL)], barrier(1, CL), []),
    ("CL obsolete coordinator's message", 1, [barrier(0, CL)], barrier(COORDINATOR, CL), []),
    (
        "CL log, new id",
        2,
        [barrier(0, CL)],
        barrier(0, newer(CL)),
        [Ended(), GiveUp(5, SUBSUMED), Began(newer(CL)), Persist(), Snapshot(newer(CL))],
    ),
    ("CL cancel", 2, [barrier(0, CL)], cancelled(), [Ended(), GiveUp(5, CANCELLED)]),
    ("CL coordinator's abort", 2, [barrier(0, CL)], aborted(), [Ended()]),
    ("CL Mrk after the coordinator's abort", 2, [aborted()], barrier(0, CL), [GiveUp(5, CANCELLED)]),
    ("CL timer", 2, [barrier(0, CL)], timer(), []),
    # --- Chandy-Lamport that blocks the channels whose marker was read (CL-11) ---
    ("CB wait, Mrk not last", 2, [], barrier(0, CB), [Began(CB), Block(0), Persist(), Snapshot(CB)]),
    ("CB wait, coordinator's message", 2, [], barrier(COORDINATOR, CB), [Began(CB), Persist(), Snapshot(CB)]),
    ("CB coordinator's message after the abort", 2, [aborted()], barrier(COORDINATOR, CB), [GiveUp(5, CANCELLED)]),
    ("CB log, arrival of the last ends the log and not the block", 2, [barrier(0, CB)], announced(1, CB), [
        LogClosed(1), Ended()]),
    ("CB after the log, Mrk read", 2, [barrier(0, CB), announced(1, CB)], barrier(1, CB), [
        Block(1), Resume(0), Resume(1)]),
    ("CB log, Mrk last without an arrival", 2, [barrier(0, CB)], barrier(1, CB), [
        Block(1), Ended(), Resume(0), Resume(1)]),
    ("CB after the log, Eop of the unread one", 2, [barrier(0, CB), announced(1, CB)], end(1), [Resume(0)]),
    ("CB after the log, coordinator's abort", 2, [barrier(0, CB), announced(1, CB)], aborted(), [Ended(), Resume(0)]),
    (
        "CB after the log, new id",
        2,
        [barrier(0, CB), announced(1, CB)],
        barrier(COORDINATOR, newer(CB)),
        [Ended(), Resume(0), GiveUp(5, SUBSUMED), Began(newer(CB)), Persist(), Snapshot(newer(CB))],
    ),
    ("CB obsolete Mrk", 2, [barrier(0, CB), barrier(1, CB)], barrier(1, CB), [Resume(1)]),
    # --- aligned with timeout ---
    ("AT wait, first Ann", 2, [], announced(0), [SetTimer(1_500)]),
    ("AT wait, second Ann", 2, [announced(0)], announced(1), []),
    ("AT wait, Bal young", 2, [announced(0)], barrier(0, AT), [Began(AT), Block(0)]),
    ("AT wait, Bal without announcement", 2, [], barrier(0, AT), [SetTimer(1_500), Began(AT), Block(0)]),
    (
        "AT wait, Bal exactly at the timeout still aligns",
        2,
        [announced(0)],
        barrier(0, AT, AT_TIMEOUT),
        [Began(AT), Block(0)],
    ),
    (
        "AT wait, Bal too old",
        2,
        [announced(0), announced(1)],
        barrier(0, AT, LATE),
        [Began(AT), Block(0), Switched(), Convert(1), *U_SNAPSHOT],
    ),
    (
        "AT collecting, Bal last though old",
        2,
        [barrier(0, AT)],
        barrier(1, AT, LATE),
        [Block(1), Ended(), Snapshot(AT), Resume(0), Resume(1)],
    ),
    (
        "AT collecting, Bal not last and old",
        3,
        [barrier(0, AT), announced(2)],
        barrier(1, AT, LATE),
        [Block(1), Switched(), Convert(2), *U_SNAPSHOT],
    ),
    (
        "AT collecting, Tmr",
        2,
        [barrier(0, AT), announced(1)],
        timer(),
        [Switched(), Convert(1), *U_SNAPSHOT],
    ),
    ("AT wait, Tmr converts and waits", 2, [announced(0), announced(1)], timer(), [Switched(), Convert(0), Convert(1)]),
    (
        "AT wait_u, converted Bal starts and keeps its channel blocked",
        2,
        [announced(0), timer()],
        barrier(0, AT, LATE),
        [Began(AT), Block(0), *U_SNAPSHOT],
    ),
    ("AT wait_u, Ann", 2, [announced(0), timer()], announced(1), [Convert(1)]),
    ("AT wait_u, Tmr", 2, [announced(0), timer()], timer(LATE), []),
    (
        "AT wait, Bun switches",
        2,
        [announced(1)],
        barrier(0, UC),
        [Switched(), Convert(1), Began(UC), Persist(), Snapshot(UC)],
    ),
    (
        "AT collecting, Bun switches",
        3,
        [barrier(0, AT)],
        barrier(1, UC),
        [Switched(), Persist(), Snapshot(UC)],
    ),
    (
        "AT collecting, Bun last switches and ends",
        2,
        [barrier(0, AT)],
        barrier(1, UC),
        [Switched(), Persist(), Snapshot(UC), Ended(), Resume(0)],
    ),
    (
        "AT collecting_u, channels blocked before stay so to the end",
        3,
        [barrier(0, AT), timer(), barrier(1, UC)],
        barrier(2, UC),
        [Ended(), Resume(0)],
    ),
    ("AT collecting_u, Eop last", 2, [barrier(0, AT), timer()], end(1), [Ended(), Resume(0)]),
    (
        "AT collecting, Eop last",
        2,
        [barrier(0, AT)],
        end(1),
        [Ended(), Snapshot(AT), Resume(0)],
    ),
    ("AT collecting, Eop not last and old", 3, [barrier(0, AT)], end(1, LATE), [Switched(), *U_SNAPSHOT]),
    ("AT wait, Eop", 2, [announced(0)], end(0), []),
    ("AT timer after completion", 2, [barrier(0, AT), barrier(1, AT)], timer(), []),
    ("AT obsolete Bal", 2, [barrier(0, AT), barrier(1, AT)], barrier(0, AT), [Resume(0)]),
    ("AT cancel", 2, [barrier(0, AT)], cancelled(), [Ended(), Resume(0), GiveUp(5, CANCELLED)]),
    ("AT cancel after the switch", 2, [barrier(0, AT), timer()], cancelled(), [
        Ended(), Resume(0), GiveUp(5, CANCELLED)]),
    (
        "AT new id by announcement",
        2,
        [barrier(0, AT)],
        announced(1, newer(AT)),
        [Ended(), Resume(0), GiveUp(5, SUBSUMED), SetTimer(2_500)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "before", "event", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_each_event_in_each_state_gives_the_commands_of_the_table(
    channels: int, before: list[Step], event: Step, expected: list[Command]
) -> None:
    keeper = Gatekeeper(channels, _make)
    for step in before:
        step(keeper)
    assert event(keeper) == expected


# With the task's own clock (AT-14), the aligned timeout counts from the time at which the first announcement or
# barrier of the checkpoint reaches the task. In these tests, this happens at 1_400 µs.
_OWN_CLOCK_US = 1_400
OWN_CLOCK_ROWS: list[tuple[str, int, list[Step], Step, list[Command]]] = [
    ("first Ann", 2, [], announced(0), [SetTimer(1_900)]),
    ("Bal that is old by the trigger's clock", 2, [announced(0)], barrier(0, AT, LATE), [Began(AT), Block(0)]),
    ("Bal exactly at its timeout", 2, [announced(0)], barrier(0, AT, 1_900), [Began(AT), Block(0)]),
    ("Bal too old", 2, [announced(0)], barrier(0, AT, 1_901), [Began(AT), Block(0), Switched(), *U_SNAPSHOT]),
    ("Tmr while collecting", 2, [barrier(0, AT)], timer(1_900), [Switched(), *U_SNAPSHOT]),
    ("Bun switches all the same", 2, [announced(1)], barrier(0, UC), [
        Switched(), Convert(1), Began(UC), Persist(), Snapshot(UC)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "before", "event", "expected"), [r[1:] for r in OWN_CLOCK_ROWS], ids=[r[0] for r in OWN_CLOCK_ROWS]
)
def test_the_tasks_own_clock_counts_from_its_first_sign_of_the_checkpoint(
    channels: int, before: list[Step], event: Step, expected: list[Command]
) -> None:
    keeper = Gatekeeper(channels, lambda which, opened: AlignedTimeout(which, opened, counts_from_us=_OWN_CLOCK_US))
    for step in before:
        step(keeper)
    assert event(keeper) == expected


def test_the_last_barrier_waits_until_the_input_in_front_of_the_cuts_is_processed_if_it_is_to_be_drained() -> None:
    front = [True]
    view = TaskView(front_input=lambda: FrontInput.DRAIN, has_front=lambda: front[0])
    keeper = Gatekeeper(2, lambda which, opened: protocol_of(which, opened, view))
    assert keeper.barrier(0, UL, EARLY) == [Began(UL), SetStallTimer(), Close(0)]
    assert keeper.recheck(EARLY) == []
    assert keeper.barrier(1, UL, EARLY) == [Close(1)]
    assert keeper.recheck(EARLY) == []
    front[0] = False
    assert keeper.recheck(LATE) == [Persist(), Snapshot(UL), Reopen(0), Reopen(1), Ended()]
    assert keeper.pending_id is None


class _Room:
    """A stub that reports in-flight bytes to the capped protocol. The test sets these numbers."""

    def __init__(self, waiting: int, overtakable: int) -> None:
        self.now = InFlight(waiting, overtakable)
        self.partial_bytes = 0
        """The input that no step can process, because it is the beginning of a record."""

    def __call__(self) -> InFlight:
        return self.now

    def has_front(self) -> bool:
        return self.now.input_bytes > self.partial_bytes


def _capped(
    room: _Room, *, channels: int = 2, declines: bool = False, told: list[CapDecision] | None = None
) -> Gatekeeper:
    decided = (lambda _: None) if told is None else told.append
    return Gatekeeper(
        channels,
        lambda _, opened: Capped(
            opened, cap_bytes=100, in_flight=room, has_front=room.has_front, declines=declines, decided=decided
        ),
    )


@pytest.mark.parametrize("which", [AL, AT, UC], ids=["aligned", "aligned-timeout", "unaligned"])
def test_a_checkpoint_that_supersedes_another_is_completed(which: Barrier) -> None:
    keeper = Gatekeeper(3, _make)
    keeper.barrier(0, which, EARLY)
    keeper.barrier(0, newer(which), EARLY)
    assert keeper.pending_id == 6
    commands = keeper.barrier(1, newer(which), EARLY) + keeper.barrier(2, newer(which), EARLY)
    assert Ended() in commands
    assert keeper.pending_id is None


def test_a_capped_checkpoint_that_fits_starts_with_the_last_barrier() -> None:
    keeper = _capped(_Room(60, 40))
    assert keeper.barrier(0, CAP, 0) == [Began(CAP), SetStallTimer(100), Close(0)]
    assert keeper.recheck(0) == []
    snapshot = [Persist(), Snapshot(CAP)]
    assert keeper.barrier(1, CAP, 0) == [Close(1), *snapshot, Reopen(0), Reopen(1), Ended()]
    assert keeper.pending_id is None


def test_a_capped_checkpoint_waits_until_it_fits() -> None:
    room = _Room(60, 41)
    keeper = _capped(room)
    keeper.barrier(0, CAP, 0)
    assert keeper.barrier(1, CAP, 0) == [Close(1)]
    assert keeper.recheck(0) == []
    room.now = InFlight(59, 41)
    snapshot = [Persist(), Snapshot(CAP)]
    assert keeper.recheck(0) == [*snapshot, Reopen(0), Reopen(1), Ended()]
    assert keeper.recheck(0) == []


def test_the_barrier_of_a_capped_checkpoint_whose_input_is_drained_waits_in_the_output() -> None:
    room = _Room(5, 500)
    keeper = _capped(room)
    keeper.barrier(0, CAP, 0)
    assert keeper.barrier(1, CAP, 0) == [Close(1)]
    room.now = InFlight(0, 500)
    waiting = Snapshot(CAP, output_bytes_max=100, overtakes_later=True)
    assert keeper.recheck(0) == [waiting, Reopen(0), Reopen(1), Ended()]


def test_the_beginning_of_a_record_whose_end_is_behind_the_cut_is_persisted_and_leaves_less_room_for_output() -> None:
    room = _Room(35, 500)
    keeper = _capped(room, channels=1)
    keeper.barrier(0, CAP, 0)
    room.now, room.partial_bytes = InFlight(30, 500), 30
    waiting = Snapshot(CAP, output_bytes_max=70, overtakes_later=True)
    assert keeper.recheck(0) == [Persist(), waiting, Reopen(0), Ended()]


@pytest.mark.parametrize(
    ("on_cap", "output_bytes", "given"),
    [
        (OnCap.WAIT, 100, Snapshot(CAP)),
        (OnCap.WAIT, 101, Snapshot(CAP, output_bytes_max=100, overtakes_later=True)),
        (OnCap.PARTIAL, 101, Snapshot(CAP, output_bytes_max=100)),
        (OnCap.DECLINE, 101, GiveUp(5, FailureReason.INFLIGHT_LIMIT_EXCEEDED)),
    ],
)
def test_a_source_waits_at_its_cap_in_the_output_and_takes_its_state_at_once(
    on_cap: OnCap, output_bytes: int, given: Command
) -> None:
    cap = Cap(lambda: 100, _Room(0, output_bytes), lambda: on_cap, lambda _: None, lambda: 0)
    assert commands_at_source(CAP, TaskView(cap=cap)) == [given]


def test_a_capped_checkpoint_keeps_a_channel_blocked_whose_barrier_did_not_overtake() -> None:
    keeper = _capped(_Room(0, 0))
    keeper.barrier(0, CAP.as_aligned(), 0)
    snapshot = [Persist(), Snapshot(CAP)]
    assert keeper.barrier(1, CAP, 0) == [Close(1), *snapshot, Reopen(1), Ended(), Resume(0)]


def test_the_end_of_the_last_missing_channel_starts_a_capped_checkpoint() -> None:
    keeper = _capped(_Room(60, 40))
    keeper.barrier(0, CAP, 0)
    snapshot = [Persist(), Snapshot(CAP)]
    assert keeper.end_of_partition(1, 0) == [*snapshot, Reopen(0), Ended()]


def test_a_capped_checkpoint_declines_if_configured_or_if_nothing_moves() -> None:
    given_up = GiveUp(5, FailureReason.INFLIGHT_LIMIT_EXCEEDED)
    assert _capped(_Room(101, 0), channels=1, declines=True).barrier(0, CAP, 0)[-1] == given_up
    keeper = _capped(_Room(101, 0))
    keeper.barrier(0, CAP, 0)
    assert keeper.timer(5, 0) == [Ended(), Reopen(0), given_up]
    assert keeper.timer(5, 0) == []


def test_a_capped_checkpoint_reports_its_decision() -> None:
    told: list[CapDecision] = []
    room = _Room(60, 41)

    def keeper(*, declines: bool = False) -> Gatekeeper:
        return _capped(room, channels=1, declines=declines, told=told)

    waiting = keeper()
    waiting.barrier(0, CAP, 7)
    assert told == []
    room.now = InFlight(30, 41)
    waiting.recheck(19)
    keeper().barrier(0, CAP, 20)
    room.now = InFlight(0, 500)
    keeper().barrier(0, CAP, 21)
    room.now = InFlight(1, 500)
    keeper(declines=True).barrier(0, CAP, 22)
    stalled = keeper()
    stalled.barrier(0, CAP, 23)
    stalled.timer(5, 40)
    assert told == [
        CapDecision(100, 101, 71, 12, CapAction.WAITED),
        CapDecision(100, 71, 71, 0, CapAction.OVERTOOK),
        CapDecision(100, 500, 500, 0, CapAction.ALIGNED),
        CapDecision(100, 501, 501, 0, CapAction.DECLINED),
        CapDecision(100, 501, 501, 17, CapAction.DECLINED),
    ]


@pytest.mark.parametrize("which", [AL, AT, UC], ids=["aligned", "aligned-timeout", "unaligned"])
def test_each_protocol_snapshots_once_ends_once_and_keeps_nothing_afterwards(which: Barrier) -> None:
    for channels in (1, 2, 5):
        keeper = Gatekeeper(channels, _make)
        commands = [c for channel in range(channels) for c in keeper.barrier(channel, which, EARLY)]
        assert sum(isinstance(c, Snapshot) for c in commands) == 1
        assert sum(isinstance(c, Ended) for c in commands) == 1
        blocked = [c.channel for c in commands if isinstance(c, Block)]
        assert sorted(c.channel for c in commands if isinstance(c, Resume)) == sorted(blocked)
        assert keeper.pending_id is None
