"""The shape of JSON responses: which keys occur where, with which types, and which of them always occur.

A shape is learned from recorded responses and compared with other responses. Integers differ from floats, and the
string ``"NaN"`` differs from other strings, because Flink uses it as a sentinel. All ids that are used as keys count
as one key. Objects with different values of ``className`` have different shapes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

_ID = re.compile(r"[0-9a-f]{32}")

Json = object


class Shape:
    """The shape of the recorded responses at one path."""

    def __init__(self) -> None:
        self.types: dict[str, set[str]] = defaultdict(set)
        self._objects: dict[str, int] = defaultdict(int)
        self._keys: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def learn(self, answer: Json) -> Shape:
        """Add one recorded response to the shape."""
        for path, value in walk(answer):
            self.types[path].add(type_of(value))
            if isinstance(value, dict):
                self._objects[path] += 1
                for key in {_key(k) for k in value}:
                    self._keys[path][key] += 1
        return self

    def learn_all(self, answers: Iterable[Json]) -> Shape:
        """Add many recorded responses to the shape."""
        for answer in answers:
            self.learn(answer)
        return self

    def required(self, path: str) -> set[str]:
        """Return the keys that every recorded object at ``path`` has."""
        return {key for key, count in self._keys[path].items() if count == self._objects[path]}

    def differences(self, answer: Json, *, surplus: frozenset[str] = frozenset()) -> list[str]:
        """Return the differences between ``answer`` and the recorded responses.

        Keys in ``surplus`` (``path.key``) are ignored.
        """
        found = []
        for path, value in walk(answer):
            if any(path == s or path.startswith((s + ".", s + "[")) for s in surplus):
                continue
            if path not in self.types:
                found.append(f"{path}: never recorded")
            elif type_of(value) not in self.types[path]:
                found.append(f"{path}: {type_of(value)} ({value!r:.60}), recorded: {sorted(self.types[path])}")
            if isinstance(value, dict) and path in self._objects:
                missing = self.required(path) - {_key(k) for k in value}
                found += [f"{path}.{key}: missing" for key in sorted(missing)]
        return sorted(set(found))


def walk(value: Json, path: str = "$") -> Iterator[tuple[str, Json]]:
    """Yield every value of a document with its path."""
    if isinstance(value, dict):
        if "className" in value:
            path += f"<{value['className']}>"
        yield path, value
        for key, item in value.items():
            yield from walk(item, f"{path}.{_key(key)}")
    elif isinstance(value, list):
        yield path, value
        for item in value:
            yield from walk(item, path + "[]")
    else:
        yield path, value


def type_of(value: Json) -> str:
    """Return the JSON type of a value. Integers, floats and the sentinel ``"NaN"`` are types of their own."""
    if value is None:
        return "null"
    if value == "NaN":
        return "NaN"
    names = {dict: "object", list: "array", bool: "bool", int: "int", float: "float", str: "str"}
    return names[type(value)]


def _key(key: str) -> str:
    return "<id>" if _ID.fullmatch(key) else key
