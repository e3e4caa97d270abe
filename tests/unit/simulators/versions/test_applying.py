"""Which advised changes are made, and what is measured after them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from tests.simulators.versions.applying import changes_of, chosen, is_of_cluster, parallelism_of, rate
from tests.simulators.versions.jobs import JOBS

NOW = datetime(2026, 11, 29, tzinfo=UTC)
OVERRIDES = "pipeline.jobvertex-parallelism-overrides"


def advised(kind: str, **changes: str) -> dict[str, Any]:
    rows = [{"key": key.replace("_", "."), "current": None, "proposed": value} for key, value in changes.items()]
    return {"kind": kind, "changes": rows, "expected": [], "proposed": {}}


def test_each_kind_of_change_is_made_once_and_not_for_a_job_that_ends_by_itself():
    one, other = advised("mode/unaligned", a_b="true"), advised("interval/raise", c="9 s")
    diagnoses = {
        "sql-aggregation": {"advice": {"recommendations": [one, advised("parallelism/raise")]}},
        "sql-join": {"advice": {"recommendations": [advised("mode/unaligned", a_b="true"), other]}},
        "bounded": {"advice": {"recommendations": [advised("mode/aligned", a_b="false")]}},
    }

    found = chosen(JOBS, diagnoses)

    assert [(job.name, change["kind"]) for job, change in found] == [
        ("sql-aggregation", "mode/unaligned"),
        ("sql-join", "interval/raise"),
    ]
    assert changes_of(one) == (("a.b", "true"),)


def test_settings_that_only_a_process_reads_belong_into_the_configuration_of_the_cluster():
    assert is_of_cluster(advised("buffers/debloat", taskmanager_network_memory="1"), "2.3.0")
    assert not is_of_cluster(advised("mode/unaligned", execution_checkpointing="true"), "2.3.0")
    override = {"kind": "parallelism/raise", "changes": [{"key": OVERRIDES, "current": None, "proposed": "v:8"}]}
    assert [is_of_cluster(override, v) for v in ("1.17.2", "1.18.1", "1.19.3")] == [True, True, False]


def readings(*counts: tuple[float, int]) -> list[VertexPressure]:
    nothing = (None, None)
    return [
        VertexPressure(VertexId("v"), NOW + timedelta(seconds=s), nothing, nothing, nothing, records_in_count=(n, n))
        for s, n in counts
    ]


def test_the_rate_counts_from_one_change_of_the_counters_to_another():
    stale = readings((0, 10), (2, 10), (4, 100), (6, 100), (14, 600), (16, 600))

    assert rate("v", stale) == pytest.approx(2 * 500 / 10)
    assert rate("another", stale) is None
    assert rate("v", stale[:4]) is None


def test_a_parallelism_without_a_key_is_set_in_the_program():
    one = {**advised("parallelism/raise"), "proposed": {"parallelism": 4}}

    assert parallelism_of(one) == 4
    assert parallelism_of({**advised("parallelism/raise", a="b"), "proposed": {"parallelism": 4}}) is None
    ((job, _),) = chosen(JOBS, {"sql-aggregation": {"advice": {"recommendations": [one]}}})
    words = job.words({}, parallelism=parallelism_of(one))
    assert words[words.index("--parallelism") + 1] == "4"
