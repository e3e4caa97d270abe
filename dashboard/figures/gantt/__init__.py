"""The phase chart of a checkpoint."""

from dashboard.figures.gantt.bars import segments
from dashboard.figures.gantt.chart import gantt

__all__ = ["gantt", "segments"]
