"""Checks that requests are started or refused, and failures fail the job, exactly as in Flink's own classes.

In Flink, ``CheckpointRequestDecider`` decides on requests and ``CheckpointFailureManager`` on failures (section 2.2,
T-17, T-18). As in ``test_flinks_own_barrier_handler.py``, some of Flink's results are recorded, and ``make
test-flink`` computes many more with Flink's code. ``python -m tests.conformance.test_flinks_own_coordinator JARS``
records the results again.

Flink delays a request while it deletes old checkpoints. Our coordinator deletes them at once, so the harness makes
Flink see no deletion in progress.
"""

from __future__ import annotations

import random

from backend.domain.failure import reason_of_message
from backend.runtime.coordinator.failure_policy import MESSAGES, Failure, FailurePolicy
from backend.runtime.coordinator.requests import Request, RequestQueue, Slots, Start, TooEarly
from backend.runtime.core.elements import SnapshotType
from backend.runtime.measure.requested import RequestedFormat, Savepoint
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing
from tests.support.flink_reasons import FLINK_REASONS

_FLINK = FlinksCode("CoordinatorHarness", "coordinator")
_RECORDED_COUNT = 160
_SIZES = {"r": 3, "c": 1, "t": 2, "n": 2, "d": 1, "a": 1, "j": 4, "k": 3, "y": 2}


def _question(seed: int) -> str:
    rng = random.Random(seed)
    return _requests(rng) if seed % 2 else _failures(rng)


def _requests(rng: random.Random) -> str:
    words = ["decider", str(rng.choice([1, 1, 2, 4])), str(rng.choice([0, 0, 5, 50])), str(rng.choice([2, 3, 5, 1000]))]
    number = 0
    for _ in range(rng.randint(2, 60)):
        kind = rng.choice("rrrrctttnnda")
        if kind == "a" and rng.random() < 0.8:
            kind = "r"
        words.append(kind)
        if kind == "r":
            number += 1
            words += [rng.choice("ppppsfu"), str(number)]
        elif kind in "tn":
            words.append(str(rng.choice([1, 4, 20, 100]) if kind == "t" else rng.randint(0, 3)))
    return " ".join(words)


def _failures(rng: random.Random) -> str:
    words = ["failures", str(rng.choice([0, 0, 1, 2, 5, 2**31 - 1]))]
    counted = ["CHECKPOINT_EXPIRED", "CHECKPOINT_DECLINED", "CHECKPOINT_ASYNC_EXCEPTION", "IO_EXCEPTION"]
    for newest in range(1, rng.randint(2, 40)):
        kind = rng.choice("jjkky")
        # An older checkpoint may end after a newer one, and the end of a checkpoint may be reported twice.
        words += [kind, str(rng.choice([newest, newest, newest, rng.randint(1, newest)]))]
        if kind != "y":
            words.append(rng.choice([rng.choice(counted), rng.choice(list(FLINK_REASONS))]))
        if kind == "j":
            words.append(rng.choice("ccs"))
    return " ".join(words)


def _events(words: list[str]) -> list[list[str]]:
    found = []
    while words:
        size = _SIZES[words[0]]
        found.append(words[:size])
        words = words[size:]
    return found


