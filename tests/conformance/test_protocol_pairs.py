"""Compares every (state, event) pair of the input handlers with Flink's own handler (T-7, Appendix A).

A sequence of events brings the handler into a state. The event of the pair is then applied with two channels, so that
it completes the set of barriers, and with three channels, so that it does not.

The results of Flink's code are recorded for every pair, and no pair may be missing in the recording. ``make
test-flink`` computes them again and compares. ``python -m tests.conformance.test_protocol_pairs JARS`` records them
again. The coordinator's abort, which Flink's handler does not receive, is tested in ``test_protocol_tables.py``.
"""

from __future__ import annotations

from itertools import product

from tests.simulators.flink_code import FlinksCode, asks_flink
from tests.support.barrier_sequences import comparable, events_of, ours_of

_FLINK = FlinksCode("BarrierHandlerHarness", "barrier_pairs")
_OLD = "t 600"
# Sequences of events that lead to each state; X stands for the kind of barrier. Checkpoint 5 is triggered at 0 and
# its aligned timeout is 500 ms.
_TIMED = {
    "WAIT_FIRST": "a 0 5 0 500",
    "COLLECTING": "b 0 5 0 500",
    "COLLECTING, another announced": "b 0 5 0 500 a 1 5 0 500",
    "WAIT_FIRST_U": "a 0 5 0 500 a 1 5 0 500 t 600 f",
    "COLLECTING_U": "b 0 5 0 500 t 600 f",
}
_ANY = {
    "nothing seen": "",
    "first barrier": "b 0 5 0 X",
    "first ended": "e 0",
    "cancelled": "x 0 5",
    "cancelled behind the first barrier": "b 0 5 0 X x 1 5",
    "newer begun": "b 0 5 0 X b 0 6 0 X",
}
_EVENTS = {
    "Bal": "b 1 5 0 n",
    "Bun": "b 1 5 0 u",
    "Bat": "b 1 5 0 500",
    "Bat, old": f"{_OLD} b 1 5 0 500",
    "Ann": "a 1 5 0 500",
    "Tmr": f"{_OLD} f",
    "Eop": "e 1",
    "Eop, old": f"{_OLD} e 1",
    "Can": "x 1 5",
    "New Ann": "a 1 6 0 500",
    "New Bal": "b 1 6 0 n",
    "New Bun": "b 1 6 0 u",
    "New Can": "x 1 6",
    "obsolete Bal": "b 1 4 0 n",
    "obsolete Bun": "b 1 4 0 u",
    "obsolete Ann": "a 1 4 0 500",
    "obsolete Can": "x 1 4",
}
_OF_MODE = {"Bal": "b 1 5 0 X", "New Bal": "b 1 6 0 X", "obsolete Bal": "b 1 4 0 X"} | {
    name: _EVENTS[name] for name in ("Eop", "Can", "New Can", "obsolete Can")
}
# Events for tasks whose inputs cannot be overtaken, so that barriers are forced to be aligned. Either all inputs of a
# task are such inputs or none are (OPT-5), so a test never mixes forced barriers with other barriers.
_OF_FORCED = {
    "Bvi": "b 1 5 0 v",
    "Bvt": "b 1 5 0 v500",
    "Bvt, old": f"{_OLD} b 1 5 0 v500",
    "New Bvi": "b 1 6 0 v",
    "New Bvt": "b 1 6 0 v500",
    "obsolete Bvi": "b 1 4 0 v",
    "Tmr": f"{_OLD} f",
}
# Pairs in which we differ from Flink on purpose (PROTOCOL.md, OPT-6). If some forced barriers have switched to
# unaligned, we continue unaligned, while Flink decides by the kind of the last barrier.
_OTHERWISE = {
    "alternating v: first barrier, Bvt, 2 channels",
    "alternating v: first barrier, Bvt, old, 2 channels",
    "alternating v: newer begun, New Bvt, 2 channels",
}


def _pairs() -> dict[str, str]:
    """Return a mapping from the name of each pair to its sequence of events, in the notation of the harness."""
    found: dict[str, str] = {}

    def add(kind: str, how: str, states: dict[str, str], events: dict[str, str]) -> None:
        for (state, way), (event, words), channels in product(states.items(), events.items(), (2, 3)):
            line = f"{kind} {channels} {way} {words}".replace("X", how)
            found[f"{kind} {how}: {state}, {event}, {channels} channels"] = " ".join(line.split())

    add("alternating", "500", _TIMED | _ANY, _EVENTS)
    add("alternating", "u", _ANY, _EVENTS)
    add("alternating", "v", _ANY, _OF_MODE | _OF_FORCED)
    add("alternating", "v500", _ANY, _OF_MODE | _OF_FORCED)
    # A checkpoint without an aligned timeout is aligned on every channel: it has neither unaligned barriers nor
    # announcements.
    add("alternating", "n", _ANY, _OF_MODE | {name: _EVENTS[name] for name in ("Tmr", "obsolete Bun", "obsolete Ann")})
    add("aligned", "n", _ANY, _OF_MODE)
    add("tracker", "l", _ANY, _OF_MODE)
    return found


def _differing(pairs: dict[str, str], answers: list[str]) -> dict[str, str]:
    told = zip(pairs.items(), answers, strict=True)
    return {
        name: f"{sequence}\nours  {ours_of(sequence)}\nFlink {comparable(answer)}"
        for (name, sequence), answer in told
        if ours_of(sequence) != comparable(answer)
    }


def _unexpected(pairs: dict[str, str], answers: list[str]) -> dict[str, str]:
    found = _differing(pairs, answers)
    assert set(found) >= _OTHERWISE, "a listed difference no longer exists: remove it from the list"
    return {name: difference for name, difference in found.items() if name not in _OTHERWISE}


def test_in_every_state_every_event_does_what_it_did_in_flink():
    questions, answers = _FLINK.recorded()
    pairs = _pairs()

    assert questions == list(pairs.values()), "the recorded pairs differ from the pairs above"
    assert len(pairs) > 1000
    assert _unexpected(pairs, answers) == {}


def test_the_pairs_cover_every_action():
    _, answers = _FLINK.recorded()
    steps = ",".join(answers).replace(";", ",").split(",")

    assert {action.split()[0] for action in steps if action} == {
        "block",
        "resume",
        "convert",
        "timer",
        "persist",
        "stop",
        "snapshot",
        "abort",
    }
    assert all(len(events_of(sequence)) >= 1 for sequence in _pairs().values())


@asks_flink
def test_in_every_state_every_event_does_what_flinks_code_does(version):
    pairs = _pairs()

    assert _unexpected(pairs, _FLINK.answers(version, list(pairs.values()))) == {}


if __name__ == "__main__":
    _FLINK.record(_pairs().values())
