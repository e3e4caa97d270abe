"""Draws the barrier front of a checkpoint: how far its barriers have come in the job graph."""

from dashboard.figures.front.chart import draw
from dashboard.figures.front.words import summary

__all__ = ["draw", "summary"]
