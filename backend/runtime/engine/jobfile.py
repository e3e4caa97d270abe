"""Reads a job file (TOML, or a mapping with the same structure) and returns a ``JobSpec``.

Each problem in a file is reported with the field, what is wrong with it, and what is allowed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from backend.domain.errors import FieldProblem, InvalidInputError, PlanError
from backend.runtime.coordinator.rescales import RescaleSpec, rescaled_graph
from backend.runtime.core.elements import RECORD_BYTES_MIN
from backend.runtime.core.units import DURATION_WORDS, SIZE_WORDS, duration_us, size_bytes
from backend.runtime.job import config as settings
from backend.runtime.job import graph as plans
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.job.document import Reader, Table
from backend.runtime.job.faults import FINISH_POINTS, POINTS, actions_at
from backend.runtime.job.graph import (
    Aggregate,
    EdgeSpec,
    FaultAction,
    FaultSpec,
    Graph,
    Partitioner,
    SinkKind,
    StoreSpec,
    VertexKind,
    VertexSpec,
)
from backend.runtime.measure.requested import RequestedFormat
from backend.runtime.snapshot.saved import RestoreOptions

_FILE_BYTES_MAX = 1 << 20
_SUBTASKS_MAX = 4096
_HOUR_US = 3_600_000_000

FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset({"name", "seed", "config", "vertex", "edge", "store", "fault", "savepoint", "rescale", "restore"}),
    "vertex": frozenset({
        "id", "kind", "name", "parallelism", "max_parallelism", "rate", "limit", "record_bytes", "keys",
        "hot_key_ratio", "cost_us", "cost_ns_per_byte", "state_bytes", "fan_out", "output_bytes", "bundle",
        "watermark_interval_ms", "sync", "slow_syncs", "slow_subtasks", "slow_uploads", "splits", "out_of_orderness",
        "idle_timeout", "burst_period", "burst_ratio", "burst_share", "backlog", "legacy", "nonblocking_hook",
        "window", "aggregate", "hold", "timer_cost_us", "store_watermark", "sink", "sync_every", "commit",
    }),
    "edge": frozenset({"from", "to", "partitioner", "hash_by", "shares"}),
    "store": frozenset({"latency", "bytes_per_s", "upload_bytes_per_s"}),
    "fault": frozenset({"point", "hit", "at", "action", "delay", "times"}),
    "savepoint": frozenset({"at", "format", "stop"}),
    "rescale": frozenset({"at", "vertex", "parallelism", "from"}),
    "restore": frozenset({"from", "allow_non_restored", "at_own_risk", "claim"}),
}  # fmt: skip
"""The fields that each table of a job file may have. PROTOCOL.md names the rule behind each field."""


class Stop(StrEnum):
    """How a job stops with a savepoint (SV-3)."""

    SUSPEND = "suspend"
    """The job can be started again from the savepoint."""
    DRAIN = "drain"
    """All timers fire and all windows close. The job ends for good."""


@dataclass(frozen=True, slots=True)
class SavepointSpec:
    """A savepoint that the job file requests at a virtual time."""

    at_us: int
    format: RequestedFormat = RequestedFormat.CANONICAL
    stop: Stop | None = None
    """How the job stops with the savepoint. None if the job continues."""


@dataclass(frozen=True, slots=True)
class RestoreSpec:
    """The checkpoint that the job file asks to begin from. Whoever runs the job finds it: this module opens no file."""

    origin: str
    """The path of a file that ``simulate`` saved, or the location of a checkpoint in the live runtime."""
    options: RestoreOptions = field(default_factory=RestoreOptions)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job that has been read and checked, and is ready to run."""

    name: str
    seed: int
    config: RuntimeConfig
    graph: Graph
    store: StoreSpec = field(default_factory=StoreSpec)
    faults: tuple[FaultSpec, ...] = ()
    savepoints: tuple[SavepointSpec, ...] = ()
    rescales: tuple[RescaleSpec, ...] = ()
    restore: RestoreSpec | None = None

    def with_config(self, changes: Mapping[str, object]) -> JobSpec:
        """Return the same job with some settings replaced.

        Raises:
            InvalidInputError: a key is unknown, or a value is out of bounds.
            PlanError: the settings contradict each other.
        """
        changed = replace(self, config=settings.change(self.config, changes, where=""))
        plans.validate(changed.graph)
        return changed


