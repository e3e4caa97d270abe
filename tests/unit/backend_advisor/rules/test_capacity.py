"""Tests of R-PAR and R-REC-2: when more subtasks are advised, how, and for which causes they would not help."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.rules import capacity
from backend.advisor.situation import situation
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.engines import RUNTIME, flink
from backend.domain.topology import Topology
from backend.domain.verdict import Basis
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    UNALIGNED,
    advised,
    expected,
    expired_run,
    on,
    persisting,
    readings,
    slow_run,
)
from tests.support.handwritten_jobs import LAST, chain, job, quick, reading


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


def test_the_rate_of_the_vertex_is_the_engines_own_and_that_of_counts_is_reconstructed():
    def row(rows):
        found = on(Topic.PARALLELISM, advised(slow_run(), rows))
        (one,) = [e for e in found.evidence if e.unit == "records/s"]
        return one.value, one.basis, one.metric, expected(found, Metric.THROUGHPUT).before

    # Each subtask counts 500 records more in 2 s.
    counted = readings(held=0.2)
    metered = [replace(r, records_in_per_s=(90.0, 100.0, 110.0, 120.0)) if r.vertex_id == LAST else r for r in counted]

    about_1000 = pytest.approx(1000.0, rel=0.01)
    assert row(counted) == (about_1000, Basis.RECONSTRUCTED, "numRecordsIn", about_1000)
    assert row(metered) == (420.0, Basis.MEASURED, "numRecordsInPerSecond", 420.0)


def test_a_subtask_reads_bytes_as_fast_as_the_engine_says_it_reads_records():
    def known(rows):
        advised_job = job(slow_run(), rows, config=EXACTLY_ONCE)
        return situation(advised_job, engine=flink("1.20.5"), version="1.20.5")

    counted = readings()
    metered = [replace(r, records_in_per_s=(100.0, 100.0, 100.0, 50.0)) if r.vertex_id == LAST else r for r in counted]

    # 250 records of 1000 bytes in a second, of counts that the engine may have fetched at other times.
    assert known(counted).intake_bytes_per_ms[LAST] == pytest.approx((250.0,) * 4, rel=0.01)
    assert known(counted).steps_ms[LAST] == pytest.approx(4.0, rel=0.01)
    assert known(metered).intake_bytes_per_ms[LAST] == (100.0, 100.0, 100.0, 50.0)
    assert known(metered).steps_ms[LAST] == 20.0
    assert known(metered).record_bytes[LAST] == 1000.0


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
    assert found.reason.startswith("no vertex is busy all the time")


def test_r_par_1_does_not_say_that_no_vertex_is_busy_if_that_was_not_read():
    found = on(Topic.PARALLELISM, advised([quick(n) for n in range(1, 9)], []))
    assert (found.rule, isinstance(found, NoAdvice)) == ("R-PAR-1", True)
    assert found.reason == "whether a vertex is busy all the time and holds the ones before it back is not known"


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


# --- R-REC-2 ---


def ways(checkpoints, *, topology=None, version="1.20.5", config=EXACTLY_ONCE):
    """Return what the recommendation says about savepoints."""
    found = on(Topic.PARALLELISM, advised(checkpoints, readings(), topology=topology, version=version, config=config))
    return [p.text for p in found.preconditions if "savepoint" in p.text]


def test_r_rec_2_rescales_an_overloaded_job_from_an_unaligned_checkpoint_and_says_how_long_a_savepoint_would_take():
    run = [persisting(quick(n, 100), 200_000) for n in range(1, 9)]
    (way,) = ways(run, config=UNALIGNED)

    assert way.startswith("the job restarts from its newest checkpoint: a savepoint is aligned and would take ")
    short = replace(UNALIGNED, timeout_ms=1_000)
    (late,) = ways(run, config=short)
    assert "would expire" in late


def test_r_rec_2_enables_unaligned_checkpoints_first_if_a_savepoint_would_expire():
    (way,) = ways(expired_run(), config=replace(EXACTLY_ONCE, timeout_ms=3_000))

    assert way.startswith("unaligned checkpoints are enabled before")
    assert "would expire after 3.0 s" in way
    assert ways(slow_run()) == []


def test_r_rec_2_says_nothing_of_a_savepoint_whose_duration_is_not_known():
    def said(duration_ms):
        return capacity._savepoint(SimpleNamespace(mode=Mode.ALIGNED, duration_ms=duration_ms, is_cut_off=False))

    assert said(2_000.0) == ("would take 2.0 s", False)
    assert said(None) == (None, False), "missing is not zero"


def test_r_rec_2_takes_a_savepoint_if_the_version_cannot_restore_another_parallelism():
    custom = replace(chain(), edges=tuple(replace(e, ship_strategy="CUSTOM") for e in chain().edges))
    run = [persisting(quick(n, 100), 200_000) for n in range(1, 9)]

    (way,) = ways(run, topology=custom, version="1.19.0", config=UNALIGNED)
    assert way.startswith("the job restarts from a savepoint, because of FLINK-35351")
    # Version 1.17.0 has this error too, and one that concerns fewer subtasks only.
    (fewer,) = ways(run, version="1.17.0", config=UNALIGNED)
    assert "newest checkpoint" in fewer
