"""The jobs of ``make test-versions``: what is built, and what Barrierscope must find out about it.

Each job states the cause that it was built with. The costs are waits, so the jobs share a small machine. Records have
500 bytes, so the buffers of Flink's defaults hold about a second of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.verdict import Health, VerdictKind
from tests.simulators.versions.jars import is_before

_INTERVAL = "execution.checkpointing.interval"


class End(StrEnum):
    """How a job ends."""

    CANCELLED = "cancelled"
    BY_ITSELF = "by itself"
    SAVEPOINT = "stopped with a savepoint"


@dataclass(frozen=True, slots=True)
class VersionsJob:
    """One job.

    ``kinds`` are the right kinds of verdict. ``vertex`` is a part of the name of the vertex that was built to be the
    cause; None if no vertex is. ``healths`` are the right health words; every word is right if it is empty.
    """

    name: str
    about: str
    kinds: tuple[VerdictKind, ...]
    vertex: str | None = None
    subtasks: tuple[int, ...] | None = None
    healths: tuple[Health, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    statements: tuple[str, ...] = ()
    settings: Mapping[str, str | None] = field(default_factory=dict)
    end: End = End.CANCELLED
    since: str = "1.13"
    before: str = "9.0"
    is_recorded: bool = True

    def is_in(self, version: str) -> bool:
        """Return whether the job can run on this version."""
        return not is_before(version, self.since) and is_before(version, self.before)

    @property
    def slots(self) -> int:
        """How many slots the job takes: its largest parallelism, because Flink's tasks share slots."""
        return int(dict(self.arguments).get("parallelism", "2"))

    def words(
        self, base: Mapping[str, str], *, changed: Mapping[str, str] | None = None, parallelism: int | None = None
    ) -> tuple[str, ...]:
        """Return the arguments of the program.

        ``base`` are settings of every job. ``changed`` are settings of an advice, and so is ``parallelism``.
        """
        named = {"pipeline.name": self.name}
        settings = {**base, **named, **self.settings, **(changed or {})}
        words = [word for name, value in (("name", self.name), *self.arguments) for word in (f"--{name}", value)]
        words += [w for key, value in settings.items() if value is not None for w in ("--set", f"{key}={value}")]
        words += [] if parallelism is None else ["--parallelism", str(parallelism)]
        return (*words, *(w for statement in self.statements for w in ("--statement", statement)))


def _table(name: str, *, rate: int, columns: str = "k INT, v BIGINT, p STRING", more: str = "") -> str:
    options = f"'connector'='datagen', 'rows-per-second'='{rate}', 'fields.p.length'='400', 'fields.k.min'='0'"
    return f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({options}, 'fields.k.max'='999'{more})"


def _sink(columns: str) -> str:
    return f"CREATE TEMPORARY TABLE nowhere ({columns}) WITH ('connector'='blackhole')"


_AGGREGATION = (
    _table("orders", rate=4000),
    _sink("k INT, s BIGINT, n BIGINT"),
    "INSERT INTO nowhere SELECT k, SLOW(1000, s), n FROM (SELECT k, SUM(v) AS s, COUNT(p) AS n FROM orders GROUP BY k)",
)
_CALM = (
    _table("calm_orders", rate=300),
    _sink("k INT, s BIGINT, n BIGINT"),
    "INSERT INTO nowhere SELECT k, SUM(v) AS s, COUNT(p) AS n FROM calm_orders GROUP BY k",
)
_JOIN = (
    _table(
        "orders",
        rate=4000,
        columns="k INT, v BIGINT, p STRING, hot AS CAST(CASE WHEN k < 700 THEN 7 ELSE MOD(k, 10) END AS BIGINT)",
    ),
    _sink("k BIGINT, s BIGINT, p STRING"),
    "INSERT INTO nowhere SELECT hot, SLOW(1000, v + ten.f0), p FROM orders JOIN ten ON orders.hot = ten.f0",
)
_TOP_N = (
    _sink("k BIGINT, v BIGINT, p BYTES"),
    "INSERT INTO nowhere SELECT k, SLOW(1000, v), p FROM (SELECT k, v, p, ROW_NUMBER() OVER"
    " (PARTITION BY k ORDER BY v DESC) AS n FROM (SELECT MOD(f0, 100) AS k, f0 AS v, f1 AS p FROM numbers))"
    " WHERE n <= 3",
)
_WINDOW = (
    _table("orders", rate=1000, columns="k INT, v BIGINT, p STRING, ts AS PROCTIME()"),
    _sink("k INT, s BIGINT, n BIGINT"),
    "INSERT INTO nowhere SELECT k, SUM(v), COUNT(p) FROM"
    " TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '4' SECOND)) GROUP BY k, window_start, window_end",
)
_ROCKSDB = {"state.backend": "rocksdb", "state.backend.type": "rocksdb", "state.backend.incremental": "true"}
_UNALIGNED = {"execution.checkpointing.unaligned": "true"}
_NONE = (VerdictKind.NONE,)
_CAPACITY = (VerdictKind.CAPACITY,)
_FINE = (Health.HEALTHY,)


# Flink 1.13 has another name for the timeout.
_WITH_TIMEOUT = {
    **_UNALIGNED,
    "execution.checkpointing.alignment-timeout": "1s",
    "execution.checkpointing.aligned-checkpoint-timeout": "1s",
}


