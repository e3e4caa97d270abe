"""The two finish protocols on a job whose sources end at different times (FLIP-147).

With the legacy protocol, subtasks whose input has ended finish at once. No checkpoint is possible after that, so the
last records stay uncommitted, and the restart after a late failure repeats everything since the last checkpoint. The
revised protocol goes on with checkpoints, and each subtask waits for a final one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from backend.experiments.model import Experiment, Ordering, Row, below, every, run_engine
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import load_job
from backend.runtime.job.graph import FaultSpec

PROTOCOLS: Final = ("legacy", "revised")
_SETTINGS: Final = {"no failure": None, "a late failure": 35_000_000}
_FIRST_END_US: Final = 15_000_000
"""The approximate virtual time at which the short source of the job ends, in microseconds."""
_END_US: Final = 90_000_000


def _run(task: str, seed: int, _: float) -> list[Row]:
    rows = []
    for setting, crash_us in _SETTINGS.items():
        settings = {"runtime.finish-protocol": task, "runtime.fuzz-schedule": str(1 + seed)}
        faults = () if crash_us is None else (FaultSpec("source.after-emit", at_us=crash_us),)
        spec = replace(load_job(demo_path("bounded")).with_config(settings), seed=seed, faults=faults)
        engine = run_engine(spec, _END_US)
        after = [r for r in engine.coordinator.all_completed if r.triggered_at_us > _FIRST_END_US]
        offered = sum(v.limit or 0 for v in spec.graph.vertices)
        rows += [
            Row("checkpoints after the first source ended", task, setting, seed, len(after), "completed"),
            Row("records not committed", task, setting, seed, offered - engine.ledger.committed_count, "at the end"),
        ]
        if engine.ended_at_us is not None:
            rows.append(Row("job ended after", task, setting, seed, engine.ended_at_us / 1e6, "virtual s"))
    return rows


_FLIP: Final = "FLIP-147"

EXPERIMENT: Final = Experiment(
    name="finish",
    title="Bounded jobs: finishing at once, or after a final checkpoint",
    sentence="Two sources end at different times: checkpoints after that, records that stay uncommitted, and the end.",
    tasks=PROTOCOLS,
    run=_run,
    orderings=(
        Ordering(
            "Checkpoints complete after the first source has ended, which the legacy protocol does not allow.",
            f"{_FLIP}, motivation",
            every(*(below("checkpoints after the first source ended", s, "legacy", "revised") for s in _SETTINGS)),
        ),
        Ordering(
            "With the legacy protocol, the last records stay uncommitted; with the revised one, none do.",
            f"{_FLIP}, motivation",
            every(*(below("records not committed", s, "revised", "legacy") for s in _SETTINGS)),
        ),
        Ordering(
            "The final checkpoint makes the job end later.",
            f"{_FLIP}, limitations",
            below("job ended after", "no failure", "legacy", "revised"),
        ),
        Ordering(
            "After a late failure, the job ends earlier with the revised protocol, because it repeats less.",
            f"{_FLIP}, motivation",
            below("job ended after", "a late failure", "revised", "legacy"),
        ),
    ),
)
