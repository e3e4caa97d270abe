"""What a Spark query's listener posts to the ingest API, and the answer.

* ``/api/v1/ingest/spark`` (POST SparkPushIn)                   -> SparkPushOut

The envelope is ours. What is in ``progress`` is Spark's
own ``StreamingQueryProgress`` (4.3), under Spark's own names; fields that are not read here may be there or not.
``collectors/spark/listener.py`` writes the same by hand, since it may import nothing of ours; a test keeps the two in
step. Instants are RFC 3339; of every event its own instant counts, never that of its arrival.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat
from pydantic.alias_generators import to_camel

from backend.contracts.api import Model

PUSH_URL_ROOT = "push:spark/"
"""Addresses of targets that push: this, and the deployment."""
DEMO_DEPLOYMENT = "demo-spark"
"""That of the query which ``up`` runs."""
EVENTS_MAX = 500
# What JSON's numbers hold exactly; sums of many stay below what the store holds.
_INT_MAX = 2**53
_YEAR_MS = 366 * 24 * 3600 * 1000
Text = Annotated[str, Field(max_length=4000)]
Id = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")]
Count = Annotated[int, Field(ge=0, le=_INT_MAX)]
Number = Annotated[int, Field(ge=-_INT_MAX, le=_INT_MAX)]
Instant = Annotated[AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))]
"""What PostgreSQL and the services can reckon with."""
Offset = Any
"""A source's own JSON: a number, a text, an object; kept as text and never interpreted, save where it is a number."""


class Foreign(BaseModel):
    """Base of what Spark writes: camelCase, and more fields than are read."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class StateOperatorIn(Foreign):
    """``stateOperators[*]``: one stateful operator; times are sums over its state stores."""

    num_rows_total: Count | None = None
    num_rows_updated: Count | None = None
    commit_time_ms: Count | None = None
    memory_used_bytes: Count | None = None
    num_state_store_instances: Count | None = None
    custom_metrics: dict[str, Number | None] = {}


class SourceIn(Foreign):
    """``sources[*]``."""

    description: Annotated[str, Field(max_length=20_000)] = ""
    start_offset: Offset = None
    end_offset: Offset = None
    latest_offset: Offset = None
    num_input_rows: Count | None = None
    metrics: dict[str, str | Number | FiniteFloat | None] | None = None


class EventTimeIn(Foreign):
    """``eventTime``; the watermark is absent where the query has none."""

    watermark: Instant | None = None


class ProgressIn(Foreign):
    """``StreamingQueryProgress``: one micro-batch that ended."""

    id: Id
    run_id: Id
    name: Text | None = None
    timestamp: Instant
    """When the batch was triggered."""
    batch_id: Count
    batch_duration: Annotated[int, Field(ge=0, le=_YEAR_MS)] | None = None
    """Milliseconds from trigger to end; ``durationMs.triggerExecution`` may be missing and is never read."""
    duration_ms: dict[str, Number] = {}
    num_input_rows: Count | None = None
    processed_rows_per_second: FiniteFloat | None = None
    event_time: EventTimeIn | None = None
    state_operators: Annotated[list[StateOperatorIn], Field(max_length=100)] = []
    sources: Annotated[list[SourceIn], Field(max_length=100)] = []


class _Event(Model):
    """What every event says of itself. ``seen_at`` is the driver's clock when the listener was called."""

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
    """The query had nothing to do."""

    event: Literal["idle"]
    id: Id
    run_id: Id
    name: Text | None = None
    timestamp: Instant


class AliveIn(_Event):
    """The listener's own word that the query runs, sent while nothing else is: a batch may take minutes."""

    event: Literal["alive"]
    id: Id
    run_id: Id
    name: Text | None = None


class TerminatedIn(_Event):
    """The query ended; with ``exception`` it failed in the batch after the last one, else it was stopped on purpose.

    The last batch is what the listener remembers of this run; null where it saw none.
    """

    event: Literal["terminated"]
    id: Id
    run_id: Id
    name: Text | None = None
    exception: Annotated[str, Field(max_length=20_000)] | None = None
    error_class: Text | None = None
    last_batch_id: Count | None = None
    last_batch_ended_at: Instant | None = None


SparkEvent = Annotated[StartedIn | ProgressEventIn | IdleIn | AliveIn | TerminatedIn, Field(discriminator="event")]


class SparkPushIn(Model):
    """Events of the queries of one driver, oldest first. The same event twice changes nothing."""

    deployment: Annotated[str, Field(min_length=1, max_length=200, examples=["orders-pipeline"])]
    """With the query's name it makes the job: stable over restarts. By default the Spark application's name."""
    sent_at: Instant
    """By the driver's clock, just before sending: the two clocks are compared by it."""
    spark_version: Annotated[str, Field(max_length=100)] | None = None
    dropped_count: Count = 0
    """Events the listener had to drop so far, since it was made: its queue is bounded and never holds Spark up."""
    trigger_interval_ms: Annotated[int, Field(ge=1, le=_YEAR_MS)] | None = None
    """The trigger's interval, where the job told the listener; Spark itself does not report it."""
    events: Annotated[list[SparkEvent], Field(max_length=EVENTS_MAX)]


class SparkPushOut(Model):
    """What was stored: new micro-batches, and those that were refused with the reason."""

    target_id: str
    new_count: int
    rejected: Annotated[list[str], Field(default_factory=list)]
