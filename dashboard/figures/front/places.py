"""Places the vertices of the barrier front and decides which part of the graph is visible.

The places depend on the graph and on the width of the window only. They are the same for all checkpoints of a job and
for opened and closed vertices. A graph that would not be readable as a whole is shown in part; the viewer moves the
visible part.
"""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.figures.front.times import Front

RADIUS = 34.0
ROW = 190.0
ROOM_ABOVE = 96.0
"""The room between the middle of the top row and the edge of the chart, for an opened vertex and its name."""
_ROOM_BELOW = 104.0
_LAYER_MIN = 260.0
_LAYER_MAX = 400.0
_LAYER_LARGE = 216.0
# The room beside the first and the last layer. On a phone, a note at the last layer needs more room.
_SIDE = 120.0
_SIDE_NARROW = 210.0
# The width of a card on a laptop's screen, and on a phone. The graph is scaled to this width, within the limits below.
WIDTH_PX = 1250
NARROW_PX = 330
SCALE_MAX = 1.25
_SCALE_MIN = 0.72
_SCALE_MIN_NARROW = 0.2
_SCALE_LARGE_NARROW = 0.6
_HEIGHT_MIN_PX = 150
_HEIGHT_MAX_PX = 620


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the vertices, the extent of the graph, and the visible part of it."""

    by_vertex: dict[str, tuple[float, float]]
    extent: tuple[tuple[float, float], tuple[float, float]]
    """The ends of the whole graph across and upwards."""
    visible: tuple[tuple[float, float], tuple[float, float]]
    scale: float
    """Pixels for each unit, if the window is as wide as expected."""
    height_px: int
    gap: float
    """The distance between two layers."""
    is_large: bool
    """Whether only a part of the graph is visible."""


def arrange(front: Front, *, is_narrow: bool, centre: tuple[float, float] | None = None) -> Places:
    """Place the vertices. ``centre`` is the middle of the visible part of a large graph."""
    width_px, side = (NARROW_PX, _SIDE_NARROW) if is_narrow else (WIDTH_PX, _SIDE)
    layers = max(v.layer for v in front.vertices) - min(v.layer for v in front.vertices)
    gap = min(_LAYER_MAX, max(_LAYER_MIN, (WIDTH_PX / SCALE_MAX - 2 * _SIDE) / max(1, layers)))
    places, extent = _placed(front, gap, side)
    scale = _fit(extent, width_px)
    is_large = scale < (_SCALE_MIN_NARROW if is_narrow else _SCALE_MIN)
    if not is_large:
        height_px = round(max(_HEIGHT_MIN_PX, scale * (extent[1][1] - extent[1][0])))
        return Places(places, extent, extent, scale, height_px, gap, is_large=False)
    places, extent = _placed(front, _LAYER_LARGE, _SIDE)
    scale = _fit(extent, width_px)
    if not is_narrow and scale >= _SCALE_MIN:
        height_px = round(scale * (extent[1][1] - extent[1][0]))
        return Places(places, extent, extent, scale, height_px, _LAYER_LARGE, is_large=False)
    scale = _SCALE_LARGE_NARROW if is_narrow else _SCALE_MIN
    height_px = round(min(_HEIGHT_MAX_PX, scale * (extent[1][1] - extent[1][0])))
    lengths = width_px / scale, height_px / scale
    if centre is not None:
        # The viewer moved the visible part to this place, which may be beyond the graph.
        visible = _around(centre[0], lengths[0]), _around(centre[1], lengths[1])
    else:
        middle = _guilty(front, places)
        visible = _part(extent[0], middle[0], lengths[0]), _part(extent[1], middle[1], lengths[1])
    return Places(places, extent, visible, scale, height_px, _LAYER_LARGE, is_large=True)


def _placed(
    front: Front, gap: float, side: float
) -> tuple[dict[str, tuple[float, float]], tuple[tuple[float, float], tuple[float, float]]]:
    places = {v.vertex_id: (v.layer * gap, -v.row * ROW) for v in front.vertices}
    xs, ys = [x for x, _ in places.values()], [y for _, y in places.values()]
    return places, ((min(xs) - side, max(xs) + side), (min(ys) - _ROOM_BELOW, max(ys) + ROOM_ABOVE))


def _fit(extent: tuple[tuple[float, float], tuple[float, float]], width_px: int) -> float:
    across, upwards = (high - low for low, high in extent)
    return min(SCALE_MAX, width_px / across, _HEIGHT_MAX_PX / upwards)


def _guilty(front: Front, places: dict[str, tuple[float, float]]) -> tuple[float, float]:
    named = next((v.vertex_id for v in front.vertices if v.is_guilty), front.vertices[0].vertex_id)
    return places[named]


def _around(middle: float, length: float) -> tuple[float, float]:
    return middle - length / 2, middle + length / 2


def _part(ends: tuple[float, float], middle: float, length: float) -> tuple[float, float]:
    """Return the part of ``ends`` that is ``length`` long around ``middle``, moved so that it does not pass an end."""
    low, high = ends
    if length >= high - low:
        return (low + high - length) / 2, (low + high + length) / 2
    begin = min(max(middle - length / 2, low), high - length)
    return begin, begin + length
