"""Print every event of a few runs, one per line, to compare runs byte by byte (DET-4).

This module is run as a program.
"""

from __future__ import annotations

import json
import sys

from backend.domain.barriers import BarrierEvent
from backend.runtime.engine.kernel import JobEngine
from tests.support.runtime_jobs import PROTOCOLS, drawn_run

_SEEDS = (3, 41)
_UNTIL_US = 700_000


def trace(protocol: str, seed: int) -> list[str]:
    """Return the barrier events, committed rows and checkpoints of one run as lines, and the hash of all events."""
    engine = JobEngine(drawn_run(protocol, seed), keeps_rows=True)
    lines: list[str] = []

    def happened(checkpoint_id: int, event: BarrierEvent) -> None:
        lines.append(f"{engine.now_us} {checkpoint_id} {event}")

    engine.env.log.listener = happened
    engine.run_until(_UNTIL_US)
    lines += map(str, engine.ledger.rows)
    lines += (
        f"{record.id} {record.state} {record.reason} {record.end_to_end_us}" for record in engine.coordinator.history
    )
    newest = engine.coordinator.newest
    if newest is not None:
        stored = newest.stored(engine.env.graph, inline_below_bytes=64)
        lines += [stored.metadata.decode(), *(f"{name} {data.hex()}" for name, data in stored.files.items())]
    return [*lines, json.dumps(dict(engine.env.faults.struck)), engine.trace_hash]


def main() -> None:
    """Print two runs of each protocol, one per seed."""
    for protocol in PROTOCOLS:
        for seed in _SEEDS:
            sys.stdout.write("\n".join([f"# {protocol} {seed}", *trace(protocol, seed), ""]))


if __name__ == "__main__":
    main()
