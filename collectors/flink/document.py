"""Wraps the JSON of a response, so that an error about a value names its path and its address. Does no I/O.

Invariant: for any JSON that a target sends, each read either returns a value of the requested type or raises
``TargetProtocolError``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

import orjson

from backend.domain.clock import from_epoch_ms
from backend.domain.errors import TargetProtocolError
from backend.domain.text import clean, with_whole_characters

T = TypeVar("T")

_INT64 = 2**63
# The end of the year 2999. A larger instant is refused, so that adding a duration never exceeds the range of
# datetime.
_EPOCH_MS_MAX = 32_503_679_999_999
_SHOWN = 60


class Document:
    """One JSON value, its path in the response (``jobs[2].start-time``) and the address of the response."""

    __slots__ = ("_key", "_parent", "url", "value")

    def __init__(self, value: object, url: str, parent: Document | None = None, key: str | int | None = None) -> None:
        self.value = value
        self.url = url
        self._parent = parent
        self._key = key

    @property
    def field(self) -> str:
        """The path to the value in the response. It is built only on request, because only error messages need it."""
        # This is not recursive, because a response may be nested as deep as the stack of a method.
        parts: list[str] = []
        at: Document | None = self
        while at is not None:
            if at._key is not None:
                parts.append(f"[{at._key}]" if isinstance(at._key, int) else f".{at._key[:_SHOWN]}")
            at = at._parent
        return "".join(reversed(parts)).removeprefix(".")

    def fail(self, problem: str) -> TargetProtocolError:
        """Return the error to raise about this value. Its message is a sentence: the path, followed by ``problem``."""
        return TargetProtocolError(url=self.url, reason=f"{self.field or 'the answer'} {problem}")

    def _wrong(self, wanted: str) -> TargetProtocolError:
        return self.fail(f"is {_kind(self.value)}, {wanted} is needed")

    def get(self, key: str) -> Document:
        """Return the member ``key`` of an object. Raise ``TargetProtocolError`` if the member is missing or null."""
        document = self.find(key)
        if document is None:
            raise self.fail(f"has no {key!r}")
        return document

    def find(self, key: str) -> Document | None:
        """Return the member ``key`` of an object, or None if it is missing or null."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        value = self.value.get(key)
        return None if value is None else Document(value, self.url, self, key)

    def members(self) -> Iterator[tuple[str, Document]]:
        """Yield the name and the value of every member of an object."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        for key, value in self.value.items():
            yield key, Document(value, self.url, self, key)

    def items(self) -> Iterator[Document]:
        """Yield every item of an array."""
        for index, value in enumerate(self.array()):
            yield Document(value, self.url, self, index)

    def array(self) -> list[object]:
        """Return the items of an array as plain values, for a reader that checks their types itself."""
        if not isinstance(self.value, list):
            raise self._wrong("an array")
        return self.value

    def item(self, index: int) -> Document:
        """Return one item of an array."""
        return Document(self.array()[index], self.url, self, index)

    def whole(self) -> int:
        """Return the value as a whole number of 64 bits."""
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
            raise self._wrong("a whole number")
        return value

    def count(self) -> int:
        """Return the value as a whole number that is not negative."""
        value = self.whole()
        if value < 0:
            raise self.fail(f"is {value}, a count is needed")
        return value

    def truth(self) -> bool:
        """Return the value as a bool."""
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def text(self, *, length_max: int) -> str:
        """Return the text as one line of printable characters, cut to ``length_max``.

        PostgreSQL refuses NUL characters.
        """
        if not isinstance(self.value, str):
            raise self._wrong("text")
        return clean(self.value, length_max=length_max)

    def instant(self) -> datetime | None:
        """Read milliseconds since the epoch. Return the instant, or None if the number is negative (not set)."""
        value = self.whole()
        if value > _EPOCH_MS_MAX:
            raise self.fail(f"is {value}, milliseconds since the epoch are needed")
        return None if value < 0 else from_epoch_ms(value)

    def instant_known(self) -> datetime:
        """Read milliseconds since the epoch. Return the instant; a negative number is an error."""
        instant = self.instant()
        if instant is None:
            raise self.fail(f"is {self.value}, milliseconds since the epoch are needed")
        return instant


class RowCache(Generic[T]):
    """Parses the rows of a response, and reuses the value of each row that is the same as in the previous response.

    Most entries of a history and most ended jobs do not change from one poll to the next.
    """

    def __init__(self) -> None:
        self._known: dict[str | int, tuple[object, T]] = {}

    def read(
        self, rows: Document, parse: Callable[[Document], T], *, key: str, problems: list[str] | None = None
    ) -> tuple[T, ...]:
        """Return the value of every row. ``key`` is the name of the member that identifies a row.

        A row that cannot be read is left out if ``problems`` is given, and its error is added to them. If no row can be
        read, or if ``problems`` is None, the error is raised.
        """
        known: dict[str | int, tuple[object, T]] = {}
        values = []
        unread: list[TargetProtocolError] = []
        for index, row in enumerate(rows.array()):
            name = row.get(key) if isinstance(row, dict) else None
            before = self._known.get(name) if isinstance(name, str | int) else None
            try:
                value = before[1] if before is not None and before[0] == row else parse(rows.item(index))
            except TargetProtocolError as error:
                if problems is None:
                    raise
                unread.append(error)
                continue
            values.append(value)
            if isinstance(name, str | int):
                known[name] = (row, value)
        if unread and not values:
            raise unread[0]
        if problems is not None:
            problems += map(str, unread)
        self._known = known
        return tuple(values)


def read(body: bytes, *, url: str) -> Document:
    """Parse the body of a response as JSON. The parser limits its depth, and the transport limits its size.

    Raises:
        TargetProtocolError: the body is not JSON.
    """
    try:
        return Document(_parsed(body), url)
    except orjson.JSONDecodeError as error:
        reason = f"the answer is not JSON ({error.msg[:200]}){_looks(body)}"
        raise TargetProtocolError(url=url, reason=reason, is_passing=True) from None


def _parsed(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        # Broken characters are rare, so they are replaced only if the text cannot be parsed.
        whole = with_whole_characters(body)
        if whole == body:
            raise
        return orjson.loads(whole)


def number(text: object) -> float | None:
    """Parse a metric's value, which Flink sends as text.

    Return None if it is not a finite number ("NaN", "n/a", "true").
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return f"the text {clean(value, length_max=_SHOWN)!r}"
        case _:
            return str(value)[:_SHOWN]


def _looks(body: bytes) -> str:
    head = body[:200].lstrip().lower()
    if not head:
        return ": it is empty"
    return ": it looks like HTML" if head.startswith(b"<") else ""
