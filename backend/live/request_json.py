"""The JSON of two requests to a job of the live runtime: trigger a checkpoint, and change the parallelism.

Both have Flink's format: ``POST /jobs/:id/checkpoints`` and ``GET, PUT /jobs/:id/resource-requirements``. The runtime
has a slot for every subtask, so a job always gets the upper bound of its parallelism. A request
for an incremental checkpoint is refused if the job writes every checkpoint in full. The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backend.domain.errors import FieldProblem, InvalidInputError
from backend.live.body import read_object, read_trigger_id
from backend.live.savepoint_json import FAILURE
from backend.live.view import JobView, RequestedCheckpointView, VertexView
from backend.live.wire import Object


class CheckpointType(StrEnum):
    """The checkpoint types that Flink's REST accepts."""

    CONFIGURED = "CONFIGURED"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"


class RescaleSource(StrEnum):
    """What a job is restored from when its parallelism changes."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


_CHECKPOINT_TYPES = tuple(CheckpointType)
_BOUNDS = ("lowerBound", "upperBound")
_EXAMPLE = '{"<vertex id>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}'


def wanted_checkpoint(body: bytes, job: JobView) -> tuple[str | None, bool]:
    """Parse the body of a checkpoint request.

    Return the id that the caller chose for the request, or None, and whether the checkpoint must be full (IN-5).

    Raises:
        InvalidInputError: the body is not a JSON object, or requests something that the runtime does not support.
    """
    fields, problems = read_object(body, ("checkpointType", "triggerId"), '{"checkpointType": "CONFIGURED"}')
    kind = fields.get("checkpointType")
    if kind == CheckpointType.INCREMENTAL and not job.config.is_incremental:
        problem = "this job writes every checkpoint in full: execution.checkpointing.incremental is off"
        allowed = f"{CheckpointType.CONFIGURED}, {CheckpointType.FULL}"
        problems.append(FieldProblem("checkpointType", problem, allowed))
    elif kind is not None and kind not in _CHECKPOINT_TYPES:
        problems.append(FieldProblem("checkpointType", "is not a checkpoint type", ", ".join(_CHECKPOINT_TYPES)))
    return read_trigger_id(fields, problems), kind == CheckpointType.FULL


def checkpoint_status(asked: RequestedCheckpointView) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints/:triggerid``.

    It has Flink's fields, and the time from the request to the end of the checkpoint.
    """
    if asked.ended_at_us is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation: Object = {"checkpointId": asked.checkpoint_id}
    if asked.failure_message is not None:
        operation = {"failureCause": {"class": FAILURE, "stack-trace": f"{FAILURE}: {asked.failure_message}"}}
    took_ms = (asked.ended_at_us - asked.requested_at_us) // 1000
    return {"status": {"id": "COMPLETED"}, "operation": operation, "request-to-end-ms": took_ms}


def resource_requirements(view: JobView) -> Object:
    """Return the JSON of ``GET /jobs/:id/resource-requirements``: the parallelism of each vertex."""
    return {v.id: {"parallelism": {"lowerBound": 1, "upperBound": v.parallelism}} for v in view.vertices}


@dataclass(frozen=True, slots=True)
class WantedRescale:
    """The new parallelism of each vertex that changes, by vertex id.

    If ``from_savepoint`` is set, the job takes a savepoint first and is restored from it.
    """

    parallelism: Mapping[str, int]
    from_savepoint: bool


def wanted_rescale(body: bytes, view: JobView, source: str | None) -> WantedRescale:
    """Parse the body of ``PUT /jobs/:id/resource-requirements``. As in Flink, it must name every vertex.

    ``source`` is the value of ``from`` in the query: ``checkpoint``, which is the default, or ``savepoint``.

    Raises:
        InvalidInputError: the request is invalid. The problems are listed by vertex.
    """
    fields, problems = read_object(body, None, _EXAMPLE)
    vertices = {v.id: v for v in view.vertices}
    wanted: dict[str, int] = {}
    for vertex_id, requirement in fields.items():
        vertex = vertices.get(vertex_id)
        if vertex is None:
            known = ", ".join(f"{v.id} ({v.name})" for v in view.vertices)
            problems.append(FieldProblem(vertex_id, "is not a vertex of this job", known))
            continue
        upper = _upper_bound(vertex, requirement, problems)
        if upper is not None and upper != vertex.parallelism:
            wanted[vertex_id] = upper
    problems += [
        FieldProblem(v.id, f"the request is incomplete, vertex {v.name} is missing", _EXAMPLE)
        for v in view.vertices
        if v.id not in fields
    ]
    if source is not None and source not in list(RescaleSource):
        problems.append(FieldProblem("from", "is not a valid source", ", ".join(RescaleSource)))
    if problems:
        raise InvalidInputError(problems, what="body")
    return WantedRescale(wanted, source == RescaleSource.SAVEPOINT)


def _upper_bound(vertex: VertexView, requirement: object, problems: list[FieldProblem]) -> int | None:
    """Return the requested parallelism of a vertex. If it is invalid, add a problem to ``problems`` and return None."""
    where = f"{vertex.id} ({vertex.name})"
    bounds = requirement.get("parallelism") if isinstance(requirement, dict) else None
    if not isinstance(bounds, dict) or set(bounds) != set(_BOUNDS):
        problems.append(FieldProblem(where, "has no parallelism with both bounds", _EXAMPLE))
        return None
    lower, upper = (bounds[name] for name in _BOUNDS)
    if not _is_count(lower) or not _is_count(upper) or lower > upper:
        problems.append(FieldProblem(where, f"bounds {lower} and {upper}", "whole numbers, 1 <= lower <= upper"))
        return None
    if upper > vertex.max_parallelism:
        problem = f"parallelism {upper} exceeds the maximum parallelism of the vertex"
        problems.append(FieldProblem(where, problem, f"at most {vertex.max_parallelism}"))
        return None
    return int(upper)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
