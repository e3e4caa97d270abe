"""Checks that our protocols do at every step what Flink's own handlers do, for exactly-once and at-least-once.

Flink's handler is ``SingleCheckpointBarrierHandler`` for exactly-once and ``CheckpointBarrierTracker`` for
at-least-once.

For a few hundred sequences of events, the actions of Flink's handlers are recorded in a file. ``make test-flink``
runs a hundred thousand sequences through the code of two Flink versions. To record the file again, run ``python -m
tests.conformance.test_flinks_own_barrier_handler JARS``.
"""

from __future__ import annotations

import pytest

from backend.runtime.protocols.at_least_once import TRACKED_MAX
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink
from tests.support.barrier_sequences import comparable, drawn, drawn_at_least_once, events_of, ours_of

_DRAWN = {"barrier_handler": (drawn, 300), "barrier_tracker": (drawn_at_least_once, 120)}
_ACTIONS = {
    "barrier_handler": {"block", "resume", "convert", "timer", "persist", "stop", "snapshot", "abort"},
    "barrier_tracker": {"snapshot", "abort"},
}
_FLINK = {mode: FlinksCode("BarrierHandlerHarness", mode) for mode in _DRAWN}


def _recorded(mode: str) -> list[tuple[str, str]]:
    return list(zip(*_FLINK[mode].recorded(), strict=True))


def _difference(sequence: str, flink: str) -> str:
    """Describe the first step at which our actions differ from Flink's; return an empty text if no step differs."""
    steps = zip(events_of(sequence), ours_of(sequence).split(";"), comparable(flink).split(";"), strict=True)
    for number, (event, ours, theirs) in enumerate(steps):
        if ours != theirs:
            return (
                f"step {number}, {' '.join(event)}: ours {ours or 'nothing'}, Flink {theirs or 'nothing'}\n{sequence}"
            )
    return ""


@pytest.mark.parametrize("mode", _DRAWN)
def test_at_every_step_we_do_what_flink_did(mode):
    recorded = _recorded(mode)

    assert len(recorded) == _DRAWN[mode][1]
    assert [d for sequence, flink in recorded if (d := _difference(sequence, flink))] == []


@pytest.mark.parametrize("mode", _DRAWN)
def test_the_recording_has_every_event_and_every_action(mode):
    recorded = _recorded(mode)
    events = {event[0] for sequence, _ in recorded for event in events_of(sequence)}
    actions = {a.split()[0] for _, flink in recorded for step in flink.split(";") for a in step.split(",") if a}

    assert events == set("tabxef") - ({"a"} if mode == "barrier_tracker" else set())
    assert actions == _ACTIONS[mode]


def test_the_recording_of_at_least_once_has_checkpoints_that_drop_out_of_the_table():
    barriers = [[e for e in events_of(sequence) if e[0] == "b"] for sequence, _ in _recorded("barrier_tracker")]

    assert max(int(barrier[2]) for of_one in barriers for barrier in of_one) > TRACKED_MAX


@pytest.mark.parametrize("passing", ["b 0 3 0 l", "x 0 3"], ids=["barrier", "marker"])
def test_the_end_of_the_last_channel_completes_no_checkpoint_that_it_skipped(passing):
    # In this situation, Flink's own tracker keeps the skipped checkpoint in its table and fails later.
    before, after = ours_of(f"tracker 2 b 1 2 0 l e 1 {passing} e 0").rsplit(";", 1)

    assert before.startswith(";;")
    assert after == ""


@pytest.mark.parametrize("mode", _DRAWN)
@asks_flink
def test_at_every_step_we_do_what_flinks_code_does(version, mode):
    sequences = [_DRAWN[mode][0](seed) for seed in range(SEQUENCES)]

    answers = _FLINK[mode].answers(version, sequences)

    found = ((seed, _difference(s, a)) for seed, (s, a) in enumerate(zip(sequences, answers, strict=True)))
    differing = [f"seed {seed}: {difference}" for seed, difference in found if difference]
    assert differing == [], f"{len(differing)} of {SEQUENCES}"


if __name__ == "__main__":
    for name, (draw, how_many) in _DRAWN.items():
        _FLINK[name].record(map(draw, range(how_many)))
