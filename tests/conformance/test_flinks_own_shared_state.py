"""Checks that our registry of shared files keeps, replaces and deletes exactly the same files as Flink's registry.

In Flink, this is ``SharedStateRegistryImpl`` (IN-15, IN-16). As in ``test_flinks_own_barrier_handler.py``, some of
Flink's results are recorded, and ``make test-flink`` computes many more with Flink's code. ``python -m
tests.conformance.test_flinks_own_shared_state JARS`` records the results again.
"""

from __future__ import annotations

import random

from backend.domain.errors import ProtocolViolationError
from backend.runtime.operators.state import FileHandle
from backend.runtime.snapshot.registry import SharedStateRegistry
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("SharedStateHarness", "shared_state")
_RECORDED_COUNT = 200


def _question(seed: int) -> str:
    """Return random steps, in which pending checkpoints register files under a few keys in any order."""
    rng = random.Random(seed)
    steps, newest, lowest = [], 1, 1
    if rng.random() < 0.4:
        steps += [f"r:{rng.randint(0, 3)}:f{n}:1" for n in range(rng.randint(0, 3))]
        steps.append(f"{rng.choice('nm')}:1")
    for n in range(rng.randint(2, 40)):
        what = rng.choice("rrrpppcun"[: 9 if seed % 7 == 0 else 8])
        checkpoint = rng.randint(max(1, newest - 2), newest)
        match what:
            case "r":
                steps.append(f"r:{rng.randint(0, 5)}:{rng.choice(['g', 'g', 'g', f'x{n}'])}:{checkpoint}")
            case "p":
                steps.append(f"p:{rng.randint(0, 5)}:{checkpoint}")
            case "c":
                steps.append(f"c:{checkpoint}")
                newest += 1
            case "u":
                lowest = rng.randint(lowest, newest)
                steps.append(f"u:{lowest}")
            case _:
                steps.append(f"{rng.choice('nm')}:{checkpoint}")
    return " ".join(steps)


class _Ours:
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.registry = SharedStateRegistry(lambda handle: self.deleted.append(handle.path))

    def step(self, what: str, *words: str) -> str:
        checkpoint = int(words[-1])
        match what:
            case "r":
                return self._register(_file(words[0], words[1]), checkpoint)
            case "p":
                return self._register(_file(words[0], "").as_placeholder, checkpoint)
            case "u":
                self.registry.unregister_unused(checkpoint)
            case "n" | "m":
                self.registry.restored([], checkpoint, is_claimed=what == "m")
            case _:
                # As in Flink, the registry does not change when a checkpoint completes.
                pass
        return "-"

    def _register(self, handle: FileHandle, checkpoint: int) -> str:
        try:
            return self.registry.register(handle, checkpoint).path
        except ProtocolViolationError:
            return "error"


def _file(key: str, path: str) -> FileHandle:
    return FileHandle(key, path, 0, 0, 0, ())


def _ours(question: str) -> str:
    ours, told = _Ours(), []
    for step in question.split():
        ours.deleted.clear()
        done = ours.step(*step.split(":"))
        told.append(f"{done}/{','.join(sorted(ours.deleted))}")
    return " ".join(told)


def test_files_are_kept_replaced_and_deleted_as_flink_did():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


def test_the_recording_has_every_outcome():
    questions, answers = _FLINK.recorded()
    pairs = [pair for q, a in zip(questions, answers, strict=True) for pair in zip(q.split(), a.split(), strict=True)]

    assert {step[0] for step, _ in pairs} == set("rpcunm")
    for what in "rp":
        mine = [done for step, done in pairs if step[0] == what]
        assert "error/" in mine
        assert any(done != "error/" for done in mine)
    assert sum(done != "-/" for step, done in pairs if step[0] == "u") > 20


@asks_flink
def test_files_are_kept_replaced_and_deleted_as_flinks_code_does(version):
    questions = [_question(seed) for seed in range(SEQUENCES)]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
