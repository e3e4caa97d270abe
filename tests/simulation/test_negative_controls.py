"""Goal: the invariants catch a broken protocol: each broken variant is found within a few seeds (T-9).

Method: the runtime is patched, one thing at a time (``tests/support/broken_protocols.py``), and small jobs run under
all invariants until one is broken; the table there says which one finds it. The same jobs unpatched break none. What
Chandy-Lamport and finished tasks would get wrong is not here, for this runtime does not do it.
"""

from __future__ import annotations

import pytest

from backend.runtime.kernel import Engine
from tests.support.broken_protocols import VARIANTS, Variant
from tests.support.invariants import InvariantError, Watch
from tests.support.runtime_jobs import late_triggers, small_job

_SEEDS = 4
_RECORDS = 300


def _run(variant: Variant, seed: int, records: int = _RECORDS) -> None:
    spec = small_job(
        variant.protocol,
        seed=seed,
        fuzz=1 + seed,
        task_managers=2,
        records=records,
        record_bytes=(700, 1500)[seed % 2],
        plan=(*variant.plan, *late_triggers()),
        config=variant.config,
        parallelism=2,
    )
    engine = Engine(spec, keeps_rows=True)
    watch = Watch(engine, records=records)
    if variant.asks_for_savepoints:
        for at_us in (250_000, 500_000, 750_000):
            watch.run_until(at_us)
            engine.request_savepoint()
    watch.run_to_the_end(most_us=8_000_000)
    again = Engine(spec)
    for at_us in (250_000, 500_000, 750_000) if variant.asks_for_savepoints else ():
        again.run_until(at_us)
        again.request_savepoint()
    again.run_until(watch.ended_at_us)
    if again.trace_hash != watch.hash_at_end:
        raise InvariantError("INV-13", "another trace than the same run had when it was watched")


def _caught_by(variant: Variant) -> tuple[str, int] | None:
    """The rule that finds it, and how many seeds that takes."""
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
    assert caught is not None, f"{_SEEDS} seeds, and nothing noticed"
    assert caught[0] == variant.rule, f"caught by another invariant, at seed {caught[1] - 1}"


def test_the_same_jobs_unbroken_break_nothing() -> None:
    alike = {(v.protocol, v.plan, str(v.config), v.asks_for_savepoints): v for v in VARIANTS.values()}
    for variant in alike.values():
        _run(variant, 0, records=120)
