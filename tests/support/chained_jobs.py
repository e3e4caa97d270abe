"""What all drawn jobs of the reference runtime have in common: a chain of vertices, its usual settings, its document.

The modules that draw jobs decide what is special about them: parallelism, rates, costs and troubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from backend.runtime.engine.jobfile import JobSpec, load_job_document

UNALIGNED = "execution.checkpointing.unaligned.enabled"
ALIGNED_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"


def settings_of(interval: str, timeout: str | None = None) -> dict[str, Any]:
    """Return the settings of a job that survives all failed checkpoints."""
    settings: dict[str, Any] = {
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
    }
    return settings if timeout is None else settings | {"execution.checkpointing.timeout": timeout}


def chain(
    stages: Sequence[str], common: Mapping[str, Any], source: Mapping[str, Any], *, kind: str = "keyed"
) -> list[dict[str, Any]]:
    """Return the vertices source -> stages, each with ``common``. The stages are of one kind, the last with a sink.

    ``source`` is what the source has of its own, for example its keys and its rate.
    """
    vertices = [{**common, "id": "source", "kind": "source", **source}]
    vertices += [{**common, "id": name, "kind": kind} for name in stages]
    vertices[-1]["kind"] += "+sink"
    return vertices


def hashed(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return exchanges by key between these vertices."""
    return [{"from": a, "to": b, "partitioner": "hash"} for a, b in pairs]


def delayed(point: str, delay: str, **more: Any) -> dict[str, Any]:
    """Return a fault that delays what passes a failpoint."""
    return {"point": point, "action": "delay", "delay": delay, **more}


def loaded(
    vertices: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
    *,
    seed: int,
    name: str = "drawn",
    edges: Sequence[Mapping[str, Any]] | None = None,
    **more: Any,
) -> JobSpec:
    """Load a job. Without ``edges``, each vertex sends to the next one by key. ``more`` is faults or a store."""
    if edges is None:
        edges = hashed(pairwise(str(v["id"]) for v in vertices))
    document = {"name": name, "seed": seed, "config": config, "vertex": vertices, "edge": edges, **more}
    return load_job_document(document)
