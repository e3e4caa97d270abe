"""The timeline of a job's checkpoints."""

from dashboard.figures.timeline.chart import HEIGHT_PX, timeline

__all__ = ["HEIGHT_PX", "timeline"]
