"""Tests of R-PAR: when more subtasks are advised, and for which causes they would not help."""

from __future__ import annotations

from dataclasses import replace

from backend.advisor.advice import NoAdvice, Recommendation
from backend.domain.advice import Metric, Topic
from backend.domain.engines import RUNTIME
from backend.domain.topology import Topology
from tests.support.advised_jobs import advised, expected, on, readings, slow_run
from tests.support.handwritten_jobs import LAST, chain, reading


def limited(max_parallelism, *, topology=None):
    known = topology or chain()
    vertices = tuple(replace(v, max_parallelism=max_parallelism) for v in known.vertices)
    return Topology(vertices, known.edges)


def test_r_par_1_proposes_more_subtasks_for_the_vertex_that_lacks_capacity():
    advice = advised(slow_run(), readings(held=0.2))
    found = on(Topic.PARALLELISM, advice)

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-PAR-1", "R-UC-3")
    # All of 4 subtasks are busy, and without back-pressure the sources would emit at most 1 / 0.8 times as much.
    assert found.proposed.parallelism == 7
    assert found.how_to.lines == ("pipeline.jobvertex-parallelism-overrides: last:7",)
    assert found.how_to.rollback_lines == ("pipeline.jobvertex-parallelism-overrides: last:4",)
    rate = expected(found, Metric.THROUGHPUT)
    assert rate.predicted.low == rate.before
    assert rate.predicted.value <= rate.predicted.high <= 2 * rate.before


def test_the_mode_comes_before_the_parallelism_and_does_not_exclude_it():
    advice = advised(slow_run(), readings())
    assert [r.topic for r in advice.recommendations] == [Topic.MODE, Topic.PARALLELISM]
    # Nothing is known about how much the sources would emit, so the step is limited.
    assert on(Topic.PARALLELISM, advice).proposed.parallelism == 8


def test_r_par_1_stays_within_the_max_parallelism():
    found = on(Topic.PARALLELISM, advised(slow_run(), readings(), topology=limited(6)))
    assert found.proposed.parallelism == 6

    most = on(Topic.PARALLELISM, advised(slow_run(), readings(), topology=limited(4)))
    assert isinstance(most, NoAdvice)
    assert "as its max parallelism allows" in most.reason


def test_r_par_1_says_nothing_if_no_vertex_is_at_its_limit():
    found = on(Topic.PARALLELISM, advised(slow_run(), readings(held=0.0, busy=0.4)))
    assert (found.rule, isinstance(found, NoAdvice)) == ("R-PAR-1", True)


def test_r_par_2_names_the_hot_subtask_and_advises_no_more_subtasks():
    rows = [r for r in readings() if r.vertex_id != LAST]
    for n in range(5):
        hot = reading(LAST, [1.0, 0.2, 0.2, 0.2], [0.0] * 4, [4_000 * n, 500 * n, 500 * n, 500 * n], at_s=52 + 2 * n)
        rows.append(hot)
    found = on(Topic.PARALLELISM, advised(slow_run(), rows))

    assert isinstance(found, NoAdvice), found
    assert (found.rule, found.vertex, found.subtasks) == ("R-PAR-2", LAST, (0,))


def test_an_engine_whose_parallelism_is_fixed_gets_no_answer_on_it():
    advice = advised(slow_run(), readings(), engine=RUNTIME)
    topics = {a.topic for a in (*advice.recommendations, *advice.silences)}
    assert Topic.PARALLELISM not in topics
