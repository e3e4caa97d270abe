"""Offers the links out of Barrierscope for a job: pages of the engine's web UI, and the templates of its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts.links import LinkOut, LinksOut
from backend.domain.batch_work import BatchWork
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.links import LABEL, fill, fill_path
from backend.domain.observation import JobState
from backend.domain.web_ui import APP_ATTEMPT, PAGES, WebUi
from backend.services.jobs.reader import TimeRange, bounded
from backend.services.targets.places import Place, place_of
from backend.store.checkpoints.micro_batches import batches_of, newest_work
from backend.store.checkpoints.reader import CheckpointRecord, get_checkpoint
from backend.store.jobs.channels import web_ui_of
from backend.store.jobs.reader import JobRecord, RunRecord, get_job, get_run
from backend.store.postgres.connections import reading
from backend.store.targets.links import TargetLinks, links_of_target

_AROUND = timedelta(minutes=1)
"""The time range of a checkpoint in links begins this long before its trigger, and ends this long after its end."""


@dataclass(frozen=True, slots=True)
class LinkQuery:
    """What the links are about. If ``run_id`` is None, the job's current run is meant.

    ``subtask`` requires ``vertex_id``.
    """

    run_id: str | None = None
    vertex_id: str | None = None
    subtask: int | None = None
    checkpoint_id: int | None = None


class LinkService:
    """Handles requests for the links of jobs."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of_job(self, job_id: str, query: LinkQuery, wanted: TimeRange) -> LinksOut:
        """Return the links of a job, a vertex, a subtask or a checkpoint.

        ``wanted`` is the time range in the links, on the engine's clock. Its default is that of the checkpoint or, if
        none is chosen, the last hour.

        Raises:
            UnknownEntityError: there is no such job, run, vertex, subtask or checkpoint.
            InvalidInputError: a subtask without a vertex, or a range that ends before it begins.
        """
        if query.subtask is not None and query.vertex_id is None:
            problem = FieldProblem("vertex", "is missing", "the vertex of the subtask")
            raise InvalidInputError([problem], what="query")
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            run = record.run if query.run_id is None else await get_run(connection, job_id, query.run_id)
            target = await links_of_target(connection, run.target_id)
            ui, ui_target = run.engine.web_ui, target
            other = await web_ui_of(connection, run.id, has_ended=run.state is JobState.ENDED) if ui is None else None
            if other is not None:
                ui, ui_target = other[1], await links_of_target(connection, other[0])
            place, chosen = None, None
            if query.vertex_id is not None:
                place = await place_of(connection, run, query.vertex_id, query.subtask)
            engine_now = record.engine_now(now)
            if query.checkpoint_id is not None:
                chosen = await get_checkpoint(connection, run.id, query.checkpoint_id)
                header = chosen.header
                ended_at = header.failed_at or header.latest_ack_at or engine_now
                until = min(ended_at + _AROUND, max(engine_now, ended_at))
                wanted = TimeRange(wanted.since or header.triggered_at - _AROUND, wanted.until or until)
            work = await _work_of(connection, run, ui, chosen)
        since, until = bounded(wanted, engine_now)
        values = _values(record, run, target, place, since, until)
        values["checkpoint"] = _text(query.checkpoint_id)
        values |= work
        return LinksOut(
            job_id=record.id,
            run_id=run.id,
            vertex=None if place is None else place.vertex.name,
            subtask=query.subtask,
            since=since,
            until=until,
            items=[*_of_engine(run, ui, ui_target, values), *_of_target(target, values)],
            as_of=now,
        )


def _values(
    record: JobRecord, run: RunRecord, target: TargetLinks, place: Place | None, since: datetime, until: datetime
) -> dict[str, str | None]:
    """Return the value of each placeholder, or None if it is not known."""
    values: dict[str, str | None] = {
        "target": target.name,
        "job": record.name,
        "run": run.engine_run_id,
        "from": str(round(since.timestamp() * 1000)),
        "to": str(round(until.timestamp() * 1000)),
        "from_iso": _iso(since),
        "to_iso": _iso(until),
        **{f"{LABEL}{key}": value for key, value in target.labels.items()},
    }
    if place is not None:
        values |= {
            "vertex": place.vertex.name,
            "vertex_id": place.vertex.id,
            "subtask": _text(place.subtask),
            "attempt": _text(place.attempt),
            "host": place.host,
            "taskmanager": place.task_manager,
        }
    return values


async def _work_of(
    connection: AsyncConnection, run: RunRecord, ui: WebUi | None, chosen: CheckpointRecord | None
) -> dict[str, str | None]:
    """Return the values in links to Spark's own pages: of the chosen batch, and else of the application only."""
    if ui not in (WebUi.SPARK_DRIVER, WebUi.SPARK_HISTORY):
        return {}
    known = {} if chosen is None else await batches_of(connection, [chosen.place])
    own = None if chosen is None or chosen.place not in known else known[chosen.place].work
    found = own or await newest_work(connection, run.id) or BatchWork()
    own = own or BatchWork()
    stage = own.stages[0] if own.stages else None
    return {
        "app": found.app_id,
        "app_attempt": found.attempt_id,
        "query_run": run.engine_run_id.rpartition("/")[2],
        "execution": _text(own.execution_id),
        "spark_job": _text(own.job_ids[0] if own.job_ids else None),
        "stage": _text(None if stage is None else stage.stage_id),
        "stage_attempt": _text(None if stage is None else stage.attempt),
    }


def _of_engine(
    run: RunRecord, ui: WebUi | None, target: TargetLinks, values: Mapping[str, str | None]
) -> list[LinkOut]:
    """Return the pages of the engine's web UI, which is that of the target.

    Pages that need a vertex are left out if none is chosen.
    """
    if ui is None:
        return []
    root = target.ui_url or _without_credentials(target.url)
    is_over = run.state is JobState.ENDED
    known = {**values, "state": "completed" if is_over else "running"}
    links = []
    for page in PAGES[ui]:
        if is_over and page.is_of_process:
            links.append(LinkOut(name=page.name, origin="engine", url=None, reason="the run has ended"))
            continue
        template = page.path if known.get("app_attempt") else page.path.replace(APP_ATTEMPT, "")
        path = fill_path(template, known)
        url = None if path.url is None else f"{root.rstrip('/')}/{path.url}"
        links.append(LinkOut(name=page.name, origin="engine", url=url, reason=path.reason))
    return links


def _of_target(target: TargetLinks, values: Mapping[str, str | None]) -> list[LinkOut]:
    links = []
    for link in target.link_templates:
        filled = fill(link["url"], values)
        links.append(LinkOut(name=link["name"], origin="template", url=filled.url, reason=filled.reason))
    return links


def _without_credentials(url: str) -> str:
    # The address of a target from the configuration may contain a password, which no page may show.
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
