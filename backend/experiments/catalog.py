"""The experiments by name."""

from __future__ import annotations

from typing import Final

from backend.experiments import (
    capping,
    finishing,
    flip76,
    increments,
    lost_worker,
    markers,
    reading,
    sources,
    spilling,
    timing,
    triggering,
)
from backend.experiments.model import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {
    one.name: one
    for one in (
        flip76.EXPERIMENT,
        capping.EXPERIMENT,
        markers.MARKERS,
        triggering.TRIGGERING,
        timing.PHASE_ORDERS,
        timing.OVERTAKE_UNFLUSHED,
        timing.FIRST_BARRIER_TIMEOUT,
        reading.PRIORITIZED_INPUTS,
        reading.BLOCK_THEN_PROCESS,
        reading.FIRST_OR_LAST,
        sources.SOURCES,
        lost_worker.LOST_WORKER,
        increments.EXPERIMENT,
        spilling.EXPERIMENT,
        finishing.EXPERIMENT,
    )
}
