"""Checks that a JSON document has the shape that it must have, before anything reads it.

A shape is a type, ``None``, a list of one shape, a dict of shapes (a key that ends in ``?`` may be missing), ``Row``
for a list of fixed length, ``Either`` for alternatives, or ``Named`` for an object with any keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WHOLE_MAX = (1 << 63) - 1


class ShapeError(Exception):
    """A part of the document has another shape. ``where`` is its path."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(where)


@dataclass(frozen=True, slots=True)
class Row:
    """A list of fixed length, with a shape for each item."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several shapes."""

    shapes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose keys are names. All its values have one shape."""

    shape: Any


def check(value: object, shape: Any, where: str) -> None:
    """Check one value. Numbers are whole and from -1 to the largest that 8 bytes hold.

    Raises:
        ShapeError: the value has another shape.
    """
    if isinstance(shape, Either):
        _check_either(value, shape, where)
    elif shape is None:
        _require(value is None, where)
    elif shape is int:
        _require(type(value) is int and -1 <= value <= WHOLE_MAX, where)
    elif isinstance(shape, type):
        _require(type(value) is shape, where)
    elif isinstance(shape, Mapping):
        _check_object(value, shape, where)
    else:
        _check_items(value, shape, where)


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ShapeError(where)


def _check_either(value: object, either: Either, where: str) -> None:
    deepest = where
    for shape in either.shapes:
        try:
            return check(value, shape, where)
        except ShapeError as error:
            deepest = max(deepest, error.where, key=len)
    raise ShapeError(deepest)


def _check_object(value: object, shape: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise ShapeError(where)
    known = {name.removesuffix("?"): each for name, each in shape.items()}
    _require(value.keys() <= known.keys(), where)
    for name, each in shape.items():
        key = name.removesuffix("?")
        if key in value:
            check(value[key], each, f"{where}.{key}")
        else:
            _require(key != name, f"{where}.{key}")


def _check_items(value: object, shape: Any, where: str) -> None:
    if isinstance(shape, Named):
        if not isinstance(value, dict):
            raise ShapeError(where)
        for key, each in value.items():
            check(each, shape.shape, f"{where}.{key}")
        return
    if not isinstance(value, list):
        raise ShapeError(where)
    shapes = shape.items if isinstance(shape, Row) else shape * len(value)
    _require(len(value) == len(shapes), where)
    for n, (item, each) in enumerate(zip(value, shapes, strict=True)):
        check(item, each, f"{where}[{n}]")
