"""Goal: a run that models only record sizes has the same events, times, bytes and state as a run with payloads.

Random jobs of all protocols run in both ways.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from backend.cli.app import app
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.graph import FaultSpec
from tests.support.inside_jobs import take_over
from tests.support.observed_runs import observed
from tests.support.runtime_jobs import PROTOCOLS, drawn_run, exactly_once_violations, late_triggers, small_job


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_by_sizes_cannot_be_distinguished_from_one_with_payloads(protocol: str) -> None:
    for seed in (2, 7):
        whole, sized = (observed(drawn_run(protocol, seed), is_size_only=flag) for flag in (False, True))
        assert whole.keys() == sized.keys()
        for what, seen in whole.items():
            assert sized[what] == seen, f"{what} of {protocol}, seed {seed}"


def test_under_at_least_once_a_run_by_sizes_repeats_the_same_records() -> None:
    spec = drawn_run("aligned", 12)
    config = {
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "execution.checkpointing.max-concurrent-checkpoints": 2,
    }
    plan = (*late_triggers(), FaultSpec("coordinator.between-notifies", hit=9))
    whole, sized = (
        observed(replace(spec.with_config(config), faults=plan), is_size_only=flag) for flag in (False, True)
    )
    assert whole.keys() == sized.keys()
    for what, seen in whole.items():
        assert sized[what] == seen, what
    rows = whole["rows"]
    assert isinstance(rows, list)
    assert len({row.origin for row in rows}) < len(rows), "no record was repeated"


def test_in_flight_records_across_segments_are_persisted_and_restored_by_size() -> None:
    # A record takes one and a half segments, so it is split into several chunks on both sides of the channel.
    spec = drawn_run("unaligned", 41)
    spec = replace(small_job("unaligned", seed=3, task_managers=2, record_bytes=777), faults=spec.faults)
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(4_000_000)
    sized = JobEngine(engine.spec, keeps_rows=True, is_size_only=True)
    sized.run_until(engine.now_us)
    assert engine.restart_count > 0
    assert sized.trace_hash == engine.trace_hash
    assert exactly_once_violations(sized.ledger.rows) == []
    assert sized.ledger.rows == engine.ledger.rows


def test_a_savepoint_of_a_run_by_sizes_starts_a_run_with_payloads() -> None:
    spec = small_job("unaligned", seed=5)
    runs = []
    for taken_by_size, restored_by_size in ((True, False), (False, True), (False, False)):
        first = JobEngine(spec, keeps_rows=True, is_size_only=taken_by_size)
        first.run_until(450_000)
        newest = first.coordinator.newest
        assert newest is not None
        stored = newest.stored(first.env.graph)
        then = JobEngine(spec, keeps_rows=True, restore=stored, is_size_only=restored_by_size)
        take_over(then.ledger, first.ledger)
        then.run_until(3_000_000)
        runs.append((stored, then.trace_hash, then.ledger.rows))
    assert runs[0] == runs[1] == runs[2]
    assert exactly_once_violations(runs[0][2]) == []


def test_the_figures_of_a_simulation_are_the_same() -> None:
    # Four records fill a segment exactly.
    spec = small_job("aligned-timeout", seed=11, task_managers=2, record_bytes=128)
    whole, sized = (simulate(spec, duration_us=1_000_000, is_size_only=flag).to_json() for flag in (False, True))
    assert sized == whole


def test_the_command_counts_bytes_on_demand_and_prints_the_same_figures() -> None:
    command = ["simulate", "backpressured", "--duration", "6s", "--format", "json"]
    printed = [CliRunner().invoke(app, [*command, *more]).stdout for more in ([], ["--size-only"])]
    assert json.loads(printed[0])["counts"]["total"] > 0
    assert printed[0] == printed[1]
