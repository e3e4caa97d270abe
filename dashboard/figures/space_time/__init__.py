"""V4: the space-time diagram of a checkpoint. ``chart`` draws it, ``marks`` its parts, ``words`` its texts."""

from dashboard.figures.space_time.chart import HEIGHT_PX, View, space_time

__all__ = ["HEIGHT_PX", "View", "space_time"]
