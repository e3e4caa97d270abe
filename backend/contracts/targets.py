"""The JSON of targets: what is added or changed, its health, and the result of a connection test."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from backend.contracts.connection import ConnectionDoc, SameTarget
from backend.contracts.engines import Engine
from backend.contracts.links import LinkTemplate, LinkTemplates
from backend.contracts.model import Model, OneLine, StrictBool, one_of
from backend.domain.connection_failure import ConnectionFailure
from backend.domain.declared_target import INTERVAL_MAX_S, INTERVAL_MIN_S
from backend.domain.target import TargetState

Labels = Annotated[dict[Annotated[str, OneLine], Annotated[str, OneLine]], Field(max_length=32)]


class TargetIn(Model):
    """A target to add or to test."""

    url: Annotated[str, Field(max_length=2000, examples=["http://my-flink:8081"])]
    name: Annotated[Annotated[str, OneLine] | None, Field(max_length=200)] = None
    labels: Labels = {}
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] = "flink"
    """The collector that reads the target: the name of an entry point in the group ``barrierscope.collectors``."""
    connection: ConnectionDoc | None = None
    """Credentials, TLS and proxy. Only references that the operator allows are taken (docs/targets.md)."""
    interval_s: Annotated[float | None, Field(ge=INTERVAL_MIN_S, le=INTERVAL_MAX_S, strict=True)] = None
    """Seconds between two polls. Null: the interval of the collector."""
    ui_url: Annotated[str | None, Field(max_length=2000)] = None
    """The address of the engine's web UI as browsers reach it. Null: the address of the target."""
    links: LinkTemplates = []
    is_enabled: Annotated[StrictBool, Field(description="False: the target is listed, but not read.")] = True


class TargetPatch(SameTarget):
    """Changes to a target. Absent fields keep their values."""

    name: Annotated[Annotated[str, OneLine] | None, Field(max_length=200)] = None
    labels: Labels | None = None
    is_enabled: StrictBool | None = None
    ui_url: Annotated[str | None, Field(max_length=2000)] = None
    """The address of the engine's web UI as browsers reach it. An empty text: the address of the target."""
    links: LinkTemplates | None = None
    """All links of the target, in the order in which they are shown."""
    links_version: Annotated[str | None, Field(max_length=40)] = None
    """The ``links_version`` that was read. If ``links`` or ``ui_url`` were changed since then, the API answers 409."""
    connection: ConnectionDoc | None = None
    """Credentials, TLS and proxy, which replace the former ones as a whole. An empty object removes them."""
    interval_s: Annotated[float | None, Field(ge=0, le=INTERVAL_MAX_S, strict=True)] = None
    """Seconds between two polls, at least 0.2. 0: the interval of the collector again."""


class TargetHealthOut(Model):
    """The health of a target, from its latest polls or pushes."""

    state: TargetState
    """``silent``: a job that pushes has sent nothing for 90 seconds. ``partial``: some of its jobs cannot be read,
    or its list leaves some out."""
    reason: str | None = None
    since: datetime | None = None
    last_success_at: datetime | None = None
    last_attempt_at: datetime | None = None


class PollCostOut(Model):
    """The cost that polling causes at the target: means over about the last 20 polls."""

    requests_per_poll: float
    bytes_per_poll: float
    poll_duration_ms: float
    poll_interval_s: float
    set_interval_s: float | None = None
    """The interval that the collector is set to. Null until a collector of this version has polled the target."""


class TargetShedOut(Model):
    """What the collector could not read in time since the target was added.

    The collector skips data in this order: details of old checkpoints, then other details. It misses whole
    checkpoints only if the target no longer lists them.
    """

    shed_checkpoint_count: int
    """Checkpoints that left the target's history before they were read."""
    shed_detail_count: int
    """Checkpoints that are stored without the details of their subtasks."""
    last_shed_at: datetime


class TargetOut(Model):
    """A target, with the health and the cost of its polls."""

    id: str
    name: str
    url: str
    kind: str = "flink"
    """The collector that reads the target."""
    engine: Engine | str | None
    engine_version: str | None = None
    labels: dict[str, str]
    origin: Literal["api", "configuration", "built-in", "discovery", "push"]
    """``push``: the target is not polled; its jobs send their own events."""
    is_enabled: bool
    health: TargetHealthOut
    cost: PollCostOut | None = None
    shed: TargetShedOut | None = None
    """Null if everything was read in time."""
    ui_url: str | None = None
    """The address of the engine's web UI as browsers reach it. Null: the address of the target."""
    links: list[LinkTemplate] = []
    links_version: str = ""
    """Changes whenever ``links`` or ``ui_url`` change."""
    version: str = ""
    """Changes whenever a field that ``PATCH`` takes changes. Sent as ``If-Match`` with a change, it makes the
    answer 409 if someone has changed the target meanwhile."""
    connection: ConnectionDoc | None = None
    """Credentials by reference, TLS and proxy. Null: none."""
    interval_s: float | None = None
    """Seconds between two polls. Null: the interval of the collector."""
    declared_by: str | None = None
    """The file or discovery that declares the target, so that it is changed there. Null: it was added by the API."""
    declared_at: Annotated[str | None, Field(description="Path or address. Null: the API may change it.")] = None
    missing_since: datetime | None = None
    """From when on it was no longer declared there. It is read for some minutes more."""
    added_at: datetime


class TargetTestOut(Model):
    """The result of a connection test. The test stores nothing."""

    is_ok: bool
    engine: Engine | str | None = None
    engine_version: str | None = None
    running_jobs: list[str] = []
    summary: str | None = None  # What answers, in words; null if ``engine`` and ``engine_version`` say it.
    problem: str | None = None
    failure: Annotated[str, one_of(ConnectionFailure)] | None = None
    """What failed first: the name, TCP, the proxy, TLS, the status, a redirect, a login page, or another program."""
    cure: str | None = None
    """What to do about ``failure``. Null if ``root`` is the cure."""
    root: str | None = None
    """The right address, if another path of the given one was found to be the target's root."""
    duration_ms: int
