"""Parses savepoint requests of the live runtime, and builds the JSON of a savepoint's state, in Flink's format.

The runtime keeps savepoints in memory, so a request that names a target directory is refused. A savepoint request
that also cancels the job is refused too. The JSON of a failure has no stack trace. The functions have no side
effects.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.errors import FieldProblem
from backend.live.body import read_object, read_trigger_id
from backend.live.view import SavepointView
from backend.live.wire import Object

_FORMATS = ("CANONICAL", "NATIVE")
_FIELDS = ("cancel-job", "formatType", "target-directory", "triggerId")
_STOP_FIELDS = ("drain", "formatType", "targetDirectory", "triggerId")
_EXAMPLE = '{"formatType": "CANONICAL"}'
FAILURE = "org.apache.flink.runtime.checkpoint.CheckpointException"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A savepoint request. A request repeated with the same ``trigger_id`` triggers only once."""

    form: str
    trigger_id: str | None


def wanted(body: bytes) -> Wanted:
    """Parse the body of a savepoint request. An empty body requests a canonical savepoint.

    Raises:
        InvalidInputError: the body is not a JSON object, or requests something that the runtime does not support.
    """
    fields, problems = read_object(body, _FIELDS, _EXAMPLE)
    if fields.get("cancel-job") not in (None, False):
        problems.append(FieldProblem("cancel-job", "this runtime cannot cancel a job", "false"))
    return _wanted(fields, problems, "target-directory")


def _wanted(fields: dict[str, object], problems: list[FieldProblem], directory: str) -> Wanted:
    form = fields.get("formatType") or _FORMATS[0]
    if form not in _FORMATS:
        problems.append(FieldProblem("formatType", "is not a savepoint format", ", ".join(_FORMATS)))
    if fields.get(directory) is not None:
        problems.append(FieldProblem(directory, "this runtime has no directories", "no value"))
    return Wanted(str(form), read_trigger_id(fields, problems))


@dataclass(frozen=True, slots=True)
class WantedStop:
    """A request to stop a job with a savepoint."""

    savepoint: Wanted
    drains: bool


def wanted_stop(body: bytes) -> WantedStop:
    """Parse the body of ``/jobs/:id/stop``. An empty body stops the job without draining it.

    Raises:
        InvalidInputError: the body is not a JSON object, or requests something that the runtime does not support.
    """
    fields, problems = read_object(body, _STOP_FIELDS, _EXAMPLE)
    drains = fields.get("drain")
    if drains is not None and not isinstance(drains, bool):
        problems.append(FieldProblem("drain", "is neither true nor false", "true or false"))
    return WantedStop(_wanted(fields, problems, "targetDirectory"), drains is True)


def status(savepoint: SavepointView) -> Object:
    """Return the JSON of ``/jobs/:id/savepoints/:triggerid``.

    It has Flink's fields, and the time from the request to the end of the savepoint (SV-4).
    """
    if savepoint.ended_at_us is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation: Object = {"location": savepoint.location}
    if savepoint.location is None:
        message = savepoint.failure_message
        operation = {"failure-cause": {"class": FAILURE, "stack-trace": f"{FAILURE}: {message}"}}
    took_ms = (savepoint.ended_at_us - savepoint.requested_at_us) // 1000
    return {"status": {"id": "COMPLETED"}, "operation": operation, "request-to-end-ms": took_ms}
