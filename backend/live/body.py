"""Parses the bodies of requests that change the live runtime: JSON objects that may contain only known fields.

All problems of a body are reported together, by field. The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from backend.domain.errors import FieldProblem, InvalidInputError


def read_object(
    body: bytes, fields: Sequence[str] | None, example: str
) -> tuple[dict[str, object], list[FieldProblem]]:
    """Return the object in a body, and a problem for each field that is not in ``fields``.

    An empty body gives an empty object. If ``fields`` is None, every field is allowed.

    Raises:
        InvalidInputError: the body is not a JSON object.
    """
    allowed = f"an object such as {example}"
    try:
        document = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise InvalidInputError([FieldProblem("body", f"is not JSON ({error})", allowed)], what="body") from None
    if not isinstance(document, dict):
        raise InvalidInputError([FieldProblem("body", "is not an object", allowed)], what="body")
    unknown = [] if fields is None else [key for key in document if key not in fields]
    return document, [FieldProblem(str(key), "is an unknown field", ", ".join(fields or ())) for key in unknown]


def read_trigger_id(fields: Mapping[str, object], problems: Sequence[FieldProblem]) -> str | None:
    """Return the id that the caller chose for its request, or None.

    A request that is repeated with the same id triggers only once.

    Raises:
        InvalidInputError: the id is malformed, or ``problems`` is not empty.
    """
    given = fields.get("triggerId")
    wrong = list(problems)
    if given is not None and not is_id(given):
        wrong.append(FieldProblem("triggerId", "is malformed", "32 hexadecimal digits in lower case"))
    if wrong:
        raise InvalidInputError(wrong, what="body")
    return None if given is None else str(given)


def is_id(value: object) -> bool:
    """Return whether ``value`` is an id in Flink's format of 32 lower-case hexadecimal digits."""
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")
