"""The experiments by name."""

from __future__ import annotations

from typing import Final

from backend.experiments import capping, finishing, flip76, increments, markers, spilling
from backend.experiments.model import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {
    one.name: one
    for one in (
        flip76.EXPERIMENT,
        capping.EXPERIMENT,
        markers.MARKERS,
        markers.TRIGGERING,
        increments.EXPERIMENT,
        spilling.EXPERIMENT,
        finishing.EXPERIMENT,
    )
}
