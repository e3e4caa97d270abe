"""Tests of runs that end and continue elsewhere: what a broken handover loses or repeats is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph
from backend.runtime.operators.storage import TransactionLedger
from backend.runtime.snapshot.saved import SavedCheckpoint
from tests.simulators import continued_runs
from tests.simulators.continued_runs import run_continued
from tests.support.invariants import InvariantError
from tests.support.runtime_jobs import small_job


def _run(*, records: int = 200) -> bool:
    return run_continued(small_job("unaligned", records=records), records=records, is_exact=True, draws=Stream(3, "x"))


def test_a_job_that_continues_elsewhere_commits_each_record_once() -> None:
    assert _run()


@pytest.mark.parametrize("protocol", ["aligned", "capped", "chandy-lamport"])
def test_some_jobs_continue_with_one_more_operator_and_commit_each_record_once(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    begun = continued_runs._second
    graphs: list[Graph] = []

    def seen(spec: JobSpec, saved: SavedCheckpoint, draws: Stream) -> JobEngine:
        second = begun(spec, saved, draws)
        graphs.append(second.env.graph)
        return second

    monkeypatch.setattr(continued_runs, "_second", seen)
    for seed in range(4):
        assert run_continued(small_job(protocol, records=120), records=120, is_exact=True, draws=Stream(seed, "x"))

    extended = [graph for graph in graphs if any(vertex.id == "added" for vertex in graph.vertices)]
    assert 0 < len(extended) < len(graphs)
    assert all(len(graph.edges) == 3 for graph in extended)


def test_a_handover_that_forgets_the_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continued_runs, "take_over", lambda ledger, other: None)
    with pytest.raises(ProtocolViolationError, match="SNK-2"):
        _run()


def test_a_handover_from_the_beginning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run reads everything again, although the first one has committed a part of it."""
    begun = JobEngine.__init__

    def without_checkpoint(engine: JobEngine, *arguments: object, **options: object) -> None:
        begun(engine, *arguments, **{k: v for k, v in options.items() if k != "restore"})  # type: ignore[arg-type]

    def over_everything(ledger: TransactionLedger, other: TransactionLedger) -> None:
        ledger.rows = [replace(row) for row in other.rows]

    monkeypatch.setattr(JobEngine, "__init__", without_checkpoint)
    monkeypatch.setattr(continued_runs, "take_over", over_everything)
    with pytest.raises(InvariantError, match="repeated records"):
        _run()
