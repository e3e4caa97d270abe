"""Measures the walk of a person on call, from the fleet to an incident that is over: presses, keys, and seconds.

A temporary ``barrierscope up`` serves its demo jobs. The walk begins when the alert of ``orders-aligned`` fires.
It is taken once with the mouse and once with the keyboard alone; between the two, the settings of the
job are set back. The seconds contain the time in which the engine changes and the alert waits for healthy checkpoints.

    python benchmarks/walk_bench.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import httpx

from tests.support.browsing import launched, opened, required_chromium
from tests.support.running_up import Up, jobs_of, temporary_up
from tests.support.waiting import PATIENCE_S, until
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


def _settings(up: Up, http: httpx.Client) -> str:
    runtime = f"http://127.0.0.1:{up.runtime_port}/runtime/v1/jobs"
    jobs = http.get(f"{runtime}/overview").raise_for_status().json()["jobs"]
    return f"{runtime}/{next(j['jid'] for j in jobs if j['name'] == _JOB)}/settings"


def measure(up: Up, executable: str) -> list[Result]:
    """Take the walk with the mouse, and then with the keyboard alone."""
    results = []
    with httpx.Client(trust_env=False, timeout=PATIENCE_S) as http, launched(executable) as browser:
        until(lambda: _is_ready(up), "the alert fires and its cure is known", timeout_s=_READY_S)
        settings = _settings(up, http)
        before = {k: v for k, v in http.get(settings).raise_for_status().json().items() if "aligned" in k}
        for is_keyboard in (False, True):
            until(lambda: _is_ready(up), "the alert fires and its cure is known", timeout_s=_READY_S)
            with opened(browser, f"http://127.0.0.1:{up.port}") as (page, _):
                hand = Hand(page, is_keyboard)
                began_s = time.monotonic()
                resolve(hand, _JOB, patience_ms=_READY_S * 1_000)
                word = "keyboard" if is_keyboard else "mouse"
                results.append(Result(word, hand.presses, hand.keys, time.monotonic() - began_s))
            http.patch(settings, json=before).raise_for_status()
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the walks and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    executable = required_chromium()
    with temporary_up() as up:
        results = measure(up, executable)
    if options.json:
        print(json.dumps([asdict(r) for r in results]))
    else:
        for r in results:
            print(f"{r.by:9} {r.presses} presses, {r.keys} keys, {r.resolved_s:.0f} s until the incident is over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
