"""A JSON answer with its origin, so that an error in it names path and field. Pure.

Invariant: for any JSON that a target sends, a read returns a value of the requested type or raises
``TargetProtocolError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

import orjson

from backend.domain.clock import from_epoch_ms
from backend.domain.errors import TargetProtocolError

_INT64 = 2**63
# The end of the year 2999: durations added to an instant must not exceed Python's range.
_EPOCH_MS_MAX = 32_503_679_999_999
_SHOWN = 60


class Document:
    """One JSON value, its place in the answer (``jobs[2].start-time``) and the address of the answer."""

    __slots__ = ("_key", "_parent", "url", "value")

    def __init__(self, value: object, url: str, parent: Document | None = None, key: str | int | None = None) -> None:
        self.value = value
        self.url = url
        self._parent = parent
        self._key = key

    @property
    def field(self) -> str:
        """The path to the value in the answer; rendered on demand, since only errors need it."""
        above = self._parent.field if self._parent is not None else ""
        if self._key is None:
            return above
        if isinstance(self._key, int):
            return f"{above}[{self._key}]"
        return f"{above}.{self._key[:_SHOWN]}" if above else self._key[:_SHOWN]

    def fail(self, problem: str) -> TargetProtocolError:
        """Make the error to raise for this value."""
        return TargetProtocolError(url=self.url, reason=f"{self.field or 'the answer'} {problem}")

    def _wrong(self, wanted: str) -> TargetProtocolError:
        return self.fail(f"is {_kind(self.value)}, {wanted} is needed")

    def get(self, key: str) -> Document:
        """Return the member ``key``; raise if it is missing."""
        found = self.find(key)
        if found is None:
            raise self.fail(f"has no {key!r}")
        return found

    def find(self, key: str) -> Document | None:
        """Return the member ``key``; None if it is missing or null."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        value = self.value.get(key)
        return None if value is None else Document(value, self.url, self, key)

    def members(self) -> Iterator[tuple[str, Document]]:
        """Every member of an object."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        for key, value in self.value.items():
            yield key, Document(value, self.url, self, key)

    def items(self) -> Iterator[Document]:
        """Every item of an array."""
        if not isinstance(self.value, list):
            raise self._wrong("an array")
        for index, value in enumerate(self.value):
            yield Document(value, self.url, self, index)

    def whole(self) -> int:
        """A whole number of 64 bits."""
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
            raise self._wrong("a whole number")
        return value

    def count(self) -> int:
        """A whole number that is not negative."""
        value = self.whole()
        if value < 0:
            raise self.fail(f"is {value}, a count is needed")
        return value

    def truth(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def text(self, *, length_max: int) -> str:
        """Text without control characters (PostgreSQL refuses NUL), cut to ``length_max`` with an ellipsis."""
        if not isinstance(self.value, str):
            raise self._wrong("text")
        return clean(self.value, length_max=length_max)

    def instant(self) -> datetime | None:
        """Milliseconds since the epoch; None for a negative sentinel."""
        value = self.whole()
        if value > _EPOCH_MS_MAX:
            raise self.fail(f"is {value}, milliseconds since the epoch are needed")
        return None if value < 0 else from_epoch_ms(value)

    def instant_known(self) -> datetime:
        """Milliseconds since the epoch; a sentinel is an error."""
        found = self.instant()
        if found is None:
            raise self.fail(f"is {self.value}, milliseconds since the epoch are needed")
        return found


def read(body: bytes, *, url: str) -> Document:
    """Parse an answer. Depth is bounded by the parser, size by the transport.

    Raises:
        TargetProtocolError: the answer is not JSON.

    """
    try:
        return Document(orjson.loads(body), url)
    except orjson.JSONDecodeError as error:
        raise TargetProtocolError(url=url, reason=f"the answer is not JSON ({error.msg[:200]}){_looks(body)}") from None


def number(text: object) -> float | None:
    """Parse a metric's value, which Flink sends as text; None if it is not a finite number ("NaN", "n/a", "true")."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def clean(text: str, *, length_max: int) -> str:
    """``text`` in one line of printable characters, at most ``length_max`` of them."""
    # Cut before the loop over characters: a hostile name may have millions.
    head = text[: length_max + 1]
    shown = "".join(c if c.isprintable() else " " for c in head)
    return shown if len(head) <= length_max else shown[: length_max - 1] + "…"


def clean_lines(text: str, *, length_max: int) -> str:
    """As ``clean``, but line breaks and tabs stay."""
    head = text[: length_max + 1]
    shown = "".join(c if c.isprintable() or c in "\n\t" else " " for c in head)
    return shown if len(head) <= length_max else shown[: length_max - 1] + "…"


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
