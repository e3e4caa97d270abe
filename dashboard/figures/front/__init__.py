"""Draws the barrier front of a checkpoint: how far its barriers have come in the job graph."""

from dashboard.figures.front.chart import draw, is_large, overview
from dashboard.figures.front.multiples import multiples
from dashboard.figures.front.view import FrontView
from dashboard.figures.front.words import summary

__all__ = ["FrontView", "draw", "is_large", "multiples", "overview", "summary"]
