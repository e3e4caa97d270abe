"""Reads a parsed document field by field. Collects all problems, each together with the values that are allowed.

A value of a wrong type or size raises only ``InvalidInputError``, after the whole document has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from backend.domain.errors import FieldProblem, InvalidInputError
from backend.runtime.job.config import RuntimeConfig, change, shown

_NESTED_MAX = 16


class Reader:
    """Reads one document, and collects the problems in it."""

    def __init__(self) -> None:
        self._problems: list[FieldProblem] = []

    def problem(self, field: str, problem: str, allowed: str) -> None:
        """Record a problem with a field."""
        self._problems.append(FieldProblem(field, problem, allowed))

    def raise_problems(self) -> None:
        """Raise an error if the document has problems.

        Raises:
            InvalidInputError: the document has problems. The error contains all of them.
        """
        if self._problems:
            raise InvalidInputError(self._problems, what="job file")

    def table(self, value: object, where: str, known: Collection[str]) -> Table:
        """Return ``value`` as a table. Record a problem if it is not a table or has keys that are not in ``known``."""
        if not isinstance(value, Mapping):
            self.problem(where, "is not a table", "a table")
            value = {}
        for key in value:
            if key not in known:
                self.problem(f"{where}.{key}" if where else str(key), "is not a known key", ", ".join(sorted(known)))
        return Table(self, dict(value), where)

    def flattened(self, table: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, object]:
        """Turn nested tables into dotted keys, because TOML reads an unquoted dotted key as nested tables."""
        flat: dict[str, object] = {}
        for key, value in table.items():
            name = f"{prefix}{key}"
            if not isinstance(value, Mapping):
                flat[name] = value
            elif depth < _NESTED_MAX:
                flat |= self.flattened(value, f"{name}.", depth + 1)
            else:
                self.problem(f"config.{name[:80]}", "is nested too deeply", "a setting")
        return flat

    def config(self, changes: Mapping[str, object]) -> RuntimeConfig:
        """Return the default settings with ``changes`` applied. Record a problem for each invalid setting.

        Raises:
            PlanError: the settings contradict each other.
        """
        try:
            return change(RuntimeConfig(), changes)
        except InvalidInputError as error:
            self._problems.extend(error.problems)
            return RuntimeConfig()


class Table:
    """One table of the document.

    Each method reads one field. If the value is invalid, the method records a problem and returns a valid value
    instead.
    """

    def __init__(self, reader: Reader, values: dict[str, Any], where: str) -> None:
        self._reader = reader
        self._values = values
        self._where = where

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _wrong(self, key: str, allowed: str) -> None:
        self._reader.problem(self._name(key), f"{shown(self._values[key])!r} is not a valid value", allowed)

    def has(self, key: str) -> bool:
        """Return whether the document contains the field."""
        return key in self._values

    def text(self, key: str, default: str, *, most: int = 100) -> str:
        """Return text of at most ``most`` printable characters."""
        value = self._values.get(key, default)
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            self._wrong(key, f"text of at most {most} printable characters")
            return default
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``."""
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._wrong(key, f"a whole number from {low} to {high}")
            return default
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """Return a number from ``low`` to ``high``."""
        value = self._values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            self._wrong(key, f"a number from {low} to {high}")
            return default
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            self._wrong(key, "true or false")
            return default
        return value

    def scaled(self, key: str, default: int, read: Callable[[str], int], words: str, low: int, high: int) -> int:
        """Return a duration or a size from ``low`` to ``high``. ``read`` parses its text."""
        if key not in self._values:
            return default
        try:
            value = read(str(self._values[key]))
        except (ValueError, OverflowError):
            value = low - 1
        if not low <= value <= high:
            self._wrong(key, words)
            return default
        return value

    def word(self, key: str, default: str, words: tuple[str, ...]) -> str:
        """Return one of ``words``."""
        value = self._values.get(key, default)
        if value not in words:
            if key in self._values:
                self._wrong(key, ", ".join(words))
            else:
                self._reader.problem(self._name(key), "is missing", ", ".join(words))
            return words[0]
        return str(value)

    def factors(self, key: str, subtasks: int) -> dict[int, float]:
        """Return the factors by subtask index. The document may contain a factor for only some of the subtasks."""
        value = self._values.get(key, {})
        allowed = f'{{"0" = 4.0}}: subtasks 0 to {subtasks - 1}, factors 0.01 to 10000'
        factors: dict[int, float] = {}
        if not isinstance(value, Mapping):
            self._wrong(key, allowed)
            return factors
        for subtask, factor in value.items():
            name = str(subtask)
            is_index = len(name) < 10 and name.isascii() and name.isdecimal() and int(name) < subtasks
            if not is_index or not isinstance(factor, int | float) or not 0.01 <= factor <= 10_000:
                self._wrong(key, allowed)
                return {}
            factors[int(subtask)] = float(factor)
        return factors

    def shares(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers from 0 to 1, of which at least one is above 0; an empty one without the field."""
        value = self._values.get(key, [])
        rows: list[Any] = list(value) if isinstance(value, list | tuple) else [None]
        found = [float(v) for v in rows if isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1]
        if len(found) < len(rows) or (key in self._values and not any(found)):
            self._wrong(key, "numbers from 0 to 1, not all 0")
            return ()
        return tuple(found)

    def rows(self, key: str) -> list[object]:
        """Return the items of a list of tables."""
        value = self._values.get(key, [])
        if not isinstance(value, list):
            self._wrong(key, f"a list of tables: [[{key}]]")
            return []
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a nested table."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            self._wrong(key, f"a table: [{key}]")
            return {}
        return value
