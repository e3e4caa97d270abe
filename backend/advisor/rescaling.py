"""How the parallelism of one vertex is changed: by a setting, by a request, or in the job's code.

Read from Flink's ``Dispatcher`` in the jars of 1.17 to 2.3: the overrides of parallelism come from the cluster's
configuration only in 1.17 and 1.18, and from the job's too since 1.19. Since 2.0 they are applied to job graphs only,
and ``flink run`` submits a graph of streams. The request exists since 1.18, and only the adaptive scheduler takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from backend.advisor.advice import Change, Precondition
from backend.domain.engines import EngineCapabilities, Rescaling
from backend.domain.topology import Vertex

SQL_PARALLELISM = "table.exec.resource.default-parallelism"
_OVERRIDES = "pipeline.jobvertex-parallelism-overrides"
_SCHEDULER = "jobmanager.scheduler"
_SCHEDULER_MODE = "scheduler-mode"
_SQL_OPERATORS = (
    "Calc|Correlate|DataStreamScan|Expand|Deduplicate|ChangelogNormalize|ConstraintEnforcer|DropUpdateBefore|Limit|Match"
    r"|Rank|WindowRank|Sort|SortLimit|SinkMaterializer|TableSourceScan|Union|Values|\w*Aggregate|\w*Join|\w*Assigner"
)
# Since 1.15 an operator of SQL is named like ``Calc[12]``, and before like ``Calc(select=[id])``.
_SQL = re.compile(rf"(?:^|[ (])(?:{_SQL_OPERATORS})(?:\[\d+\]|\((?:\w+=\[|joinType=|limit=))")


def is_sql(names: Iterable[str]) -> bool:
    """Return whether a job's graph was made from SQL or the Table API, by the names of its vertices."""
    return any(_SQL.search(name) for name in names)


def is_adaptive(settings: Mapping[str, str] | None) -> bool | None:
    """Return whether the cluster runs the adaptive scheduler, as its configuration says; None if it is not known."""
    if settings is None:
        return None
    # The reactive mode runs on the adaptive scheduler, but takes as many subtasks as there are slots.
    is_reactive = settings.get(_SCHEDULER_MODE, "").strip().lower() == "reactive"
    return settings.get(_SCHEDULER, "").strip().lower() == "adaptive" and not is_reactive


def changes_of(engine: EngineCapabilities, vertex: Vertex, count: int, *, sql: bool) -> tuple[Change, ...]:
    """Return the changed settings that give ``vertex`` so many subtasks; nothing if no setting of the engine does."""
    key = engine.settings.parallelism
    if key is not None:
        return (Change(key, f"{vertex.id}:{vertex.parallelism}", f"{vertex.id}:{count}"),)
    if engine.rescaling is Rescaling.CODE and sql:
        return (Change(SQL_PARALLELISM, None, str(count)),)
    return ()


def steps_of(
    engine: EngineCapabilities, vertex: Vertex, count: int, *, sql: bool, adaptive: bool | None
) -> tuple[str, ...]:
    """Return what a person does in place of a setting, or in addition to it, as sentences."""
    steps = []
    if engine.has_resource_requirements and (adaptive or engine.rescaling is Rescaling.CODE):
        when = (
            "The cluster runs the adaptive scheduler"
            if adaptive
            else f"If the cluster runs the adaptive scheduler ({_SCHEDULER}: adaptive)"
        )
        steps.append(
            f"{when}: GET /jobs/JOB/resource-requirements, set the upperBound of {vertex.id} to {count}, and PUT the"
            " whole answer back. The job needs no new start."
        )
    if engine.rescaling is Rescaling.CODE:
        steps += _in_code(count, sql=sql, has_request=bool(steps))
        if engine.is_flink_release:
            steps.append(_why_no_override(engine))
    elif engine.rescaling is Rescaling.CLUSTER_SETTING:
        steps.append(
            f"This version reads {_OVERRIDES} from the cluster's configuration only; as an option of the job it has no"
            " effect. Restart the JobManager, and start the job from its newest checkpoint."
        )
    return tuple(steps)


def conditions_of(engine: EngineCapabilities) -> tuple[Precondition, ...]:
    """Return what must hold so that the changed setting changes nothing else."""
    if engine.settings.parallelism != _OVERRIDES:
        return ()
    return (Precondition(f"the new value of {_OVERRIDES} keeps the entries of all other vertices", None),)


def _in_code(count: int, *, sql: bool, has_request: bool) -> list[str]:
    if sql:
        verb = "Otherwise, set" if has_request else "Set"
        return [
            f"{verb} {SQL_PARALLELISM} to {count} and start the statement again. SQL sets no parallelism of a single"
            " operator, so all of them get this one; only sources and sinks may have an own one."
        ]
    verb = "Otherwise, call" if has_request else "Call"
    return [
        f"{verb} setParallelism({count}) on the vertex's operators in the job's code, and start the job from its"
        f" newest checkpoint. If the code sets no parallelism, `flink run -p {count}` raises that of all vertices."
    ]


def _why_no_override(engine: EngineCapabilities) -> str:
    if engine.has_resource_requirements:
        return (
            f"{_OVERRIDES} does not help: Flink 2 accepts the key, but applies it to no job that `flink run` or SQL"
            " submits."
        )
    return f"{_OVERRIDES} does not help: it exists since Flink 1.17, and an older version ignores it."
