"""Savepoints of the live runtime as Flink's REST has them: what a trigger may say, and how far one has come. Pure.

The runtime keeps savepoints in its memory and writes no files, so that a target directory is refused and not ignored;
so is cancelling with a savepoint, which is not built. A failure is told without a stack trace.
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
    """A trigger's body. ``trigger_id`` is the caller's own, to ask twice and trigger once."""

    form: str
    trigger_id: str | None


def wanted(body: bytes) -> Wanted:
    """Read the body of a trigger; an empty one asks for a canonical savepoint.

    Raises:
        InvalidInputError: it is no JSON object, or asks for what is not to be had.

    """
    fields, problems = read_object(body, _FIELDS, _EXAMPLE)
    if fields.get("cancel-job") not in (None, False):
        problems.append(FieldProblem("cancel-job", "a job cannot be cancelled here", "false"))
    return _wanted(fields, problems, "target-directory")


def _wanted(fields: dict[str, object], problems: list[FieldProblem], directory: str) -> Wanted:
    form = fields.get("formatType") or _FORMATS[0]
    if form not in _FORMATS:
        problems.append(FieldProblem("formatType", "is no format of savepoints", ", ".join(_FORMATS)))
    if fields.get(directory) is not None:
        problems.append(FieldProblem(directory, "there are no directories here", "leave it out"))
    return Wanted(str(form), read_trigger_id(fields, problems))


@dataclass(frozen=True, slots=True)
class WantedStop:
    """The body of a stop with a savepoint."""

    savepoint: Wanted
    drains: bool


def wanted_stop(body: bytes) -> WantedStop:
    """Read the body of a stop (``/jobs/:id/stop``); an empty one stops without draining.

    Raises:
        InvalidInputError: it is no JSON object, or asks for what is not to be had.

    """
    fields, problems = read_object(body, _STOP_FIELDS, _EXAMPLE)
    drains = fields.get("drain")
    if drains is not None and not isinstance(drains, bool):
        problems.append(FieldProblem("drain", "is neither true nor false", "true or false"))
    return WantedStop(_wanted(fields, problems, "targetDirectory"), drains is True)


def status(savepoint: SavepointView) -> Object:
    """``/jobs/:id/savepoints/:triggerid``; beside Flink's fields the time from the request to the end (SV-4)."""
    if savepoint.ended_at_us is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation: Object = {"location": savepoint.location}
    if savepoint.location is None:
        message = savepoint.failure_message
        operation = {"failure-cause": {"class": FAILURE, "stack-trace": f"{FAILURE}: {message}"}}
    took_ms = (savepoint.ended_at_us - savepoint.requested_at_us) // 1000
    return {"status": {"id": "COMPLETED"}, "operation": operation, "request-to-end-ms": took_ms}