def load_job(path: Path) -> JobSpec:
    """Read a job file.

    Raises:
        InvalidInputError: the file cannot be read or has an invalid field. The message names the file.
        PlanError: the graph cannot run with these settings.
    """
    document = read_document(path)
    with _named(path):
        return load_job_document(document)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in an error, because a command may have several job files."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(error.problems, what=f"job file {path}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Read the tables of a job file, and do not check their fields.

    Raises:
        InvalidInputError: the file cannot be read, is too large, or is not TOML.
    """
    try:
        # Read at most one byte more than a job file may have, because a device or a pipe may be endless.
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise _problem("file", f"{path} is larger than {_FILE_BYTES_MAX} bytes", "a job file")
        # Some Windows editors begin a file with a byte order mark.
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise _problem("file", f"cannot read {path}: {error.strerror or error}", "a job file (TOML)") from None
    except UnicodeDecodeError:
        raise _problem("file", f"{path} is not UTF-8 text", "a job file (TOML)") from None
    with _named(path):
        return _tables(text)


def load_job_toml(text: str) -> JobSpec:
    """Read a job from TOML text. Raises the same errors as ``load_job``."""
    return load_job_document(_tables(text))


def _tables(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        # Catch ValueError, not only TOMLDecodeError, because Python refuses integers of thousands of digits with a
        # ValueError.
        raise _problem("file", f"not TOML: {error}", "TOML 1.0") from None
    except RecursionError:
        raise _problem("file", "tables or lists are nested too deeply", "TOML 1.0") from None


def load_job_document(document: Mapping[str, Any]) -> JobSpec:
    """Read a job from a parsed document. Raises the same errors as ``load_job``."""
    reader = Reader()
    root = reader.table(document, "", FIELDS[""])
    name = root.text("name", "", most=200)
    seed = root.whole("seed", 0, 0, 2**63 - 1)
    vertices = [_vertex(reader, row, f"vertex[{i}]") for i, row in enumerate(root.rows("vertex"))]
    edges = [_edge(reader, row, f"edge[{i}]") for i, row in enumerate(root.rows("edge"))]
    store = _store(reader.table(root.mapping("store"), "store", FIELDS["store"]))
    faults = tuple(_fault(reader, row, f"fault[{i}]") for i, row in enumerate(root.rows("fault")))
    savepoints = tuple(_savepoint(reader, row, f"savepoint[{i}]") for i, row in enumerate(root.rows("savepoint")))
    rescales = _rescales(reader, root.rows("rescale"), {v.id for v in vertices})
    restore = _restore(reader, root.mapping("restore")) if root.has("restore") else None
    if not name:
        reader.problem("name", "is missing", "text")
    if not vertices:
        reader.problem("vertex", "is missing", "at least one [[vertex]]")
    config = reader.config(reader.flattened(root.mapping("config")))
    reader.raise_problems()
    graph = plans.ordered(vertices, edges)
    plans.validate(graph)
    _check_size(graph)
    _check_rescales(graph, rescales)
    return JobSpec(name, seed, config, graph, store, faults, savepoints, rescales, restore)


def _check_rescales(graph: Graph, rescales: Sequence[RescaleSpec]) -> None:
    """Check that each rescale is possible after the rescales before it."""
    for rescale in rescales:
        graph = rescaled_graph(graph, rescale.parallelism)
        _check_size(graph)


def _check_size(graph: Graph) -> None:
    subtasks = sum(v.parallelism for v in graph.vertices)
    if subtasks > _SUBTASKS_MAX:
        largest = max(graph.vertices, key=lambda v: v.parallelism)
        raise PlanError(
            f"{subtasks} subtasks in total", rule="G-6", vertex=largest.id, fix=f"at most {_SUBTASKS_MAX} in total"
        )


def _problem(field: str, problem: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(field, problem, allowed)], what="job file")


def _vertex(reader: Reader, value: object, where: str) -> VertexSpec:
    row = reader.table(value, where, FIELDS["vertex"])
    identity = row.text("id", "")
    if not identity:
        reader.problem(f"{where}.id", "is missing", "text")
    parallelism = row.whole("parallelism", 1, 1, plans.PARALLELISM_MAX)
    return VertexSpec(
        id=identity,
        kind=VertexKind(row.word("kind", "", tuple(VertexKind))),
        name=row.text("name", identity, most=200),
        parallelism=parallelism,
        max_parallelism=row.whole("max_parallelism", 0, 0, 32768),
        rate=row.number("rate", 0.0, 0.0, 1e7),
        limit=row.whole("limit", 0, 0, 10**9) if row.has("limit") else None,
        record_bytes=row.whole("record_bytes", 100, RECORD_BYTES_MIN, 16 << 20),
        keys=row.whole("keys", 1000, 1, 10_000_000),
        hot_key_ratio=row.number("hot_key_ratio", 0.0, 0.0, 1.0),
        cost_us=row.whole("cost_us", 10, 0, 3_600_000_000),
        cost_ns_per_byte=row.whole("cost_ns_per_byte", 0, 0, 10**9),
        state_value_bytes=row.whole("state_bytes", 0, 0, 1 << 30),
        fan_out=row.number("fan_out", 1, 0, 10_000),
        output_bytes=row.whole("output_bytes", 0, RECORD_BYTES_MIN, 16 << 20) if row.has("output_bytes") else 0,
        bundle=row.whole("bundle", 0, 0, 100_000),
        watermark_interval_ms=row.whole("watermark_interval_ms", 200, 1, 3_600_000),
        sync_us=row.scaled("sync", 0, duration_us, DURATION_WORDS, 0, 3_600_000_000) if row.has("sync") else None,
        sync_every=row.whole("sync_every", 1, 1, 1_000_000),
        commit_us=row.scaled("commit", 0, duration_us, DURATION_WORDS, 0, _HOUR_US),
        slow_factors=row.factors("slow_subtasks", parallelism),
        slow_upload_factors=row.factors("slow_uploads", parallelism),
        slow_sync_factors=row.factors("slow_syncs", parallelism),
        out_of_orderness_us=row.scaled("out_of_orderness", 0, duration_us, DURATION_WORDS, 0, _HOUR_US),
        idle_timeout_us=row.scaled("idle_timeout", 0, duration_us, DURATION_WORDS, 0, _HOUR_US),
        burst_period_us=row.scaled("burst_period", 0, duration_us, DURATION_WORDS, 0, _HOUR_US),
        burst_ratio=row.number("burst_ratio", 1.0, 0.001, 1.0),
        burst_share=row.number("burst_share", 1.0, 0.001, 1.0),
        backlog=row.whole("backlog", 0, 0, 10**9),
        is_legacy=row.flag("legacy", False),
        has_nonblocking_hook=row.flag("nonblocking_hook", False),
        window_us=row.scaled("window", 1_000_000, duration_us, DURATION_WORDS, 1_000, 24 * _HOUR_US),
        aggregate=Aggregate(row.word("aggregate", "count", tuple(Aggregate))),
        hold_us=row.scaled("hold", 0, duration_us, DURATION_WORDS, 0, _HOUR_US),
        timer_cost_us=row.whole("timer_cost_us", 5, 0, 3_600_000_000),
        stores_watermark=row.flag("store_watermark", False),
        sink=SinkKind(row.word("sink", "transactional", tuple(SinkKind))),
        splits=row.whole("splits", 0, 0, plans.PARALLELISM_MAX),
    )


def _edge(reader: Reader, value: object, where: str) -> EdgeSpec:
    row = reader.table(value, where, FIELDS["edge"])
    return EdgeSpec(
        source=row.text("from", ""),
        target=row.text("to", ""),
        partitioner=Partitioner(row.word("partitioner", "hash", tuple(Partitioner))),
        by_origin=row.word("hash_by", "key", ("key", "origin")) == "origin",
        shares=row.shares("shares"),
    )


def _store(row: Table) -> StoreSpec:
    default = StoreSpec()
    return StoreSpec(
        latency_us=row.scaled("latency", default.latency_us, duration_us, DURATION_WORDS, 0, 3_600_000_000),
        bytes_per_s=row.scaled("bytes_per_s", default.bytes_per_s, size_bytes, SIZE_WORDS, 1, 10**12),
        upload_bytes_per_s=row.scaled("upload_bytes_per_s", 1, size_bytes, SIZE_WORDS, 1, 10**12)
        if row.has("upload_bytes_per_s")
        else None,
    )


def _fault(reader: Reader, value: object, where: str) -> FaultSpec:
    row = reader.table(value, where, FIELDS["fault"])
    point, action = (
        row.word("point", "", (*POINTS, *FINISH_POINTS)),
        FaultAction(row.word("action", "crash", tuple(FaultAction))),
    )
    if row.has("point") and action not in actions_at(point):
        reader.problem(f"{where}.action", f"{action.value!r} cannot happen at {point}", ", ".join(actions_at(point)))
    return FaultSpec(
        point=point,
        hit=row.whole("hit", 1, 1, 10**9),
        at_us=row.scaled("at", 0, duration_us, DURATION_WORDS, 0, 10**15),
        action=action,
        delay_us=row.scaled("delay", 0, duration_us, DURATION_WORDS, 0, 3_600_000_000),
        times=row.whole("times", 1, 1, 10**9),
    )


def _savepoint(reader: Reader, value: object, where: str) -> SavepointSpec:
    row = reader.table(value, where, FIELDS["savepoint"])
    if not row.has("at"):
        reader.problem(f"{where}.at", "is missing", DURATION_WORDS)
    return SavepointSpec(
        at_us=row.scaled("at", 0, duration_us, DURATION_WORDS, 0, 10**15),
        format=RequestedFormat[row.word("format", "canonical", ("canonical", "native")).upper()],
        stop=Stop(row.word("stop", "suspend", tuple(Stop))) if row.has("stop") else None,
    )


def _restore(reader: Reader, value: object) -> RestoreSpec:
    row = reader.table(value, "restore", FIELDS["restore"])
    origin = row.text("from", "", most=4096)
    if not origin:
        reader.problem("restore.from", "is missing", "the file or the location of a checkpoint")
    options = (row.flag(name, False) for name in ("allow_non_restored", "at_own_risk", "claim"))
    return RestoreSpec(origin, RestoreOptions(*options))


def _rescales(reader: Reader, rows: Sequence[object], vertices: Collection[str]) -> tuple[RescaleSpec, ...]:
    """Read the rescales. Rows with the same time and the same ``from`` become one restart."""
    asked: dict[tuple[int, bool], dict[str, int]] = {}
    for i, value in enumerate(rows):
        where = f"rescale[{i}]"
        row = reader.table(value, where, FIELDS["rescale"])
        for key, allowed in (("at", DURATION_WORDS), ("vertex", "the id of a [[vertex]]"), ("parallelism", "a number")):
            if not row.has(key):
                reader.problem(f"{where}.{key}", "is missing", allowed)
        vertex = row.text("vertex", "")
        if row.has("vertex") and vertex not in vertices:
            reader.problem(f"{where}.vertex", f"{vertex!r} is not a vertex", ", ".join(sorted(vertices)))
        at_us = row.scaled("at", 0, duration_us, DURATION_WORDS, 0, 10**15)
        from_savepoint = (
            row.word("from", "checkpoint", ("checkpoint", "savepoint")) == "savepoint" if row.has("from") else False
        )
        together = asked.setdefault((at_us, from_savepoint), {})
        if vertex in together:
            reader.problem(where, f"{vertex!r} is rescaled twice at one instant", "one parallelism")
        together[vertex] = row.whole("parallelism", 1, 1, plans.PARALLELISM_MAX)
    return tuple(RescaleSpec(at_us, wanted, saves) for (at_us, saves), wanted in sorted(asked.items()))
