"""The job graph: vertices, edges, partitioners, and what a plan must be refused for (runtime.md 1.1, 1.2).

Everything here follows from indices alone (G-2): which channel a record takes, which subtask owns a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.errors import PlanError
from backend.runtime.core.elements import HEADER, Record
from backend.runtime.core.hashing import default_max_parallelism
from backend.runtime.job.config import RuntimeConfig

PARALLELISM_MAX = 1024
RATE_MIN = 1e-6
"""Records a second: fewer would be due beyond what can be counted in microseconds."""


class Partitioner(StrEnum):
    """How records are spread over an edge's channels (PT-1)."""

    FORWARD = "forward"
    RESCALE = "rescale"
    REBALANCE = "rebalance"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    GLOBAL = "global"
    HASH = "hash"

    @property
    def is_pointwise(self) -> bool:
        """G-4."""
        return self in (Partitioner.FORWARD, Partitioner.RESCALE)


class VertexKind(StrEnum):
    """What the operators of a vertex do; ``+sink`` chains a sink behind them."""

    SOURCE = "source"
    MAP = "map"
    KEYED = "keyed"
    SINK = "sink"
    KEYED_SINK = "keyed+sink"
    MAP_SINK = "map+sink"
    WINDOW = "window"
    WINDOW_SINK = "window+sink"
    TIMER = "timer"
    TIMER_SINK = "timer+sink"
    TAG = "tag"
    TAG_SINK = "tag+sink"

    @property
    def is_source(self) -> bool:
        """Whether it has no inputs."""
        return self is VertexKind.SOURCE

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps keyed state."""
        return self.value.removesuffix("+sink") in ("keyed", "window", "timer", "tag")

    @property
    def has_sink(self) -> bool:
        """Whether it ends in a sink."""
        return self.value.endswith("sink")


class Aggregate(StrEnum):
    """What a window makes of its records."""

    COUNT = "count"
    SUM = "sum"
    MAX = "max"


class SinkKind(StrEnum):
    """How a sink writes (SNK-1 to SNK-6)."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class VertexSpec:
    """One vertex. Costs are virtual microseconds a record; a ``rate`` of 0 is as fast as the cost allows.

    ``rate`` and ``limit`` count records over all subtasks (a second, in all; None: no end). Keys are 0..keys-1;
    ``hot_key_ratio`` of the records have key 0. ``slow_factors`` multiply the cost of single subtasks, and
    ``slow_upload_factors`` the time their snapshots take to the store. ``fan_out`` is records out a record in;
    maps hold ``bundle`` records back and pass them on together (0: none).

    Of sources: records are dated up to ``out_of_orderness_us`` early; one that had nothing for ``idle_timeout_us`` is
    idle (0: never); with a ``burst_period_us`` what happens in it comes in its first ``burst_ratio``; the first
    ``backlog`` records are there from the start; a legacy one does not look for room before it emits (SRC-2). Of
    windows: their length; of timers: how long records are held, and what one timer costs. ``cost_of``, which job files
    cannot give, adds microseconds for single records (DET-7).

    A source reads ``splits`` of a log (0: one a subtask), whose records are drawn by its ``number`` (None: its place in
    the graph): neither changes with the parallelism, nor when a graph changes around it.
    """

    id: str
    kind: VertexKind
    name: str
    parallelism: int = 1
    max_parallelism: int = 0
    rate: float = 0.0
    limit: int | None = None
    record_bytes: int = 100
    keys: int = 1000
    hot_key_ratio: float = 0.0
    cost_us: int = 10
    cost_ns_per_byte: int = 0
    state_value_bytes: int = 0
    fan_out: int = 1
    bundle: int = 0
    watermark_interval_ms: int = 200
    sync_us: int | None = None
    slow_factors: Mapping[int, float] = field(default_factory=dict)
    slow_upload_factors: Mapping[int, float] = field(default_factory=dict)
    out_of_orderness_us: int = 0
    idle_timeout_us: int = 0
    burst_period_us: int = 0
    burst_ratio: float = 1.0
    backlog: int = 0
    is_legacy: bool = False
    has_nonblocking_hook: bool = False
    window_us: int = 1_000_000
    aggregate: Aggregate = Aggregate.COUNT
    hold_us: int = 0
    timer_cost_us: int = 5
    stores_watermark: bool = False
    sink: SinkKind = SinkKind.TRANSACTIONAL
    splits: int = 0
    number: int | None = None
    cost_of: Callable[[Record], int] | None = None

    @property
    def may_block_in_emission(self) -> bool:
        """SRC-2: a legacy source emits under its lock, unless it has the hook."""
        return self.is_legacy and not self.has_nonblocking_hook

    @property
    def split_count(self) -> int:
        """Splits of the log that a source reads."""
        return self.splits or self.parallelism

    @property
    def effective_max_parallelism(self) -> int:
        """M (PT-3 where none is given)."""
        return self.max_parallelism or default_max_parallelism(self.parallelism)


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """One edge. ``by_origin`` hashes origin and the edge's place instead of the key: even, and still a hash."""

    source: str
    target: str
    partitioner: Partitioner
    by_origin: bool = False


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The store for snapshots: one write costs the latency and its share of the bandwidth, writes take turns.

    ``upload_bytes_per_s`` is what a single upload gets at most, None for all of it.
    """

    latency_us: int = 8_000
    bytes_per_s: int = 200_000_000
    upload_bytes_per_s: int | None = None


class FaultAction(StrEnum):
    """What a fault does at its point (``faults.actions_at`` says which are possible where)."""

    CRASH = "crash"
    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"
    ERROR = "error"
    CORRUPT = "corrupt"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One induced fault: at the ``hit``-th time that ``point`` is passed, from ``at_us`` on, and ``times`` in a row."""

    point: str
    hit: int = 1
    at_us: int = 0
    action: FaultAction = FaultAction.CRASH
    delay_us: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Graph:
    """Vertices in topological order, and edges."""

    vertices: tuple[VertexSpec, ...]
    edges: tuple[EdgeSpec, ...]

    def inputs(self, vertex_id: str) -> list[int]:
        """Indices of the edges that end in the vertex."""
        return [i for i, e in enumerate(self.edges) if e.target == vertex_id]

    def outputs(self, vertex_id: str) -> list[int]:
        """Indices of the edges that leave the vertex."""
        return [i for i, e in enumerate(self.edges) if e.source == vertex_id]

    def vertex(self, vertex_id: str) -> VertexSpec:
        """The vertex of that id."""
        return next(v for v in self.vertices if v.id == vertex_id)

    def supports_overtaking(self, edge: int, *, is_forced: bool) -> bool:
        """OPT-5 and OPT-7: neither it nor a sibling input of its consumer is pointwise or broadcast."""
        siblings = [self.edges[i].partitioner for i in self.inputs(self.edges[edge].target)]
        if any(p is Partitioner.BROADCAST for p in siblings):
            return False
        return is_forced or not any(p.is_pointwise for p in siblings)

    def channels(self, edge: int) -> list[tuple[int, int]]:
        """The (source subtask, target subtask) pairs of an edge, in order (G-3, G-4)."""
        spec = self.edges[edge]
        p = self.vertex(spec.source).parallelism
        q = self.vertex(spec.target).parallelism
        if not spec.partitioner.is_pointwise:
            return [(i, j) for i in range(p) for j in range(q)]
        if p >= q:
            return [(i, i * q // p) for i in range(p)]
        return sorted((j * p // q, j) for j in range(q))


def ordered(vertices: list[VertexSpec], edges: list[EdgeSpec]) -> Graph:
    """The graph with its vertices in a topological order, sources first.

    Raises:
        PlanError: it has a cycle, two vertices of one id, or names what is not there.

    """
    known: set[str] = set()
    for vertex in vertices:
        if vertex.id in known:
            raise PlanError("two vertices have this id", rule="G-6", vertex=vertex.id, fix="give each its own")
        known.add(vertex.id)
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in known:
                where = f"{edge.source} -> {edge.target}"
                raise PlanError(f"edge names {end!r}", rule="G-1", vertex=where, fix="use the id of a [[vertex]]")
    waiting = {v.id: sum(e.target == v.id for e in edges) for v in vertices}
    result: list[VertexSpec] = []
    while len(result) < len(vertices):
        ready = next((v for v in vertices if waiting.get(v.id) == 0), None)
        if ready is None:
            stuck = next(iter(waiting))
            raise PlanError("the graph has a cycle", rule="G-1", vertex=stuck, fix="remove an edge of it")
        del waiting[ready.id]
        result.append(ready)
        for edge in edges:
            if edge.source == ready.id and edge.target in waiting:
                waiting[edge.target] -= 1
    return Graph(tuple(result), tuple(edges))


def validate(graph: Graph, config: RuntimeConfig) -> None:
    """Refuse plans that cannot run (G-6).

    Raises:
        PlanError: names the rule, the vertex and what to change.

    """
    if not any(v.kind.is_source for v in graph.vertices):
        raise PlanError("there is no source", rule="G-1", vertex=None, fix='add a [[vertex]] of kind "source"')
    for vertex in graph.vertices:
        _validate_vertex(graph, vertex)
    for edge in graph.edges:
        p, q = graph.vertex(edge.source).parallelism, graph.vertex(edge.target).parallelism
        if edge.partitioner is Partitioner.FORWARD and p != q:
            raise PlanError(
                f"forward from parallelism {p} to {q}",
                rule="G-6",
                vertex=edge.target,
                fix='use "rescale" or "rebalance"',
            )
        if edge.partitioner is not Partitioner.HASH and graph.vertex(edge.target).kind.is_keyed:
            raise PlanError(
                "keyed state behind an edge that is not hashed", rule="PT-2", vertex=edge.target, fix='use "hash"'
            )
        if edge.by_origin and graph.vertex(edge.target).kind.is_keyed:
            raise PlanError(
                "keyed state behind an edge hashed by origin", rule="PT-2", vertex=edge.target, fix='hash by "key"'
            )
    del config


def _validate_vertex(graph: Graph, vertex: VertexSpec) -> None:
    if vertex.max_parallelism and vertex.parallelism > vertex.max_parallelism:
        raise PlanError(
            f"parallelism {vertex.parallelism} above its maximum {vertex.max_parallelism}",
            rule="G-6",
            vertex=vertex.id,
            fix="lower the one or raise the other",
        )
    inputs, outputs = graph.inputs(vertex.id), graph.outputs(vertex.id)
    if vertex.kind.is_source == bool(inputs):
        word = "a source has inputs" if inputs else "it has no input"
        raise PlanError(word, rule="G-1", vertex=vertex.id, fix="correct its kind or the edges")
    if vertex.kind.has_sink and outputs:
        raise PlanError("a sink has outputs", rule="G-1", vertex=vertex.id, fix="correct its kind or the edges")
    if vertex.burst_period_us and not vertex.rate:
        raise PlanError("bursts of no rate", rule="SRC-4", vertex=vertex.id, fix="set a rate, or no burst_period")
    if 0 < vertex.rate < RATE_MIN:
        raise PlanError(
            f"a rate of {vertex.rate:g}", rule="SRC-4", vertex=vertex.id, fix=f"0 for none, or at least {RATE_MIN:g}"
        )
    if vertex.record_bytes < HEADER.size:
        raise PlanError(
            f"record_bytes {vertex.record_bytes}", rule="DET-9", vertex=vertex.id, fix=f"at least {HEADER.size}"
        )
