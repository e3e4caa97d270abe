"""The base class of every JSON document on the wire, which can be filled from objects of the domain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import literal_schema

from backend.domain.text import clean, clean_lines

# Instants at the ends of the calendar have no equivalent in other time zones, and no neighbours.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)


def _instant(value: object) -> object:
    """Refuse numbers, and text that is only a number, because Pydantic would read them as seconds since 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and not _INSTANT.match(value)):
        raise PydanticCustomError("instant", "Input should be an instant of RFC 3339, such as 2026-01-31T12:00:00Z")
    return value


def _within_the_calendar(value: datetime) -> datetime:
    if not _EARLIEST <= value < _LATEST:
        raise PydanticCustomError("instant", "Input should be an instant from 1970 to 2199")
    return value


# The types of fields in requests. Text is not read as a number or a boolean, and a number is not read as an instant.
StrictBool = Annotated[bool, Field(strict=True)]
StrictInt = Annotated[int, Field(strict=True)]
StrictNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# Names and texts of people and of other programs, cleaned where they come in. ``Lines`` keeps line breaks.
OneLine = AfterValidator(lambda text: clean(text, length_max=len(text)))
Lines = AfterValidator(lambda text: clean_lines(text, length_max=len(text)))
# The name of a person who does something. At least one character is visible. It is not verified.
Author = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$"), OneLine]
Rfc3339 = Annotated[AwareDatetime, BeforeValidator(_instant), AfterValidator(_within_the_calendar)]


def one_of(names: type[StrEnum]) -> GetPydanticSchema:
    """Return the annotation of a text field whose values are those of ``names``. The schema of the field lists them."""
    return GetPydanticSchema(lambda _source, _handler: literal_schema([name.value for name in names]))


class Model(BaseModel):
    """Base class of all documents. A field that a document does not define is an error in a request body."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, from_attributes=True)

    @classmethod
    def of(cls, *values: object, **changed: object) -> Self:
        """Make a model. Each field takes the attribute of the same name from the first of ``values`` that has one.

        ``changed`` sets fields that no value has, and overrides fields whose attribute means something else.
        """
        sources = _sources(cls, tuple(map(type, values)))
        fields = {name: getattr(values[i], name) for name, i in sources if name not in changed}
        return cls.model_validate(fields | changed)


@lru_cache(maxsize=512)
def _sources(model: type[Model], kinds: tuple[type[Any], ...]) -> tuple[tuple[str, int], ...]:
    """Return the fields of ``model`` that objects of ``kinds`` can fill.

    Each field comes with the index of the first kind that can fill it.
    """
    known = [{*dir(kind), *getattr(kind, "__dataclass_fields__", ()), *_fields_of(kind)} for kind in kinds]
    sources = ((name, next((i for i, names in enumerate(known) if name in names), None)) for name in model.model_fields)
    return tuple((name, i) for name, i in sources if i is not None)


def _fields_of(kind: type[Any]) -> Iterable[str]:
    return kind.model_fields if issubclass(kind, BaseModel) else ()
