"""Our protocols do, at every step, what Flink's own ``SingleCheckpointBarrierHandler`` does at the same step.

What Flink did is recorded for a few hundred sequences. ``make test-flink`` asks Flink's code itself, of two versions,
for a hundred thousand; ``python -m tests.conformance.test_flinks_own_barrier_handler JARS`` records anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.barrier_sequences import comparable, drawn, events_of, ours_of
from tests.support.flink_code import HARNESSES, VERSIONS, drive

_RECORDED = HARNESSES / "barrier_handler.txt"
_HARNESS = "BarrierHandlerHarness"
_RECORDED_COUNT = 300
# Where `make test-flink` has put the jars.
_JARS = os.environ.get("BARRIERSCOPE_FLINK_JARS", "")


def _recorded() -> list[tuple[str, str]]:
    lines = _RECORDED.read_text().split("\n")
    return list(zip(lines[::2], lines[1::2], strict=False))


def _difference(sequence: str, flink: str) -> str:
    """The first step at which the two differ, for the message of a failure."""
    steps = zip(events_of(sequence), ours_of(sequence).split(";"), comparable(flink).split(";"), strict=True)
    for number, (event, ours, theirs) in enumerate(steps):
        if ours != theirs:
            return (
                f"step {number}, {' '.join(event)}: ours {ours or 'nothing'}, Flink {theirs or 'nothing'}\n{sequence}"
            )
    return ""


def test_at_every_step_we_do_what_flink_did():
    recorded = _recorded()

    assert len(recorded) == _RECORDED_COUNT
    assert [d for sequence, flink in recorded if (d := _difference(sequence, flink))] == []


def test_what_is_recorded_holds_every_event_and_every_action():
    events = {event[0] for sequence, _ in _recorded() for event in events_of(sequence)}
    actions = {a.split()[0] for _, flink in _recorded() for step in flink.split(";") for a in step.split(",") if a}

    assert events == set("tabxef")
    assert actions == {"block", "resume", "convert", "timer", "persist", "stop", "snapshot", "abort"}


@pytest.mark.flink
@pytest.mark.skipif(not _JARS, reason="Flink's jars are fetched by `make test-flink`")
@pytest.mark.parametrize("version", VERSIONS)
def test_at_every_step_we_do_what_flinks_code_does(version):
    count = int(os.environ.get("BARRIERSCOPE_FLINK_SEQUENCES", "100000"))
    sequences = [drawn(seed) for seed in range(count)]

    answers = drive(Path(_JARS) / version, _HARNESS, sequences)

    assert len(answers) == count
    found = ((seed, _difference(s, a)) for seed, (s, a) in enumerate(zip(sequences, answers, strict=True)))
    differing = [f"seed {seed}: {difference}" for seed, difference in found if difference]
    assert differing == [], f"{len(differing)} of {count}"


if __name__ == "__main__":
    wanted = [drawn(seed) for seed in range(_RECORDED_COUNT)]
    told = drive(Path(sys.argv[1]), _HARNESS, wanted)
    _RECORDED.write_text("\n".join(line for pair in zip(wanted, told, strict=True) for line in pair))
