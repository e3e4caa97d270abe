"""Reads the stored form of what is known of jobs: JSON documents, and arrays with one value for each subtask.

The store writes these forms (``store.schema``). They are read here, because tasks of the pipeline read them without the
store. If a document was written by an older version, the fields that it lacks get their defaults. Unknown fields are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar, cast

from backend.domain.batch_work import BatchWork, StageWork
from backend.domain.channel import Channel
from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts, ClusterSettings, RestoredFrom
from backend.domain.engines import EngineCapabilities, Rescaling, RestoreRules, SettingKeys, SettingsFormat, described
from backend.domain.micro_batch import BatchPhase, BatchState, MicroBatch, OperatorState, SourceProgress
from backend.domain.protocols import Protocol
from backend.domain.topology import Edge, Placement, Topology, Vertex
from backend.domain.verdict import Basis
from backend.domain.web_ui import WebUi

Document = Mapping[str, Any]
T = TypeVar("T")
D = TypeVar("D")
N = TypeVar("N", int, float)
# Ratios are rounded to this many digits when they are read. float32 holds 7 significant digits, and ratios need
# fewer.
_RATIO_DIGITS = 6


def topology_from(document: Document | None) -> Topology:
    """Return a job graph from its stored form, or an empty graph if ``document`` is None."""
    return Topology(()) if document is None else _remembered(document, _topology, len(document["vertices"]))


def _topology(document: Document) -> Topology:
    return Topology(
        tuple(_known(Vertex, v) for v in document["vertices"]),
        tuple(_known(Edge, e) for e in document["edges"]),
        document.get("is_batch"),
    )


def config_from(document: Document | None) -> CheckpointConfig | None:
    """Return checkpoint settings from their stored form, or None if ``document`` is None."""
    if document is None:
        return None
    protocol = document.get("protocol")
    known = Protocol(protocol) if protocol in set(Protocol) else None
    return _known(CheckpointConfig, {**document, "protocol": known})


def cluster_from(document: Document | None) -> ClusterSettings | None:
    """Return a cluster's settings from their stored form, or None if ``document`` is None."""
    return None if document is None else tuple(sorted(document.items()))


def counts_from(document: Document | None) -> CheckpointCounts | None:
    """Return the coordinator's counters from their stored form, or None if ``document`` is None."""
    if document is None:
        return None
    times = {name: document.get(name) for name in ("restored_at", "newest_triggered_at")}
    known = {name: None if at is None else datetime.fromisoformat(at) for name, at in times.items()}
    origin = document.get("restored_from")
    return _known(CheckpointCounts, {**document, **known, "restored_from": origin and _restored_from(origin)})


def _restored_from(document: Document) -> RestoredFrom:
    left_out = document.get("left_out")
    return _known(RestoredFrom, {**document, "left_out": None if left_out is None else tuple(left_out)})


def engine_from(document: Document | None, kind: str, version: str | None) -> EngineCapabilities:
    """Return an engine's capabilities from their stored form.

    If ``document`` is None, derive them from ``kind`` and ``version``.
    """
    if document is None:
        return described(kind, version)
    rules, settings, ui = document.get("restore_rules"), document.get("settings"), document.get("web_ui")
    rescaling, channel = document.get("rescaling"), document.get("channel")
    formats = document.get("settings_formats", ())
    values = {
        # Empty texts are not stored. If a name is missing in the document, ``kind`` is its default.
        "kind": kind,
        "name": kind,
        "source": kind,
        **document,
        "settings": _known(SettingKeys, settings if isinstance(settings, Mapping) else {}),
        "restore_rules": RestoreRules(rules) if rules in set(RestoreRules) else None,
        "web_ui": WebUi(ui) if ui in set(WebUi) else None,
        "channel": Channel(channel) if channel in set(Channel) else None,
        "rescaling": Rescaling(rescaling) if rescaling in set(Rescaling) else None,
        "settings_formats": tuple(SettingsFormat(f) for f in formats if f in set(SettingsFormat)),
    }
    return _known(EngineCapabilities, values)


def placements_from(documents: Sequence[Document] | None) -> tuple[Placement, ...]:
    """Return the placements of subtasks from their stored form, or an empty tuple if ``documents`` is None."""
    return _remembered(documents, _placements, len(documents)) if documents else ()


def _placements(documents: Sequence[Document]) -> tuple[Placement, ...]:
    return tuple(_known(Placement, {k: _tuple(v) for k, v in d.items()}) for d in documents)


# Documents of this many vertices or more take tens of milliseconds to convert, and the store returns the same object
# each time as long as they do not change. The newest few are kept with their values.
_MANY = 200
_REMEMBERED_MAX = 8
_values: dict[int, tuple[object, object]] = {}


def _remembered(document: D, convert: Callable[[D], T], size: int) -> T:
    if size < _MANY:
        return convert(document)
    known = _values.get(id(document))
    if known is not None and known[0] is document:
        return cast("T", known[1])
    value = convert(document)
    while len(_values) >= _REMEMBERED_MAX:
        _values.pop(next(iter(_values)), None)
    _values[id(document)] = (document, value)
    return value


def batch_from(row: Mapping[Any, Any]) -> MicroBatch:
    """Return the data of a micro-batch from its row."""
    phases = zip(BatchPhase, row["phases_ms"] or (), strict=False)
    state = row["state"]
    return MicroBatch(
        phases_ms=tuple((phase, ms) for phase, ms in phases if ms is not None),
        input_row_count=row["input_row_count"],
        processed_rows_per_s=row["processed_rows_per_s"],
        watermark_at=row["watermark_at"],
        state=None if state is None else _state(state),
        sources=tuple(_known(SourceProgress, s) for s in row["sources"]),
        # The table has no column for the sink. It is kept beside each source, where older versions ignore it.
        sink=next((s["sink"] for s in row["sources"] if s.get("sink")), None),
        number_basis=Basis(row["number_basis"]),
        work=work_from(row.get("work")),
    )


def _state(document: Document) -> BatchState:
    operators = tuple(_known(OperatorState, one) for one in document.get("by_operator") or ())
    return _known(BatchState, {k: _tuple(v) for k, v in document.items()} | {"by_operator": operators})


def work_from(document: Document | None) -> BatchWork | None:
    """Return the Spark jobs of a batch from their stored form, or None if ``document`` is None."""
    if document is None:
        return None
    stages = tuple(_known(StageWork, stage) for stage in document["stages"])
    return _known(BatchWork, {**document, "stages": stages, "job_ids": tuple(document["job_ids"])})


def expand(stored: Sequence[N | None] | None, count: int) -> tuple[N | None, ...]:
    """Return the values of ``count`` subtasks from their stored form."""
    if stored is None:
        return (None,) * count
    return tuple(stored) * count if len(stored) == 1 else tuple(stored)


def expand_ratios(stored: Sequence[float | None] | None, count: int) -> tuple[float | None, ...]:
    """Return the ratios of ``count`` subtasks from their stored form.

    Rounding restores the values that they had before the conversion to float32.
    """
    if stored is None:
        return (None,) * count
    rounded = tuple(None if v is None else round(v, _RATIO_DIGITS) for v in stored)
    return rounded * count if len(rounded) == 1 else rounded


def _known(kind: type[T], document: Document) -> T:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in document.items() if name in names})


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