JOBS = (
    VersionsJob(
        "sql-aggregation",
        "SQL: datagen, GROUP BY, and a function of 1 ms a record behind it",
        _CAPACITY,
        "GroupAggregate",
        statements=_AGGREGATION,
    ),
    VersionsJob(
        "sql-join",
        "SQL: a join in which 70 % of the records have one key",
        (VerdictKind.SKEW,),
        "Join",
        statements=_JOIN,
    ),
    VersionsJob("sql-window", "SQL: a tumbling window below capacity", _NONE, healths=_FINE, statements=_WINDOW),
    VersionsJob(
        "legacy-source",
        "a legacy SourceFunction, then an operator at capacity",
        _CAPACITY,
        "work",
        arguments=(("source", "legacy"),),
        before="2.0",
    ),
    VersionsJob(
        "flip-27-source", "a FLIP-27 source, then an operator at capacity", _CAPACITY, "work", is_recorded=False
    ),
    VersionsJob(
        "checkpointing-off",
        "SQL aggregation at capacity without checkpoints",
        (VerdictKind.CHECKPOINTING_OFF,),
        healths=(Health.OFF,),
        statements=_AGGREGATION,
        settings={_INTERVAL: None},
    ),
    VersionsJob("sql-top-n", "SQL: Top-N that changes with every record", _CAPACITY, "Rank", statements=_TOP_N),
    VersionsJob(
        "union-and-broadcast",
        "two sources in a union and a broadcast of rules, then an operator at capacity",
        _CAPACITY,
        "apply rules",
        arguments=(("shape", "broadcast"),),
        is_recorded=False,
    ),
    VersionsJob(
        "bounded",
        "a bounded job that ends by itself",
        _NONE,
        arguments=(("limit", "8000"), ("rate", "300"), ("cost-us", "100")),
        end=End.BY_ITSELF,
        healths=(Health.HEALTHY, Health.TOO_FEW),
    ),
    VersionsJob(
        "restarting",
        "an operator that throws 6 seconds after every start",
        (VerdictKind.RESTARTS,),
        arguments=(("fails-after-s", "6"), ("rate", "300"), ("cost-us", "100")),
        healths=(Health.RESTARTING,),
    ),
    VersionsJob(
        "at-least-once",
        "at-least-once checkpoints, and an operator at capacity",
        _CAPACITY,
        "work",
        settings={"execution.checkpointing.mode": "AT_LEAST_ONCE"},
        is_recorded=False,
    ),
    VersionsJob(
        "unaligned",
        "unaligned checkpoints, and an operator at capacity",
        _CAPACITY,
        "work",
        settings=_UNALIGNED,
        is_recorded=False,
    ),
    VersionsJob(
        "unaligned-timeout",
        "unaligned checkpoints with an aligned timeout of 1 s, and an operator at capacity",
        _CAPACITY,
        "work",
        settings=_WITH_TIMEOUT,
    ),
    VersionsJob(
        "changelog",
        "the changelog state backend, below capacity",
        _NONE,
        arguments=(("rate", "300"), ("cost-us", "100"), ("state-bytes", "2000")),
        settings={"state.backend.changelog.enabled": "true", "state.changelog.enabled": "true"},
        since="1.15",
        healths=_FINE,
    ),
    VersionsJob(
        "rocksdb",
        "incremental checkpoints of RocksDB, below capacity",
        _NONE,
        arguments=(("rate", "300"), ("cost-us", "100"), ("state-bytes", "2000")),
        settings={**_ROCKSDB, "state.backend.rocksdb.memory.managed": "false"},
        healths=_FINE,
    ),
    VersionsJob(
        "rocksdb-short-of-memory",
        "RocksDB whose share of the managed memory holds no write buffer, so that its writes stall",
        _CAPACITY,
        "work",
        arguments=(("rate", "1500"), ("cost-us", "100"), ("state-bytes", "2000")),
        settings=_ROCKSDB,
        before="2.0",
    ),
    VersionsJob(
        "many-vertices",
        "40 vertices with 8 subtasks each, below capacity",
        _NONE,
        arguments=(("shape", "many"), ("parallelism", "8"), ("rate", "200")),
        healths=_FINE,
        is_recorded=False,
    ),
    VersionsJob(
        "Aufträge / täglich, geprüft",
        "names with spaces, slashes and umlauts, and an operator at capacity",
        _CAPACITY,
        "Größe / Gewicht prüfen",
        arguments=(("source-name", "Bestellungen / Kühlhaus"), ("work-name", "Größe / Gewicht prüfen")),
    ),
    VersionsJob(
        "calm",
        "a SQL aggregation below capacity, beside the others",
        _NONE,
        healths=_FINE,
        statements=_CALM,
        is_recorded=False,
    ),
    VersionsJob(
        "stopped",
        "a job below capacity that is stopped with a savepoint",
        _NONE,
        arguments=(("rate", "300"), ("cost-us", "100")),
        end=End.SAVEPOINT,
        healths=_FINE,
    ),
)


def jobs_of(version: str, only: str = "") -> tuple[VersionsJob, ...]:
    """Return the jobs that can run on a version. With ``only``, those whose name contains one of its words."""
    words = only.split()
    return tuple(job for job in JOBS if job.is_in(version) and (not words or any(w in job.name for w in words)))
