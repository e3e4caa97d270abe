"""Converts between values and JSON documents in the store: topology, settings, counters, placements, progress.

In a document of an older version, newer fields get their defaults. Unknown fields are ignored.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    CheckpointConfig,
    CheckpointCounts,
    Progress,
    VertexDetail,
)
from backend.domain.engines import EngineCapabilities, RestoreRules, SettingKeys, described
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Placement, Topology, Vertex

Document = Mapping[str, Any]
T = TypeVar("T")


class DocumentKind(StrEnum):
    """The documents of a run that are stored anew when they change."""

    TOPOLOGY = "topology"
    CONFIG = "config"


def topology_document(topology: Topology) -> Document:
    """The stored form of a job graph."""
    return asdict(topology)


def topology_from(document: Document | None) -> Topology:
    """Return the job graph; an empty one if none was stored."""
    if document is None:
        return Topology(())
    return Topology(
        tuple(_known(Vertex, v) for v in document["vertices"]), tuple(_known(Edge, e) for e in document["edges"])
    )


def config_document(config: CheckpointConfig) -> Document:
    """The stored form of checkpoint settings."""
    return asdict(config)


def config_from(document: Document | None) -> CheckpointConfig | None:
    """Return the settings; None if none were stored."""
    return None if document is None else _known(CheckpointConfig, document)


def counts_from(document: Document | None) -> CheckpointCounts | None:
    """Return the counters; None if none were stored."""
    return None if document is None else _known(CheckpointCounts, document)


def capabilities_document(engine: EngineCapabilities) -> Document:
    """Return an engine's capabilities without those it lacks: the row is written at every poll, so it is kept small."""
    document = {name: value for name, value in asdict(engine).items() if value}
    document["settings"] = {name: key for name, key in document.get("settings", {}).items() if key}
    return document


def engine_from(document: Document | None, kind: str, version: str | None) -> EngineCapabilities:
    """Return the engine's capabilities; derived from ``kind`` and ``version`` if none were stored."""
    if document is None:
        return described(kind, version)
    rules = document.get("restore_rules")
    values = {
        # Empty texts are not stored.
        "kind": kind,
        "name": kind,
        "source": kind,
        **document,
        "settings": _known(SettingKeys, document.get("settings", {})),
        "restore_rules": RestoreRules(rules) if rules in set(RestoreRules) else None,
    }
    return _known(EngineCapabilities, values)


def placements_from(documents: Sequence[Document] | None) -> tuple[Placement, ...]:
    """Return the placements of subtasks; empty if they are not known."""
    return tuple(_known(Placement, {k: _tuple(v) for k, v in d.items()}) for d in documents or ())


def progress_document(progress: Progress | None, details: Sequence[VertexDetail]) -> Document:
    """Return the stored form of a checkpoint's progress, with the details known so far."""
    document: dict[str, Any] = {"details": [asdict(d) for d in details]}
    if progress is not None:
        document["by_vertex"] = progress.acknowledged_by_vertex
        document["pending"] = progress.pending
        document["aligning"] = progress.alignment_running_ms
    return document


def progress_parts(document: Document) -> dict[str, Any]:
    """Return the fields of ``Progress`` in its document; late barriers are empty, since they have their own table."""
    return {
        "late_barriers": (),
        "acknowledged_by_vertex": tuple((VertexId(v), a, t) for v, a, t in document.get("by_vertex", ())),
        "pending": tuple((VertexId(v), tuple(p)) for v, p in document.get("pending", ())),
        "alignment_running_ms": tuple((VertexId(v), tuple(r)) for v, r in document.get("aligning", ())),
    }


def details_from(document: Document) -> tuple[VertexDetail, ...]:
    """Return the details by vertex from a document of ``progress_document``."""
    return tuple(
        VertexDetail(vertex_id=VertexId(d["vertex_id"]), **{name: tuple(d[name]) for name in DETAIL_ARRAYS})
        for d in document.get("details", ())
    )


def barriers_blob(events: Sequence[BarrierEvent]) -> bytes:
    """The stored form of barrier events: rows of values, compressed."""
    rows = [
        [
            e.kind.value,
            e.vertex_id,
            e.subtask,
            e.at_us,
            e.lamport,
            _channel(e.channel),
            e.size_bytes,
            e.records,
            e.reason,
        ]
        for e in events
    ]
    return zlib.compress(orjson.dumps(rows), level=6)


def barriers_from(blob: bytes) -> tuple[BarrierEvent, ...]:
    """The barrier events of a stored blob, in their order."""
    return tuple(
        BarrierEvent(
            kind=BarrierEventKind(kind),
            vertex_id=VertexId(vertex),
            subtask=subtask,
            at_us=at_us,
            lamport=lamport,
            channel=None if channel is None else ChannelId(VertexId(channel[0]), VertexId(channel[1]), *channel[2:]),
            size_bytes=size_bytes,
            records=records,
            reason=reason,
        )
        for kind, vertex, subtask, at_us, lamport, channel, size_bytes, records, reason in orjson.loads(
            zlib.decompress(blob)
        )
    )


def _channel(channel: ChannelId | None) -> tuple[str, str, int, int] | None:
    if channel is None:
        return None
    return channel.source, channel.target, channel.source_subtask, channel.target_subtask


def _known(kind: type[T], document: Document) -> T:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in document.items() if name in names})


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
