"""The JSON of annotations: what scripts and people post about a job, such as a deployment."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from backend.contracts.model import Lines, Model, OneLine, Rfc3339

_TEXT = r"^[^\x00]*$"


def _web_address(link: str) -> str:
    """Return ``link`` if a page may offer it as a link: an address of a web page, without credentials."""
    try:
        parts = urlsplit(link)
        is_allowed = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_allowed = False
    if not is_allowed or not link.isprintable() or " " in link:
        raise PydanticCustomError("link", "Input should be an address with http:// or https://, without credentials")
    return link


Link = Annotated[str, Field(max_length=2000, examples=["https://ci.example/builds/812"]), AfterValidator(_web_address)]
Tag = Annotated[str, Field(min_length=1, max_length=50, pattern=_TEXT), OneLine]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT), OneLine]
LabelText = Annotated[str, Field(max_length=200, pattern=_TEXT), OneLine]


class AnnotationIn(Model):
    """An annotation to post to one job."""

    text: Annotated[str, Field(min_length=1, max_length=500, pattern=_TEXT), Lines]
    at: Rfc3339 | None = None
    """When it happened. The default is now."""
    until: Rfc3339 | None = None
    """The end, if it lasted for some time."""
    link: Link | None = None
    tags: Annotated[list[Tag], Field(max_length=10)] = []
    author: Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT), OneLine] | None = None
    """The author's name. It is not verified, because all users share one token."""


class AnnotationsIn(AnnotationIn):
    """An annotation to post to every job that fits all of ``job``, ``target`` and ``labels``; at least one is set."""

    job: Name | None = None
    """The name of the job at its engine. Jobs with the same name on several targets all fit."""
    target: Name | None = None
    """The name or the id of a target."""
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=32)] = {}
    """Labels of the target, each with the value that it must have."""


class AnnotationOut(Model):
    """An annotation of one job. A post for several jobs makes an annotation with the same id for each of them."""

    id: str
    job_id: str
    at: datetime
    until: datetime | None
    at_engine: datetime
    """``at`` on the clock of the job's engine, to which the times of checkpoints refer."""
    until_engine: datetime | None
    text: str
    link: str | None
    tags: list[str]
    author: str | None
    added_at: datetime
