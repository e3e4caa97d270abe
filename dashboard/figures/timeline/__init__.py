"""Draws the timeline of a job's checkpoints."""

from dashboard.figures.timeline.chart import HEIGHT_PX, Around, longest_shown_ms, timeline, timeline_in_steps

__all__ = ["HEIGHT_PX", "Around", "longest_shown_ms", "timeline", "timeline_in_steps"]
