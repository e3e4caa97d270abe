"""The base of every shape on the wire: how a model is made from values of the domain."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all models: an unknown field in a request body is an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, from_attributes=True)

    @classmethod
    def of(cls, *values: object, **changed: object) -> Self:
        """Make a model: each field is the attribute of the same name from the first of ``values`` that has it.

        ``changed`` sets fields that no value has, and replaces fields whose attribute means something else.
        """
        sources = _sources(cls, tuple(map(type, values)))
        fields = {name: getattr(values[i], name) for name, i in sources if name not in changed}
        return cls.model_validate(fields | changed)


@lru_cache(maxsize=512)
def _sources(model: type[Model], kinds: tuple[type[Any], ...]) -> tuple[tuple[str, int], ...]:
    """The fields of a model that values of these kinds have, each with the index of the first value that has it."""
    known = [{*dir(kind), *getattr(kind, "__dataclass_fields__", ()), *_fields_of(kind)} for kind in kinds]
    found = ((name, next((i for i, names in enumerate(known) if name in names), None)) for name in model.model_fields)
    return tuple((name, i) for name, i in found if i is not None)


def _fields_of(kind: type[Any]) -> Iterable[str]:
    return kind.model_fields if issubclass(kind, BaseModel) else ()
