"""Bodies of requests that change the live runtime: JSON objects whose every field is known. Pure.

What is wrong is told by field, all of it at once, and nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from backend.domain.errors import FieldProblem, InvalidInputError


def read_object(
    body: bytes, fields: Sequence[str] | None, example: str
) -> tuple[dict[str, object], list[FieldProblem]]:
    """The object that a body holds, an empty one for an empty body, and a problem for each field that is none of
    ``fields``; with None any may be there.

    Raises:
        InvalidInputError: it is no JSON object.

    """
    allowed = f"an object such as {example}"
    try:
        document = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise InvalidInputError([FieldProblem("body", f"is no JSON ({error})", allowed)], what="body") from None
    if not isinstance(document, dict):
        raise InvalidInputError([FieldProblem("body", "is no object", allowed)], what="body")
    unknown = [] if fields is None else [key for key in document if key not in fields]
    return document, [FieldProblem(str(key), "is not known here", ", ".join(fields or ())) for key in unknown]


def read_trigger_id(fields: Mapping[str, object], problems: Sequence[FieldProblem]) -> str | None:
    """The id that the caller gave its request, to ask twice and trigger once; None without one.

    Raises:
        InvalidInputError: it is malformed, or there are ``problems`` already.

    """
    given = fields.get("triggerId")
    wrong = list(problems)
    if given is not None and not is_id(given):
        wrong.append(FieldProblem("triggerId", "is malformed", "32 hexadecimal digits in lower case"))
    if wrong:
        raise InvalidInputError(wrong, what="body")
    return None if given is None else str(given)


def is_id(value: object) -> bool:
    """Whether it is an id as Flink writes them."""
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")
