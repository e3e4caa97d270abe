"""The JSON of links out of Barrierscope: the templates of a target, and the links of a job that are made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from backend.contracts.model import Model
from backend.domain.links import TEMPLATE_MAX, problem_of

LINKS_MAX = 20
"""The largest number of templates of a target."""


def _checked(template: str) -> str:
    if (problem := problem_of(template)) is not None:
        # The text is passed as a value, because its braces must not be read as fields of the message.
        raise PydanticCustomError("link_template", "the template {problem}", {"problem": problem})
    return template


def _named(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise PydanticCustomError("link_name", "the name is blank or has a control character")
    return name.strip()


class LinkTemplate(Model):
    """A link that is offered for every job of a target, with placeholders such as ``{taskmanager}``."""

    name: Annotated[str, Field(min_length=1, max_length=60, examples=["Grafana"]), AfterValidator(_named)]
    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=TEMPLATE_MAX,
            examples=["https://grafana.example/d/tm?var-tm={taskmanager}&from={from}&to={to}"],
        ),
        AfterValidator(_checked),
    ]


def _distinct(links: list[LinkTemplate]) -> list[LinkTemplate]:
    names = [link.name for link in links]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise PydanticCustomError("link_names", "the name {name} is used twice", {"name": repr(twice)})
    return links


LinkTemplates = Annotated[list[LinkTemplate], Field(max_length=LINKS_MAX), AfterValidator(_distinct)]


class LinkOut(Model):
    """A link of a job. ``url`` is null if the link cannot be offered, and ``reason`` then says why."""

    name: str
    origin: Literal["engine", "template"]
    """``engine``: a page of the engine's own web UI. ``template``: a link that a user added to the target."""
    url: str | None
    reason: str | None = None


class LinksOut(Model):
    """The links out of Barrierscope for a job and, if they were chosen, its vertex, subtask and checkpoint."""

    job_id: str
    run_id: str
    vertex: str | None = None
    """Name of the chosen vertex."""
    subtask: int | None = None
    since: datetime
    """Begin of the time range in the links: that of the checkpoint, or an hour. It is on the engine's clock."""
    until: datetime
    items: list[LinkOut]
    as_of: datetime
