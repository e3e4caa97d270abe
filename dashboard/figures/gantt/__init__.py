"""Draws the phase chart of a checkpoint: when each subtask was in which phase."""

from dashboard.figures.gantt.bars import segments
from dashboard.figures.gantt.chart import end_of, gantt

__all__ = ["end_of", "gantt", "segments"]
