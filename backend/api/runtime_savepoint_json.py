"""Savepoints of the live runtime as Flink's REST has them: what a trigger may say, and how far one has come. Pure.

The runtime keeps savepoints in its memory and writes no files, so that a target directory is refused and not ignored;
so is cancelling with a savepoint, which is not built. A failure is told without a stack trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from backend.api.runtime_view import SavepointView
from backend.api.runtime_wire import Object
from backend.domain.errors import FieldProblem, InvalidInputError

_FORMATS = ("CANONICAL", "NATIVE")
_FIELDS = ("cancel-job", "formatType", "target-directory", "triggerId")
_STOP_FIELDS = ("drain", "formatType", "targetDirectory", "triggerId")
_FAILURE = "org.apache.flink.runtime.checkpoint.CheckpointException"


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
    document, problems = _document(body, _FIELDS)
    if document.get("cancel-job") not in (None, False):
        problems.append(FieldProblem("cancel-job", "a job cannot be cancelled here", "false"))
    return _wanted(document, problems, "target-directory")


def _document(body: bytes, fields: tuple[str, ...]) -> tuple[dict[str, object], list[FieldProblem]]:
    allowed = 'an object such as {"formatType": "CANONICAL"}'
    try:
        document = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise InvalidInputError([FieldProblem("body", f"is no JSON ({error})", allowed)], what="body") from None
    if not isinstance(document, dict):
        raise InvalidInputError([FieldProblem("body", "is no object", allowed)], what="body")
    unknown = [key for key in document if key not in fields]
    return document, [FieldProblem(str(key), "is not known here", ", ".join(fields)) for key in unknown]


def _wanted(document: dict[str, object], problems: list[FieldProblem], directory: str) -> Wanted:
    form = document.get("formatType") or _FORMATS[0]
    if form not in _FORMATS:
        problems.append(FieldProblem("formatType", "is no format of savepoints", ", ".join(_FORMATS)))
    if document.get(directory) is not None:
        problems.append(FieldProblem(directory, "there are no directories here", "leave it out"))
    trigger_id = document.get("triggerId")
    if trigger_id is not None and not _is_id(trigger_id):
        problems.append(FieldProblem("triggerId", "is malformed", "32 hexadecimal digits in lower case"))
    if problems:
        raise InvalidInputError(problems, what="body")
    return Wanted(str(form), None if trigger_id is None else str(trigger_id))


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
    document, problems = _document(body, _STOP_FIELDS)
    drains = document.get("drain")
    if drains is not None and not isinstance(drains, bool):
        problems.append(FieldProblem("drain", "is neither true nor false", "true or false"))
    return WantedStop(_wanted(document, problems, "targetDirectory"), drains is True)


def status(savepoint: SavepointView) -> Object:
    """``/jobs/:id/savepoints/:triggerid``; beside Flink's fields the time from the request to the end (SV-4)."""
    if savepoint.ended_at_us is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation: Object = {"location": savepoint.location}
    if savepoint.location is None:
        message = savepoint.failure_message
        operation = {"failure-cause": {"class": _FAILURE, "stack-trace": f"{_FAILURE}: {message}"}}
    took_ms = (savepoint.ended_at_us - savepoint.requested_at_us) // 1000
    return {"status": {"id": "COMPLETED"}, "operation": operation, "request-to-end-ms": took_ms}


def _is_id(value: object) -> bool:
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")
