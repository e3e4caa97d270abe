"""The JSON that a Spark query's listener posts to the ingest API, and the JSON of the response.

* ``/api/v1/ingest/spark`` (POST SparkPushIn)                   -> SparkPushOut

The outer document is ours. ``progress`` holds Spark's own ``StreamingQueryProgress`` (4.3) under Spark's own names.
Fields of it that are not defined here are ignored. ``collectors/spark/listener.py`` writes this JSON without these
models, because it must not import our packages. A test checks that the listener and the models agree. Instants are RFC
3339. An event is dated by the instant in the event, not by the time of its arrival.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictStr, model_validator
from pydantic.alias_generators import to_camel

from backend.contracts.model import Lines, Model, OneLine, Rfc3339, StrictInt, StrictNumber

PUSH_URL_ROOT = "push:spark/"
"""The address of a target that pushes its data is this prefix followed by the deployment."""
DEMO_DEPLOYMENT = "demo-spark"
"""The deployment name of the demo query that ``up`` runs."""
EVENTS_MAX = 500
# JSON numbers are exact up to 2**53. A sum of many such numbers still fits into an integer of the store.
_INT_MAX = 2**53
_YEAR_MS = 366 * 24 * 3600 * 1000
Text = Annotated[str, Field(max_length=4000), OneLine]
Id = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")]
Count = Annotated[StrictInt, Field(ge=0, le=_INT_MAX)]
Number = Annotated[StrictInt, Field(ge=-_INT_MAX, le=_INT_MAX)]
Instant = Rfc3339
"""An instant within the range in which PostgreSQL and the services can calculate."""
Offset = Any
"""A source's own JSON value. It is stored as text. Only the numbers in it are interpreted, to compute the backlog."""


class Foreign(BaseModel):
    """Base class of Spark's own objects. Their names are camelCase, and unknown fields are ignored."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class StateOperatorIn(Foreign):
    """``stateOperators[*]``: one stateful operator. Its times are sums over its state stores."""

    operator_name: Annotated[str, Field(max_length=4000), OneLine] | None = None
    num_rows_total: Count | None = None
    num_rows_updated: Count | None = None
    num_rows_removed: Count | None = None
    num_rows_dropped_by_watermark: Count | None = None
    commit_time_ms: Count | None = None
    memory_used_bytes: Count | None = None
    num_state_store_instances: Count | None = None
    custom_metrics: dict[str, Number | None] = {}


class SourceIn(Foreign):
    """``sources[*]``: one source of the micro-batch."""

    description: Annotated[str, Field(max_length=20_000), OneLine] = ""
    start_offset: Offset = None
    end_offset: Offset = None
    latest_offset: Offset = None
    num_input_rows: Count | None = None
    metrics: Annotated[dict[str, StrictStr | StrictNumber | None], Field(max_length=200)] | None = None


class SinkIn(Foreign):
    """``sink``: where the micro-batch writes. The sink's own metrics are not read."""

    description: Annotated[str, Field(max_length=20_000), OneLine] = ""


class EventTimeIn(Foreign):
    """``eventTime``: the event-time watermark, which is absent if the query has no watermark."""

    watermark: Instant | None = None


class ProgressIn(Foreign):
    """``StreamingQueryProgress``: Spark's report on one micro-batch that has ended."""

    id: Id
    run_id: Id
    name: Text | None = None
    timestamp: Instant
    """The instant at which the batch was triggered."""
    batch_id: Count
    batch_duration: Annotated[StrictInt, Field(ge=0, le=_YEAR_MS)] | None = None
    """Milliseconds from the trigger to the end. If it is absent, ``durationMs.triggerExecution`` is used.

    The JSON of Spark has it since 4.0. ``triggerExecution`` may be absent too.
    """
    duration_ms: dict[str, Number] = {}
    num_input_rows: Count | None = None
    processed_rows_per_second: StrictNumber | None = None
    event_time: EventTimeIn | None = None
    state_operators: Annotated[list[StateOperatorIn], Field(max_length=100)] = []
    sources: Annotated[list[SourceIn], Field(max_length=100)] = []
    sink: SinkIn | None = None

    @model_validator(mode="after")
    def _with_duration(self) -> Self:
        whole_ms = self.duration_ms.get("triggerExecution")
        if self.batch_duration is None and whole_ms is not None and 0 <= whole_ms <= _YEAR_MS:
            self.batch_duration = whole_ms
        return self


class _Event(Model):
    """Base class of events. ``seen_at`` is the time on the driver's clock at which Spark called the listener."""

    seen_at: Instant


class StartedIn(_Event):
    """The query started."""

    event: Literal["started"]
    id: Id
    run_id: Id
    name: Text | None = None
    timestamp: Instant


class ProgressEventIn(_Event):
    """A micro-batch ended."""

    event: Literal["progress"]
    progress: ProgressIn


class IdleIn(_Event):
    """The query was triggered but had no new data to process."""

    event: Literal["idle"]
    id: Id
    run_id: Id
    name: Text | None = None
    timestamp: Instant


class AliveIn(_Event):
    """The listener's own report that the query runs.

    It is sent when there is no other event, because one batch may take minutes.
    """

    event: Literal["alive"]
    id: Id
    run_id: Id
    name: Text | None = None


class TerminatedIn(_Event):
    """The query ended.

    If ``exception`` is set, the query failed in the batch after the last batch that the listener saw in this run.
    Otherwise it was stopped on purpose. The fields of the last batch are null if the listener saw none.
    """

    event: Literal["terminated"]
    id: Id
    run_id: Id
    name: Text | None = None
    exception: Annotated[str, Field(max_length=20_000), Lines] | None = None
    error_class: Text | None = None
    last_batch_id: Count | None = None
    last_batch_ended_at: Instant | None = None


SparkEvent = Annotated[StartedIn | ProgressEventIn | IdleIn | AliveIn | TerminatedIn, Field(discriminator="event")]


class SparkPushIn(Model):
    """Events of the queries of one driver, oldest first. Sending an event twice has no further effect."""

    deployment: Annotated[str, Field(min_length=1, max_length=200, examples=["orders-pipeline"]), OneLine]
    """Identifies the job, together with the query's name. It must therefore stay the same over restarts.

    The default is the name of the Spark application.
    """
    sent_at: Instant
    """The time on the driver's clock just before sending. The service uses it to find the offset of that clock."""
    spark_version: Annotated[str, Field(max_length=100), OneLine] | None = None
    dropped_count: Count = 0
    """Number of events that the listener has dropped so far. Its queue is bounded, so that it never delays Spark."""
    trigger_interval_ms: Annotated[StrictInt, Field(ge=1, le=_YEAR_MS)] | None = None
    """The interval of the query's trigger, if the job passed it to the listener. Spark itself does not report it."""
    events: Annotated[list[SparkEvent], Field(max_length=EVENTS_MAX)]


class SparkPushOut(Model):
    """The result of a push: the number of new micro-batches, and the reasons why other micro-batches were refused."""

    target_id: str
    new_count: int
    rejected: Annotated[list[str], Field(default_factory=list)]
