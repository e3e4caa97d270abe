"""Measures the walk of a person on call, from the fleet to an incident that is over: presses, keys, and seconds.

A temporary ``barrierscope up`` serves its demo jobs. The walk begins when the alert of ``orders-aligned`` fires.
It is taken once with the mouse and once with the keyboard alone. Each walk has a service of its own, because the advice
of a change that was set back is not given again for a day. The seconds contain the time in which the engine changes and
the alert waits for healthy checkpoints.

    python benchmarks/walk_bench.py [--json]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.benchmarking import parser_of, print_json
from tests.support.browsing import launched, opened, required_chromium
from tests.support.running_up import Up, jobs_of, temporary_up
from tests.support.waiting import until
from tests.support.walking import Hand, resolve

_JOB = "orders-aligned"
_READY_S = 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What one walk took. ``resolved_s`` is the time from the fleet until the incident is over."""

    by: str
    presses: int
    keys: int
    resolved_s: float


def _is_firing(up: Up) -> bool:
    job = jobs_of(up).get(_JOB)
    found = (up.get(f"/api/v1/alerts?job={job}&state=firing") if job else None) or {"items": []}
    return any(alert["rule"] == "CheckpointExpired" for alert in found["items"])


def _is_ready(up: Up) -> bool:
    """Return whether the alert fires and a recommendation can be applied, which needs some completed checkpoints."""
    job = jobs_of(up).get(_JOB)
    found = (up.get(f"/api/v1/jobs/{job}/advice") if job else None) or {"cards": []}
    return _is_firing(up) and any(card["can_apply"] for card in found["cards"])


def measure(up: Up, executable: str, *, is_keyboard: bool) -> Result:
    """Take the walk with the mouse, or with the keyboard alone."""
    with launched(executable) as browser:
        until(lambda: _is_ready(up), "the alert fires and its cure is known", timeout_s=_READY_S)
        with opened(browser, f"http://127.0.0.1:{up.port}") as (page, _):
            hand = Hand(page, is_keyboard)
            began_s = time.monotonic()
            resolve(hand, _JOB, patience_ms=_READY_S * 1_000)
            seconds = time.monotonic() - began_s
    return Result("keyboard" if is_keyboard else "mouse", hand.presses, hand.keys, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the walks and print the results."""
    parser = parser_of(__doc__)
    options = parser.parse_args(arguments)
    executable = required_chromium()
    results = []
    for is_keyboard in (False, True):
        with temporary_up() as up:
            results.append(measure(up, executable, is_keyboard=is_keyboard))
    if options.json:
        print_json(results)
    else:
        for r in results:
            print(f"{r.by:9} {r.presses} presses, {r.keys} keys, {r.resolved_s:.0f} s until the incident is over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
