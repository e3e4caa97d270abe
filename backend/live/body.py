"""Bodies of requests that change the live runtime: JSON objects with known fields only. Pure.

All problems are reported together, by field, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from backend.domain.errors import FieldProblem, InvalidInputError


def read_object(
    body: bytes, fields: Sequence[str] | None, example: str
) -> tuple[dict[str, object], list[FieldProblem]]:
    """The object in a body, which is empty for an empty body, and a problem for each field that is not in ``fields``.

    With ``fields`` None, every field is allowed.

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
    """The caller's id of its request, with which a repeated request triggers only once; None if there is none.

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
    """Whether ``value`` is an id in Flink's form."""
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")
