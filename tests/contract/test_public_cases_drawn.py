"""Jobs that are drawn from the described cases, with other names, sizes and versions, get the answer of their kind."""

from __future__ import annotations

import random

import pytest

from backend.analysis.verdict.verdict import diagnose
from tests.support import described_spark, drawn_queries
from tests.support.described_flink import DescribedFlink
from tests.support.drawn_cases import FAMILIES, FORWARDED, drawn, mixed
from tests.support.made_up_queries import evidence_of
from tests.support.public_cases import diagnosed, harm, read
from tests.support.seeds import over_seeds


def check(family, case, seed):
    """Draw a job from ``case`` and compare the answer with what is right for the family."""
    case, draw = drawn(case, family.versions, random.Random(f"{family.base} {seed}"))
    case = family.adapt(case, draw) if family.adapt else case
    said = diagnosed(DescribedFlink(case))

    assert (said.health, said.kind) == (family.health, family.kind), said.verdict["sentence"]
    assert harm(case.get("expect", {}), said) == []
    if family.culprit is not None:
        assert said.verdict["vertex"] == draw.names[family.culprit], said.verdict["sentence"]
    if family.subtask is not None:
        assert said.verdict["subtasks"] == [draw.moved(family.culprit, family.subtask)]
    if family.lint is not None:
        assert family.lint in said.lints


@pytest.mark.parametrize("family", [pytest.param(f, id=f.base) for f in FAMILIES])
@over_seeds(5, more=20)
def test_a_drawn_job_gets_the_health_and_the_kind_of_its_family(family, seed):
    check(family, read(family.base), seed)


@pytest.mark.parametrize("name", FORWARDED)
@over_seeds(5, more=20)
def test_a_barrier_that_was_forwarded_is_told_from_a_queue_and_the_sync_part_from_the_store(name, seed):
    family, case = FORWARDED[name]

    check(family, case, f"{name} {seed}")


@pytest.mark.parametrize(
    ("family", "beside"), [pytest.param(f, beside, id=f"{f.base}+{beside.__name__}") for f, beside in mixed()]
)
@over_seeds(2, more=10)
def test_a_second_trouble_does_not_hide_the_first(family, beside, seed):
    case = read(family.base)

    check(family, {**case, "flink": beside(case["flink"])}, f"mixed {seed}")


@pytest.mark.parametrize("family", [pytest.param(f, id=f.base) for f in drawn_queries.FAMILIES])
@over_seeds(5, more=20)
def test_a_drawn_query_of_spark_gets_the_health_and_the_kind_of_its_family(family, seed):
    case = drawn_queries.drawn(read(family.base), random.Random(f"{family.base} {seed}"))
    events = [event for body in described_spark.posts(case) for event in body["events"]]
    said = diagnose(evidence_of(events, interval_ms=case["spark"].get("trigger_interval_ms")))

    assert (said.health, said.verdict.kind) == (family.health, family.kind), said.verdict.sentence
    assert family.words in said.verdict.sentence
    assert "lacks capacity for its input" not in said.verdict.sentence or family.kind == "capacity"
