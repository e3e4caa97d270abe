"""Reads and writes the address of a checkpoint's page, which holds the opened vertices and the look of its charts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs, urlencode

from dashboard.query_strings import first_values, number


class SubtaskOrder(StrEnum):
    """The order of the subtasks of an opened vertex in the phase chart."""

    INDEX = "topology"
    FINISH = "finish"
    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    ASYNC = "async"
    HOST = "host"


class Heat(StrEnum):
    """What fills the vertices of the barrier front."""

    NONE = "none"
    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    PRESSURE = "pressure"
    SKEW = "skew"


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """What the viewer chose on the page of a checkpoint."""

    opened: tuple[str, ...] | None = None
    """Ids of the vertices whose subtasks are shown. None means the default: the vertex that the verdict names."""
    sort: SubtaskOrder = SubtaskOrder.INDEX
    at_ms: int | None = None
    """Position of the scrubber, in milliseconds since the trigger."""
    picked: str | None = None
    """The picked subtask, as ``vertex id:subtask``."""
    heat: Heat = Heat.NONE
    """What fills the vertices of the barrier front."""
    found: str | None = None
    """Id of the vertex that the viewer searched for in the barrier front."""
    is_folded: bool = False
    """Whether the barrier front folds the vertices far from ``found``."""
    centre: tuple[float, float] | None = None
    """The middle of the visible part of a large barrier front, in the units of the drawing."""


def parse(search: str | None) -> CheckpointView:
    """Return the choices in the query string of an address. Invalid values are ignored."""
    query = first_values(search, keeps_empty=True)
    # An empty ``open`` means that no vertex is open. If ``open`` is missing, the page opens the vertex that the
    # verdict names.
    opened = parse_qs((search or "").lstrip("?"), keep_blank_values=True).get("open")
    return CheckpointView(
        opened=None if opened is None else tuple(v for v in opened if v),
        sort=order_of(query.get("sort")),
        at_ms=number(query.get("t"), 11),
        picked=query.get("pick") or None,
        heat=heat_of(query.get("heat")),
        found=query.get("find") or None,
        is_folded=query.get("fold") == "1",
        centre=_centre_of(query.get("view")),
    )


def query_of(view: CheckpointView) -> str:
    """Return the query string of the choices, or an empty string if everything has its default."""
    pairs: list[tuple[str, str]] = [] if view.opened is None else [("open", v) for v in view.opened or ("",)]
    if view.sort is not SubtaskOrder.INDEX:
        pairs.append(("sort", view.sort))
    if view.at_ms is not None:
        pairs.append(("t", str(view.at_ms)))
    if view.picked:
        pairs.append(("pick", view.picked))
    if view.heat is not Heat.NONE:
        pairs.append(("heat", view.heat))
    if view.found:
        pairs.append(("find", view.found))
    if view.is_folded:
        pairs.append(("fold", "1"))
    return "?" + urlencode(pairs) if pairs else ""


def order_of(value: str | None) -> SubtaskOrder:
    """Return the order called ``value``, or the order by index if there is no order of that name."""
    return SubtaskOrder(value) if value in set(SubtaskOrder) else SubtaskOrder.INDEX


def heat_of(value: str | None) -> Heat:
    """Return the heat called ``value``, or none if there is no heat of that name."""
    return Heat(value) if value in set(Heat) else Heat.NONE


def _centre_of(value: str | None) -> tuple[float, float] | None:
    """Return the two numbers in ``value``, such as ``1200,-380``, or None if it is something else."""
    match = re.fullmatch(r"(-?[0-9]{1,7}),(-?[0-9]{1,7})", value or "", re.ASCII)
    return None if match is None else (float(match[1]), float(match[2]))
