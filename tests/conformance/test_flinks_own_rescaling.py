"""Checks that a rescale assigns state to the new subtasks as Flink's own classes do (sections 4.3, 4.4).

As in ``test_flinks_own_formulas.py``, some of Flink's results are recorded, and ``make test-flink`` computes many
more with Flink's code. ``python -m tests.conformance.test_flinks_own_rescaling JARS`` records the results again.

For the mapper RANGE, Flink computes with the largest possible number of key groups, and our runtime with the number
of key groups of the job (RS-4). In this comparison both use the largest possible number.
"""

from __future__ import annotations

import random

from backend.runtime.job.graph import Partitioner
from backend.runtime.network.rescaling import MAPPERS, EdgeRescale, StateMapper, mapped
from backend.runtime.operators.redistribution import redistribute
from backend.runtime.operators.state import StateMode
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("RescaleHarness", "rescale")
_RECORDED_COUNT = 150
_GROUPS_MAX = 32768
# For the output channels of senders, Flink uses the mapper ARBITRARY, which works like round robin. No partitioner
# here broadcasts state.
_NAMES = {
    StateMapper.ROUND_ROBIN: ("ROUND_ROBIN", "ARBITRARY"),
    StateMapper.RANGE: ("RANGE",),
    StateMapper.FIRST: ("FIRST",),
    StateMapper.UNSUPPORTED: ("UNSUPPORTED",),
}


def _question(seed: int) -> str:
    if seed < len(Partitioner):
        return f"partitioner {list(Partitioner)[seed].value}"
    rng = random.Random(seed)
    most = rng.choice([4, 12, 130])
    old, new = rng.randint(1, most), rng.randint(1, most)
    if seed % 3:
        return f"mapper {rng.choice([name for names in _NAMES.values() for name in names])} {old} {new}"
    copies = rng.randint(0, 3)
    old, new = rng.randint(1, 8), rng.randint(1, 8)
    counts = [*(rng.randint(0, 4) for _ in range(2 * old)), *([copies] * old)]
    return " ".join(map(str, ["operator", old, new, *counts]))


def _ours(question: str) -> str:
    kind, *words = question.split()
    if kind == "partitioner":
        receivers, senders = MAPPERS[Partitioner(words[0])]
        return f"{_NAMES[receivers][0]} {_NAMES[senders][-1]}"
    if kind == "mapper":
        return _our_mapping(words[0], int(words[1]), int(words[2]))
    old, new, *counts = map(int, words)
    modes = [
        redistribute(mode, [[f"{n}.{entry}" for entry in range(counts[at * old + n])] for n in range(old)], new)
        for at, mode in enumerate((StateMode.SPLIT, StateMode.UNION, StateMode.BROADCAST))
    ]
    # All copies of broadcast state are equal, so it does not matter which copy a new subtask gets.
    return " ".join(",".join(sorted(entries[n])) or "-" for n in range(new) for entries in modes)


def _our_mapping(name: str, old: int, new: int) -> str:
    mapper = next(mapper for mapper, names in _NAMES.items() if name in names)
    if mapper is StateMapper.UNSUPPORTED:
        return "unsupported"
    olds = mapped(mapper, old_count=old, new_count=new, maximum=_GROUPS_MAX)
    lists = [*olds, tuple(sorted(EdgeRescale(olds, ()).ambiguous))]
    return " ".join(",".join(map(str, numbers)) or "-" for numbers in lists)


def test_state_is_assigned_to_subtasks_as_flink_assigned_it():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


@asks_flink
def test_state_is_assigned_to_subtasks_as_flinks_code_assigns_it(version):
    questions = [_question(seed) for seed in range(SEQUENCES)]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
