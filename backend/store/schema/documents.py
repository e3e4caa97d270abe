"""Converts values to JSON documents for the store, and progress and barrier events back.

``domain.stored_form`` reads the documents of topology, settings, counters and placements.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

import orjson

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    CheckpointConfig,
    ClusterSettings,
    Progress,
    VertexDetail,
)
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import VertexId
from backend.domain.stored_form import Document
from backend.domain.topology import Topology


class DocumentKind(StrEnum):
    """The kinds of documents of a run. When a document changes, it is stored as a new version."""

    TOPOLOGY = "topology"
    CONFIG = "config"
    CLUSTER = "cluster"


def topology_document(topology: Topology) -> Document:
    """Return the stored form of a job graph."""
    return asdict(topology)


def config_document(config: CheckpointConfig) -> Document:
    """Return the stored form of checkpoint settings."""
    return asdict(config)


def cluster_document(settings: ClusterSettings) -> Document:
    """Return the stored form of a cluster's settings."""
    return dict(settings)


def capabilities_document(engine: EngineCapabilities) -> Document:
    """Return the stored form of an engine's capabilities, without those that the engine lacks.

    The form is kept small, because the row is written at every poll.
    """
    document = {name: value for name, value in asdict(engine).items() if value}
    document["settings"] = {name: key for name, key in document.get("settings", {}).items() if key}
    return document


def progress_document(progress: Progress | None, details: Sequence[VertexDetail]) -> Document:
    """Return the stored form of a checkpoint's progress, with the details that are known so far.

    ``dump`` writes the dataclasses in it as JSON objects.
    """
    document: dict[str, Any] = {"details": list(details)}
    if progress is not None:
        document["by_vertex"] = progress.acknowledged_by_vertex
        document["pending"] = progress.pending
        document["aligning"] = progress.alignment_running_ms
    return document


def progress_parts(document: Document) -> dict[str, Any]:
    """Return the fields of ``Progress`` that its document contains.

    The late barriers are left empty, because they have their own table.
    """
    return {
        "late_barriers": (),
        "acknowledged_by_vertex": tuple((VertexId(v), a, t) for v, a, t in document.get("by_vertex", ())),
        "pending": tuple((VertexId(v), tuple(p)) for v, p in document.get("pending", ())),
        "alignment_running_ms": tuple((VertexId(v), tuple(r)) for v, r in document.get("aligning", ())),
    }


def details_from(document: Document) -> tuple[VertexDetail, ...]:
    """Return the details of each vertex from a document that ``progress_document`` made."""
    return tuple(
        VertexDetail(vertex_id=VertexId(d["vertex_id"]), **{name: tuple(d[name]) for name in DETAIL_ARRAYS})
        for d in document.get("details", ())
    )


def barriers_blob(events: Sequence[BarrierEvent]) -> bytes:
    """Return the stored form of barrier events: rows of values as compressed JSON."""
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
    """Return the barrier events of a stored blob, in the order in which they were stored."""
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
