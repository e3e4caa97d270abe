"""A lost worker: the job scales down from its newest checkpoint, because no new one can be taken.

The job has a slow sink and full channels. One of its two workers is lost while no other one is available. The job
starts again with half of its subtasks, from the newest checkpoint that there is, and runs to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.measuring import CHANDY_LAMPORT, THREAD, UNALIGNED, Settings, with_vertex
from backend.experiments.model import Experiment, Ordering, Row, at_most, below, every
from backend.runtime.engine.kernel import JobEngine

_RECORDS: Final = 4_000
_LOST_US: Final = 2_000_000
_END_US: Final = 30_000_000
_STEP_US: Final = 500_000
_VARIANTS: Final[Mapping[str, Settings]] = {
    "aligned": {},
    "unaligned": UNALIGNED,
    "chandy-lamport": CHANDY_LAMPORT,
}


def _run(task: str, seed: int, _: float) -> list[Row]:
    spec = with_vertex(slow_sink_job("aligned", seed=seed, interval="100 ms"), "source", limit=_RECORDS)
    engine = JobEngine(spec.with_config(_VARIANTS[task]), keeps_rows=True)
    engine.run_until(_LOST_US)
    newest = engine.coordinator.newest
    if newest is None:
        return []
    rescale = engine.rescale({vertex.id: 1 for vertex in spec.graph.vertices})
    while engine.ended_at_us is None and engine.now_us < _END_US:
        engine.run_until(engine.now_us + _STEP_US)
    restart = rescale.restart
    if restart is None or restart.running_at_us is None:
        return []
    origins = [row.origin for row in engine.ledger.rows]

    def row(measure: str, value: float, unit: str) -> Row:
        return Row(measure, task, "", seed, value, unit)

    return [
        row("age of the checkpoint", (_LOST_US - newest.record.triggered_at_us) / 1000, "ms since its trigger"),
        row("in flight", rescale.persisted_bytes / 1000, "kB that find new subtasks"),
        row("restart", (restart.running_at_us - restart.failed_at_us) / 1000, "ms until all run"),
        row("missing records", _RECORDS - len(set(origins)), "at the end"),
        row("repeated records", len(origins) - len(set(origins)), "at the end"),
    ]


LOST_WORKER: Final = Experiment(
    name="lost-worker",
    title="Fewer subtasks after the loss of a worker, from the newest checkpoint",
    sentence="A job under backpressure continues with half of its subtasks: the checkpoint's age, and what is lost.",
    tasks=tuple(_VARIANTS),
    run=_run,
    orderings=(
        Ordering(
            "The job scales down from its newest checkpoint, also from one with data in flight, and loses and repeats"
            " nothing.",
            f"{THREAD}, S. Ewen",
            every(
                below("in flight", "", "aligned", "unaligned"),
                *(at_most(f"{word} records", "", tuple(_VARIANTS), 0) for word in ("missing", "repeated")),
            ),
            says="In that case we need to scale down based on the latest complete checkpoint, because we cannot produce"
            " a new checkpoint.",
        ),
        Ordering(
            "The newest unaligned checkpoint is younger than the newest aligned one.",
            "FLIP-76, known limitations",
            below("age of the checkpoint", "", "unaligned", "aligned"),
            says="More up-to-date checkpoints will most likely still be an improvement about the current checkpoint"
            " behavior during backpressure",
        ),
        Ordering(
            "The restart takes longer, because the data in flight is processed first.",
            f"{THREAD}, P. Carbone",
            below("restart", "", "aligned", "unaligned"),
            says="This also means dataflow recovery will be expected to be slower to the one employed on an aligned"
            " snapshot.",
        ),
        Ordering(
            "An aligned checkpoint is enough for this: unaligned ones need not be rescaled.",
            f"{THREAD}, P. Carbone",
            below("age of the checkpoint", "", "aligned", "unaligned", or_equal=True),
            "Under backpressure, the newest aligned checkpoint is older by the time that its barriers wait, and the job"
            " reads that much again.",
            says="Rescaling on unaligned checkpoint sounds challenging and a bit unnecessary. No? Why not sticking to"
            " aligned snapshots for live reconfiguration/rescaling?",
        ),
    ),
)
