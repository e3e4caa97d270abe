"""Checks that buffer sizes (section 3.4) and key groups (PT-2, PT-3) are computed as in Flink's own classes.

As in ``test_flinks_own_barrier_handler.py``, some of Flink's results are recorded, and ``make test-flink`` computes
many more with Flink's code. ``python -m tests.conformance.test_flinks_own_formulas JARS`` records the results again.

Flink 2.3 stores the smoothed buffer size as a fraction and rounds it. The runtime computes this size as Flink 1.20
does (DB-4), so only the key groups are compared with Flink 2.3.
"""

from __future__ import annotations

import random

from backend.runtime.core.hashing import default_max_parallelism, groups_of, owner_of_group
from backend.runtime.engine.debloating import Estimator, Limits
from tests.simulators.flink_code import SEQUENCES, VERSIONS, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("FormulasHarness", "formulas")
_RECORDED_COUNT = 120


def _question(seed: int) -> str:
    rng = random.Random(seed)
    if seed % 4 == 0:
        parallelism = rng.randint(1, 12)
        return f"groups {parallelism} {parallelism + rng.randint(0, 60)}"
    if seed % 4 == 1:
        return f"default {rng.choice([rng.randint(1, 200), rng.randint(1, 32768)])}"
    most = rng.choice([4096, 32768, 65536, rng.randint(300, 100_000)])
    limits = [most, rng.choice([1, 256, most // 2]), rng.choice([1, 100, 1000, 5000]), rng.choice([0, 1, 25, 50, 100])]
    rate = 10 ** rng.uniform(0, 9)
    steps = []
    for _ in range(rng.randint(1, 30)):
        rate = max(0.0, rate * rng.choice([1, 1, 1.02, 0.97, 0.5, 3, 0]) + rng.choice([0, 0, 5000]))
        steps += [int(rate), rng.choice([0, 1, 2, 7, 10, 100, 1000])]
    return " ".join(map(str, ["debloat", *limits, rng.choice([1, 2, 10, 20, 33]), *steps]))


def _ours(question: str) -> str:
    kind, *words = question.split()
    numbers = [int(word) for word in words]
    if kind == "groups":
        parallelism, most = numbers
        ranges = [groups_of(subtask, parallelism, most) for subtask in range(parallelism)]
        owners = [owner_of_group(group, parallelism, most) for group in range(most)]
        return " ".join([*(f"{r.start}-{r.stop - 1}" for r in ranges), *map(str, owners)])
    if kind == "default":
        return str(default_max_parallelism(numbers[0]))
    bytes_max, bytes_min, target_ms, threshold, samples, *steps = numbers
    limits = Limits(bytes_min, bytes_max, target_ms, samples, threshold)
    estimator = Estimator(bytes_max)
    told = []
    for throughput, in_use in zip(steps[::2], steps[1::2], strict=True):
        announced = estimator.update(throughput, in_use, limits)
        told += ["-" if announced is None else announced, estimator.time_to_consume_ms]
    return " ".join(map(str, told))


def test_our_formulas_give_flinks_recorded_results():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


@asks_flink
def test_our_formulas_give_the_results_of_flinks_code(version):
    questions = [_question(seed) for seed in range(SEQUENCES)]
    if version != VERSIONS[0]:
        questions = [question for question in questions if not question.startswith("debloat")]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
