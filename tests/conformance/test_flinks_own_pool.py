"""Checks that a sender's buffer pool is available and refuses buffers at the same steps as Flink's own pool.

Rules: BUF-3, BUF-4, MB-3. As in ``test_flinks_own_formulas.py``, some of Flink's results are recorded, and ``make
test-flink`` computes many more with Flink's code. To record the results again, run ``python -m
tests.conformance.test_flinks_own_pool JARS``.

The same harness also computes Flink's key groups of integers. Flink and the runtime use the same hash function, but
Flink's integers have four bytes and the runtime's keys have eight (DET-8).
"""

from __future__ import annotations

import random
from collections import deque

from backend.runtime.core.scheduler import Scheduler
from backend.runtime.network.buffers import OutputPool, Subpartition
from tests.simulators.fidelity import flinks_hash
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("PoolHarness", "pool")
_RECORDED_COUNT = 150


def _question(seed: int) -> str:
    rng = random.Random(seed)
    if seed % 5 == 0:
        return f"group {rng.choice([rng.randint(0, 5000), rng.randint(-(2**31), 2**31 - 1)])} {rng.randint(1, 32768)}"
    channels = rng.randint(1, 8)
    size = rng.randint(channels + 1, 3 * channels + 8)
    per_channel = rng.choice([1, 2, 5, 10, 2**31 - 1])
    # Some channels are read seldom and fill up, like the channel of a slow receiver.
    weights = [rng.choice([1, 1, 1, 6]) for _ in range(channels)]
    share = rng.choice([0.5, 0.6, 0.8])
    steps = [
        f"{'r' if rng.random() < share else 'g'}{rng.choices(range(channels), weights)[0]}"
        for _ in range(rng.randint(1, 60))
    ]
    return " ".join(map(str, ["pool", channels, size, per_channel, rng.choice([0, 1, 5]), *steps]))


def _ours(question: str) -> str:
    kind, *words = question.split()
    if kind == "group":
        return str(flinks_hash(int(words[0])) % int(words[1]))
    channels, size, per_channel, overdraft = map(int, words[:4])
    pool = OutputPool(
        Scheduler(),
        channels=channels,
        segment_bytes=64,
        size=size,
        max_per_channel=per_channel,
        max_overdraft=overdraft,
        flush_timeout_us=1_000,
        on_change=lambda: None,
    )
    held: list[deque[Subpartition]] = [deque() for _ in range(channels)]
    told = []
    for step in words[4:]:
        channel = int(step[1:])
        if step[0] == "r":
            done = "+" if pool.request(pool.subpartitions[channel]) else "-"
            if done == "+":
                held[channel].append(pool.subpartitions[channel])
        elif held[channel]:
            held[channel].popleft().recycle()
            done = "<"
        else:
            done = "="
        told.append(done + ("a" if pool.is_available else "u"))
    return " ".join([*told, str(pool.requested)])


def test_our_pool_does_what_flinks_pool_did_in_the_recording() -> None:
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


@asks_flink
def test_our_pool_does_what_flinks_pool_does(version: str) -> None:
    questions = [_question(seed) for seed in range(SEQUENCES)]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
