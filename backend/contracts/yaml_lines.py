"""Reads YAML of operators: each key keeps its line, and what could block or end the process is refused.

It is read by PyYAML's safe loader, which makes no objects. No problem repeats a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from backend.domain.errors import FieldProblem, InvalidInputError

Place = tuple[str | int, ...]
"""The path of a key or an item in a document."""
_DEPTH_MAX: Final = 100
_NODES_MAX: Final = 500_000
_NODES_MIN: Final = 1_000
_QUOTED = re.compile(r"""(\s*(?:'<[a-z ]+>'|'[^\w']'))|\s*['"].*""", re.DOTALL)
"""Quoted text in a problem of YAML. A token or one sign is in the first group. Any other text may be a secret."""


class Lines:
    """The line of each key and item of the file, by its path."""

    def __init__(self, node: yaml.Node, *, count_max: int = _NODES_MAX) -> None:
        self._lines: dict[Place, int] = {}
        self.doubled: list[Place] = []
        self._budget = count_max
        self._note(node, ())

    def of(self, path: Place) -> int:
        """Return the line of the longest part of ``path`` that the file has."""
        while path not in self._lines and path:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _note(self, node: yaml.Node, path: Place) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise _TooManyError
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in seen:
                    self.doubled.append((*path, name))
                    self._lines[(*path, name)] = key.start_mark.line + 1
                seen.add(name)
                self._lines.setdefault((*path, name), key.start_mark.line + 1)
                self._note(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for n, item in enumerate(node.value):
                self._note(item, (*path, n))


class ExcessError(ValueError):
    """A document would become too large. The text is the rest of a sentence on it."""


class _TooManyError(Exception):
    """The file has aliases that repeat aliases, or is nested too deeply."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses deep nesting. libyaml's composer would end the process by a stack overflow."""

    _depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: Any) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _TooManyError
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()


def composed(text: str, where: Path) -> tuple[Any, Lines]:
    """Return the document in ``text``, whose root is a mapping, and its lines.

    Raises:
        InvalidInputError: it is not such a document. The problem names the line in ``where``, the file.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise whole(where, "is empty", "targets: []")
        lines = Lines(node)
        root = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        problem = _QUOTED.sub(r"\1", error.problem or error.context or "")
        raise invalid([FieldProblem(f"{where}:{line}", f"is not YAML: {problem}")]) from None
    except (yaml.YAMLError, ValueError):
        raise whole(where, "is not YAML") from None
    except (_TooManyError, RecursionError):
        raise whole(where, "repeats parts of itself too often, or is nested too deeply") from None
    if lines.doubled:
        raise invalid(
            [FieldProblem(f"{where}:{lines.of(p)}: {dotted(p)}", "is set twice", "one value") for p in lines.doubled]
        )
    if not isinstance(root, dict):
        raise whole(where, "is not a mapping", "the key targets, with a list")
    return root, lines


def loaded(content: bytes) -> Any:
    """Return the YAML document in ``content``, which may be of any form.

    Raises:
        ExcessError: it repeats parts of itself too often, or is nested too deeply.
        ValueError: it is not text.
        yaml.YAMLError: it is not YAML.
    """
    loader = _Loader(content.decode("utf-8"))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Text without aliases has fewer nodes than bytes.
        Lines(node, count_max=min(_NODES_MAX, _NODES_MIN + 2 * len(content)))
        return loader.construct_document(node)
    except (_TooManyError, RecursionError):
        raise ExcessError("repeats parts of itself too often, or is nested too deeply") from None


def dotted(path: Place) -> str:
    """Return ``path`` as people write it, such as ``targets[0].url``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the file"


def whole(where: Path, problem: str, allowed: str | None = None) -> InvalidInputError:
    """Return the error of a file that is wrong as a whole."""
    return invalid([FieldProblem(str(where), problem, allowed)])


def invalid(problems: Sequence[FieldProblem]) -> InvalidInputError:
    """Return the error of a file with these problems."""
    return InvalidInputError(problems, what="targets file")
