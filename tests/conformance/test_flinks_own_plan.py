"""Checks that our plan of a checkpoint after some subtasks have finished is Flink's own (FN-1 to FN-3, FN-9 to FN-15).

In Flink, ``DefaultCheckpointPlanCalculator`` computes the plan: the subtasks to trigger, to wait for and to notify, and
the subtasks that have finished. The state of each operator in the completed checkpoint is compared as well. As in
``test_flinks_own_barrier_handler.py``, some of Flink's results are recorded, and ``make test-flink`` computes many more
with Flink's code. ``python -m tests.conformance.test_flinks_own_plan JARS`` records the results again.

Each question is a random graph with a random state of each subtask. In half of the questions, subtasks finish in the
order of the graph, as they do in a job. In the others, any subtask may have finished.
"""

from __future__ import annotations

import random

from backend.runtime.coordinator.plan import plan_of
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, Finished, SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.finished import VertexEnd, end_of, nothing_left, partly_finished_union
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("PlanHarness", "plan")
_RECORDED_COUNT = 400
_REPORTS = {"-": Finished.NO, "o": Finished.OPERATORS, "r": Finished.RESTORED}
_MODES = {"u": StateMode.UNION, "s": StateMode.SPLIT}


def _question(seed: int) -> str:
    """Return a random graph with the states of its subtasks, in the words that the harness reads."""
    rng = random.Random(seed)
    parallelism = [rng.randint(1, 5) for _ in range(rng.randint(1, 5))]
    edges = [
        (a, b, rng.choice("aap"))
        for b in range(1, len(parallelism))
        for a in range(b)
        if rng.random() < (0.9 if a == b - 1 else 0.25)
    ]
    graph = _graph(parallelism, edges)
    in_order = rng.random() < 0.5
    often = rng.random()
    finished: set[TaskKey] = set()
    for vertex, count in enumerate(parallelism):
        for subtask in range(count):
            is_open = in_order and any(
                receiver == subtask and (source, sender) not in finished
                for number, (source, target, _) in enumerate(edges)
                if target == vertex
                for sender, receiver in graph.channels(number)
            )
            if not is_open and rng.random() < often:
                finished.add((vertex, subtask))
    states, reports = [], []
    is_starting = rng.random() < 0.1
    is_allowed = rng.random() < 0.9
    for vertex, count in enumerate(parallelism):
        # A job in which tasks may not finish does not start from a checkpoint with finished tasks.
        is_restored = is_allowed and rng.random() < 0.1
        done = rng.choice((0.0, 0.0, 0.5, 1.0))
        own = [(vertex, subtask) in finished for subtask in range(count)]
        states.append("".join("F" if end else "I" if is_starting and rng.random() < 0.2 else "R" for end in own))
        reports.append("".join("-" if end else "r" if is_restored else "-o"[rng.random() < done] for end in own))
    words = [
        ",".join(map(str, parallelism)),
        ",".join(f"{a}-{b}:{how}" for a, b, how in edges) or "-",
        "".join(rng.choice("us") for _ in parallelism),
        ",".join(states),
        ",".join(reports),
        str(int(is_allowed)),
    ]
    return " ".join(words)


def _graph(parallelism: list[int], edges: list[tuple[int, int, str]]) -> Graph:
    targets = {b for _, b, _ in edges}
    vertices = tuple(
        VertexSpec(id=f"v{n}", name=f"v{n}", kind=VertexKind.MAP if n in targets else VertexKind.SOURCE, parallelism=p)
        for n, p in enumerate(parallelism)
    )
    how = {"a": Partitioner.HASH, "p": Partitioner.RESCALE}
    return Graph(vertices, tuple(EdgeSpec(source=f"v{a}", target=f"v{b}", partitioner=how[p]) for a, b, p in edges))


def _ours(question: str) -> str:
    sizes, drawn, modes, states, reports, is_allowed = question.split()
    edges = [tuple(part.replace(":", "-").split("-")) for part in ([] if drawn == "-" else drawn.split(","))]
    graph = _graph([int(size) for size in sizes.split(",")], [(int(a), int(b), how) for a, b, how in edges])
    each = {(v, s): state for v, own in enumerate(states.split(",")) for s, state in enumerate(own)}
    said = {(v, s): _REPORTS[report] for v, own in enumerate(reports.split(",")) for s, report in enumerate(own)}
    finished = {key for key, state in each.items() if state == "F"}
    if (finished and is_allowed == "0") or "I" in each.values():
        return "error"
    plan = plan_of(graph, finished)
    snapshots = {key: nothing_left(1) for key in plan.finished}
    for vertex, subtask in plan.wait_for:
        snapshots[vertex, subtask] = _snapshot(said[vertex, subtask], _MODES[modes[vertex]])
    if is_allowed == "1" and partly_finished_union(graph, snapshots) is not None:
        held = "refused"
    else:
        held = ",".join(
            _held([snapshots[v, s] for s in range(spec.parallelism)]) for v, spec in enumerate(graph.vertices)
        )
    lists = (plan.trigger, plan.wait_for, plan.wait_for, plan.finished)
    told = [",".join(f"{v}.{s}" for v, s in sorted(keys)) for keys in lists]
    return ";".join([*told, ",".join(map(str, plan.fully_finished)), held])


def _snapshot(finished: Finished, mode: StateMode) -> SubtaskSnapshot:
    if finished is Finished.RESTORED:
        return SubtaskSnapshot(nothing_left(1).operators, ChannelState(), -1, 0, 0, finished=finished)
    state = OperatorSnapshot(states=(OperatorState("state", mode, (b"x",)),))
    return SubtaskSnapshot((state,), ChannelState(), -1, 1, 0, finished=finished)


def _held(own: list[SubtaskSnapshot]) -> str:
    if end_of(own) is VertexEnd.ALL:
        return "all"
    return "".join("F" if one.finished is Finished.TASK else "s" for one in own)


def test_the_plan_is_the_one_that_flink_made():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


def test_the_recording_has_every_outcome():
    _, answers = _FLINK.recorded()
    plans = [answer.split(";") for answer in answers if answer != "error"]

    assert 20 < len(answers) - len(plans) < len(answers) / 2
    assert sum(plan[5] == "refused" for plan in plans) > 20
    for part in (3, 4):
        assert sum(bool(plan[part]) for plan in plans) > 50
    assert sum("all" in plan[5] and "s" in plan[5] for plan in plans) > 40
    assert sum(plan[5] != "refused" and "F" in plan[5] for plan in plans) > 50


@asks_flink
def test_the_plan_is_the_one_that_flinks_code_makes(version):
    questions = [_question(seed) for seed in range(SEQUENCES)]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
