"""Tests of runs that end and continue elsewhere: what a broken handover loses or repeats is found."""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.core.prng import Stream
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.snapshot.metadata import read_checkpoint
from tests.simulators import continued_runs
from tests.simulators.continued_runs import Change, Origin, refusal_of, run_continued, with_another_map, without_the_map
from tests.support.invariants import InvariantError, Watch
from tests.support.runtime_jobs import STAYS, small_job


def _run(seed: int = 3, *, protocol: str = "unaligned", origin: Origin | None = None) -> continued_runs.Continued:
    spec = small_job(protocol, records=200, config=dict(STAYS))
    found = run_continued(spec, records=200, is_exact=True, draws=Stream(seed, "x"), origin=origin)
    assert found is not None
    return found


@pytest.mark.parametrize("origin", Origin)
def test_a_job_continues_from_what_was_asked_for(origin: Origin) -> None:
    found = _run(origin=origin)
    assert found.origin is origin
    assert found.is_unaligned is (origin is Origin.CHECKPOINT)


def test_some_jobs_continue_with_another_graph_and_others_with_the_same_one() -> None:
    found = [_run(seed, protocol=protocol) for protocol in ("aligned", "capped") for seed in range(5)]
    assert {each.change for each in found} == set(Change)
    assert 0 < sum(each.is_rescaled for each in found) < len(found)


def test_the_rule_of_a_refusal_follows_from_the_checkpoint_alone() -> None:
    spec = small_job("unaligned", records=200, config=dict(STAYS))
    engine = JobEngine(spec)
    while (kept := engine.coordinator.newest) is None or not kept.record.persisted_bytes:
        engine.run_until(engine.now_us + 10_000)
    read = read_checkpoint(kept.stored(spec.graph))
    assert refusal_of(read, spec.graph) is None
    assert refusal_of(read, without_the_map(spec).graph) == "GR-2"
    assert refusal_of(read, with_another_map(spec, 1).graph) == "GR-2"


def test_a_wrong_refusal_and_a_missing_one_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continued_runs, "refusal_of", lambda read, graph: None)
    with pytest.raises(InvariantError, match="GR-2: refused, but no refusal was expected"):  # noqa: PT012
        for seed in range(10):
            _run(seed)
    monkeypatch.setattr(continued_runs, "refusal_of", lambda read, graph: "GR-1")
    with pytest.raises(InvariantError, match="GR-1: it was permitted"):
        _run(origin=Origin.SAVEPOINT)


def test_output_that_the_second_run_does_not_take_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_rows(watch: Watch, before: Watch) -> None:
        watch._prepared |= before._prepared

    monkeypatch.setattr(Watch, "take_over", without_rows)
    with pytest.raises(InvariantError, match="records missing"):
        _run()


def test_a_handover_from_the_beginning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run reads everything again, although the first one has committed a part of it."""
    begun = JobEngine.__init__

    def without_checkpoint(engine: JobEngine, *arguments: Any, **options: Any) -> None:
        begun(engine, *arguments, **{k: v for k, v in options.items() if k != "restore"})

    monkeypatch.setattr(JobEngine, "__init__", without_checkpoint)
    with pytest.raises(InvariantError, match="INV-10"):
        _run(origin=Origin.SAVEPOINT)
