"""Defines what the viewer chose for the barrier front: opened vertices, heat, search, fold and the visible part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboard.checkpoint_address import Heat
from dashboard.figures.front.readings import NO_READINGS, Readings
from dashboard.palette import Theme


@dataclass(frozen=True, slots=True)
class FrontView:
    """How the barrier front is drawn. ``readings`` are those around the checkpoint."""

    theme: Theme
    opened: Sequence[str] = ()
    is_narrow: bool = False
    heat: Heat = Heat.NONE
    readings: Readings = field(default=NO_READINGS)
    found: str | None = None
    """Id of the vertex that the viewer searched for."""
    is_folded: bool = False
    """Whether the vertices far from ``found`` are folded."""
    centre: tuple[float, float] | None = None
    """The middle of the visible part of a large graph. None: the vertex searched for, or the one of the verdict."""
