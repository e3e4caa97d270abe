"""Draws the backpressure of a job over time (V7)."""

from dashboard.figures.pressure_history.chart import HEIGHT_PX, View, pressure_history

__all__ = ["HEIGHT_PX", "View", "pressure_history"]
