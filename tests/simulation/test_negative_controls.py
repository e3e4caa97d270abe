"""Goal: the invariants catch broken protocols; each broken variant is found within a few seeds (T-9).

Method: each variant patches one thing in the runtime (``tests/simulators/broken_protocols.py``). Small jobs run under
all invariants until one invariant is broken. This must be the invariant that the table of variants names. Without a
patch, the same jobs break no invariant. The broken variants of finished tasks are in ``test_finished_tasks.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from tests.simulators import broken_files, broken_increments, broken_markers, broken_protocols, broken_restarts
from tests.simulators.broken_protocols import Variant
from tests.simulators.fault_plans import OF_AT_LEAST_ONCE
from tests.support.invariants import InvariantError, Watch
from tests.support.rescaled_jobs import rescaled_job
from tests.support.runtime_jobs import late_triggers, small_job

VARIANTS = (
    broken_protocols.VARIANTS
    | broken_markers.VARIANTS
    | broken_restarts.VARIANTS
    | broken_increments.VARIANTS
    | broken_files.VARIANTS
)
_SEEDS = 4
_RECORDS = 300


def _spec(variant: Variant, seed: int, records: int) -> JobSpec:
    if variant.partitioner:
        job = rescaled_job(
            variant.protocol,
            variant.partitioner,
            (2, 2, 2),
            seed=2 * seed + 1,
            plan=variant.plan,
            config=variant.config,
            record_bytes=(240, 1300)[seed % 2],
            records=records,
        )
        return replace(job, rescales=variant.rescales)
    return small_job(
        variant.protocol if variant.is_exact else "aligned",
        seed=seed,
        fuzz=1 + seed,
        task_managers=2,
        records=records,
        record_bytes=(700, 1500)[seed % 2],
        plan=(*variant.plan, *late_triggers()),
        config=variant.config if variant.is_exact else variant.config | OF_AT_LEAST_ONCE,
        parallelism=2,
    )


def _run(variant: Variant, seed: int, records: int = _RECORDS) -> None:
    spec = _spec(variant, seed, records)
    engine = JobEngine(spec, keeps_rows=True)
    watch = Watch(engine, records=records, is_exact=variant.is_exact)
    if variant.asks_for_savepoints:
        for at_us in (250_000, 500_000, 750_000):
            watch.run_until(at_us)
            engine.request_savepoint()
    watch.run_to_the_end(most_us=8_000_000)
    again = JobEngine(spec)
    for at_us in (250_000, 500_000, 750_000) if variant.asks_for_savepoints else ():
        again.run_until(at_us)
        again.request_savepoint()
    again.run_until(watch.ended_at_us)
    if again.trace_hash != watch.hash_at_end:
        raise InvariantError("INV-13", "the trace differs from that of the observed run")


def _caught_by(variant: Variant) -> tuple[str, int] | None:
    """Return the rule that catches the variant and the number of seeds needed, or None if no rule catches it."""
    for seed in range(_SEEDS):
        try:
            _run(variant, seed)
        except InvariantError as error:
            return error.rule.partition(" ")[0], seed + 1
    return None


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_protocol_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS[name]
    variant.breaks(monkeypatch)
    caught = _caught_by(variant)
    assert caught is not None, f"not found in {_SEEDS} seeds"
    assert caught[0] == variant.rule, f"caught by another invariant, at seed {caught[1] - 1}"


def test_the_same_jobs_without_a_patch_break_no_invariant() -> None:
    alike = {
        (v.protocol, v.plan, str(v.config), v.asks_for_savepoints, v.partitioner, str(v.rescales)): v
        for v in VARIANTS.values()
    }
    for variant in alike.values():
        _run(variant, 0, records=120)
