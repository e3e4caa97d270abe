"""The vertices and channels of the model's job (T-8), and the checks of completed checkpoints and finished runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.runtime.core.elements import Alignment
from tests.simulators.model_handlers import ModelError

if TYPE_CHECKING:
    from tests.simulators.model_job import World

_JOIN, _SINK = 2, 3
# Each channel is (sender, receiver, index among the receiver's inputs).
CHANNELS = ((0, _JOIN, 0), (1, _JOIN, 1), (_JOIN, _SINK, 0))
INPUTS: tuple[tuple[int, ...], ...] = ((), (), (0, 1), (2,))
OUTPUTS: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), ())
TASKS = range(4)


def check_cut(world: World, k: int) -> None:
    """Check a completed checkpoint: INV-2, INV-3 and the cap on in-flight data.

    Under at-least-once, check INV-6 instead.
    """
    if world.alignment is Alignment.AT_LEAST_ONCE:
        _check_at_least_once(world, k)
        return
    for c, (sender, receiver, _) in enumerate(CHANNELS):
        sent, done = world.sent[sender, k, c], world.done[receiver, k, c]
        between = tuple(range(done, sent))
        found = world.persisted.get((k, c, "in"), ()) + world.persisted.get((k, c, "out"), ())
        if done > sent:
            raise ModelError(f"INV-3: checkpoint {k}, channel {c}: {done} read, {sent} sent", ())
        if found != between:
            raise ModelError(f"INV-2: checkpoint {k}, channel {c}: persisted {found}, not {between}", ())
    if world.cap is not None:
        for task in TASKS:
            sides = [(c, "in") for c in INPUTS[task]] + [(c, "out") for c in OUTPUTS[task]]
            records = sum(len(world.persisted.get((k, c, side), ())) for c, side in sides)
            if records > world.cap:
                raise ModelError(f"CAP-2: checkpoint {k}, task {task}: {records} persisted, cap {world.cap}", ())


def _check_at_least_once(world: World, k: int) -> None:
    """Check INV-6 for a completed checkpoint.

    On each channel, the state must contain all records that were sent before the barrier. The number of records that
    were read before the barrier must be right, because the records after it are counted from there (ALO-5). No
    in-flight data may be persisted.
    """
    for c, (sender, receiver, _) in enumerate(CHANNELS):
        sent, done, passed = world.sent[sender, k, c], world.done[receiver, k, c], world.passed.get((receiver, k, c))
        if done < sent:
            raise ModelError(f"INV-6: checkpoint {k}, channel {c}: {sent} sent, {done} in the state: lost", ())
        if passed != sent:
            raise ModelError(f"INV-6: checkpoint {k}, channel {c}: {sent} before the barrier, not {passed}", ())
        if world.persisted:
            raise ModelError(f"INV-2: checkpoint {k}: persisted {world.persisted}", ())


def check_end(world: World) -> None:
    """Check a state without a next step: all records are read, every checkpoint has ended, no channel is blocked."""
    waiting = world.open_inputs or world.waiting_outputs or world.waits_for_room
    if world.pending or any(world.blocked) or any(world.copying) or any(world.closed) or waiting:
        raise ModelError(f"INV-9: left {world.pending} {world.blocked} {world.copying} {world.closed} {waiting}", ())
    if world.consumed != [world.records, world.records, 2 * world.records]:
        raise ModelError(f"INV-5: consumed {world.consumed}", ())