class _Decider:
    """Our queue of requests, driven by events in the notation of the harness for Flink's code."""

    def __init__(self, concurrent: int, pause_ms: int, limit: int) -> None:
        self._concurrent, self._pause_ms = concurrent, pause_ms
        self._queue = RequestQueue(limit)
        self._now_ms = self._pending = 0
        self._pause_ends_ms = -(1 << 60)

    def event(self, kind: str, *rest: str) -> list[str]:
        match kind:
            case "r":
                return self._asked(_request(rest[0], int(rest[1])))
            case "c":
                return self._chosen()
            case "t":
                self._now_ms += int(rest[0])
            case "n":
                self._pending = int(rest[0])
            case "d":
                self._pause_ends_ms = self._now_ms + self._pause_ms
            case _:
                return [f"refuse {r.number} CHECKPOINT_COORDINATOR_SUSPEND" for r in self._queue.clear()]
        return []

    def _asked(self, request: Request) -> list[str]:
        is_closed = self._queue.is_closed
        dropped = self._queue.add(request)
        told = [] if dropped is None else [f"refuse {dropped.number} TOO_MANY_CHECKPOINT_REQUESTS"]
        return told if is_closed else told + self._chosen()

    def _chosen(self) -> list[str]:
        slots = Slots(self._now_ms, self._pending, self._concurrent, self._pause_ends_ms)
        match self._queue.choose(slots):
            case Start(request=request):
                return [f"start {request.number}"]
            case TooEarly(request=request, delay_us=delay_ms):
                return [f"refuse {request.number} MINIMUM_TIME_BETWEEN_CHECKPOINTS", f"again {delay_ms}"]
        return []


def _request(kind: str, number: int) -> Request:
    savepoint = Savepoint(number, RequestedFormat.CANONICAL, number) if kind in "sf" else None
    return Request(kind == "f", number, savepoint, is_periodic=kind == "p")


def _failed(policy: FailurePolicy, tolerable: int, kind: str, *rest: str) -> list[str]:
    if kind == "y":
        policy.succeeded(int(rest[0]))
        return []
    snapshot = SnapshotType.SAVEPOINT if rest[-1] == "s" else SnapshotType.CHECKPOINT
    failure = Failure(int(rest[0]), FLINK_REASONS[rest[1]], snapshot, is_at_task=kind == "k")
    return ["job"] if policy.failed(failure, tolerable=tolerable) else []


def _ours(question: str) -> str:
    what, *words = question.split()
    if what == "decider":
        decider = _Decider(*map(int, words[:3]))
        return ";".join(",".join(decider.event(*event)) for event in _events(words[3:]))
    policy, tolerable = FailurePolicy(), int(words[0])
    return ";".join(",".join(_failed(policy, tolerable, *event)) for event in _events(words[1:]))


def _differing_reasons(answer: str) -> list[str]:
    """Return Flink's failure reasons whose name or message differs from ours."""
    flink = {name: message for name, _, message in (each.split("|") for each in answer.split("\t"))}
    assert set(flink) == set(FLINK_REASONS)
    wrong = [name for name, message in flink.items() if reason_of_message(message) is not FLINK_REASONS[name]]
    # Flink has two reasons for a task's own failure, and we have only one. Our message is that of Flink's other
    # reason, so TASK_CHECKPOINT_FAILURE is left out here.
    named = {name: m for name, m in flink.items() if name != "TASK_CHECKPOINT_FAILURE"}
    return wrong + [name for name, message in named.items() if MESSAGES[FLINK_REASONS[name]] != message]


def test_requests_and_failures_are_decided_as_flink_decided():
    (_, *questions), (reasons, *answers) = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert _differing_reasons(reasons) == []
    assert differing(_ours, questions, answers) == []


def test_the_recording_has_every_decision():
    (_, *questions), (_, *answers) = _FLINK.recorded()
    told = {a.split(" ")[0] for answer in answers for a in answer.replace(";", ",").split(",")}
    reasons = {w for question in questions for w in question.split() if w in FLINK_REASONS}

    assert told - {""} == {"start", "refuse", "again", "job"}
    assert reasons == set(FLINK_REASONS)


@asks_flink
def test_requests_and_failures_are_decided_as_flinks_code_decides(version):
    questions = [_question(seed) for seed in range(SEQUENCES)]

    reasons, *answers = _FLINK.answers(version, ["reasons", *questions])

    assert _differing_reasons(reasons) == []
    wrong = differing(_ours, questions, answers)
    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(["reasons", *map(_question, range(_RECORDED_COUNT))])
