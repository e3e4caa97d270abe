"""The barrier front of a checkpoint."""

from dashboard.figures.front.chart import draw
from dashboard.figures.front.words import summary

__all__ = ["draw", "summary"]
