"""The job graph: vertices, edges, partitioners, and checks that refuse graphs that cannot run (runtime.md 1.1, 1.2).

The indices of subtasks alone determine which channels an edge has (G-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.errors import PlanError
from backend.runtime.core.elements import HEADER, Record
from backend.runtime.core.hashing import default_max_parallelism

PARALLELISM_MAX = 1024
RATE_MIN = 1e-6
"""Lowest rate in records per second. At a lower rate, due times would exceed the range of microseconds."""


class Partitioner(StrEnum):
    """How an edge distributes records over its channels (PT-1)."""

    FORWARD = "forward"
    RESCALE = "rescale"
    REBALANCE = "rebalance"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    GLOBAL = "global"
    HASH = "hash"

    @property
    def is_pointwise(self) -> bool:
        """Whether each sender has channels to only some of the receivers (G-4)."""
        return self in (Partitioner.FORWARD, Partitioner.RESCALE)


class VertexKind(StrEnum):
    """The operators of a vertex. ``+sink`` means that a sink is chained after the operator."""

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
    BROADCAST = "broadcast"
    BROADCAST_SINK = "broadcast+sink"
    UNION = "union"
    UNION_SINK = "union+sink"

    @property
    def is_source(self) -> bool:
        """Whether the vertex reads a log and has no inputs."""
        return self is VertexKind.SOURCE

    @property
    def is_keyed(self) -> bool:
        """Whether the vertex has keyed state."""
        return self.value.removesuffix("+sink") in ("keyed", "window", "timer", "tag")

    @property
    def has_rules(self) -> bool:
        """Whether the vertex keeps what arrives over broadcast edges in broadcast state."""
        return self in (VertexKind.BROADCAST, VertexKind.BROADCAST_SINK)

    @property
    def has_sink(self) -> bool:
        """Whether the chain of the vertex ends in a sink."""
        return self.value.endswith("sink")


class Aggregate(StrEnum):
    """How a window aggregates its records."""

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
    """One vertex. Costs are virtual microseconds per record.

    All vertices: ``slow_factors`` multiplies the cost of single subtasks. ``slow_upload_factors`` multiplies the time
    that writing their snapshots takes, and ``slow_sync_factors`` the time of their sync parts. ``fan_out`` is the mean
    number of output records per input record, and ``output_bytes`` their size (0: that of the input record); both apply
    to maps. A map emits its records in bundles of ``bundle`` records (0: one by one). ``cost_of``, which job files
    cannot set, returns additional microseconds for a record (DET-7). The sync phase takes
    ``sync_us`` in every ``sync_every``-th checkpoint, and in the others the time that the settings give. A sink waits
    ``commit_us`` for the outside system each time that it commits (SNK-2), and processes nothing meanwhile.

    Sources: ``rate`` is the number of records per second, and ``limit`` is the total number, both over all subtasks.
    With a ``rate`` of 0, a source is as fast as its cost allows. With a ``limit`` of None, it never ends. Keys are 0 to
    ``keys`` - 1; the share ``hot_key_ratio`` of the records has key 0. Event times are up to ``out_of_orderness_us``
    too early. A source becomes idle after ``idle_timeout_us`` without records (0: never). With a ``burst_period_us``,
    the share ``burst_share`` of a period's records comes in its first part, which is the share ``burst_ratio`` of the
    period. The first ``backlog`` records are available from the start. A legacy source does not check for free buffers
    before it emits (SRC-2).

    Windows last ``window_us``. Timer operators hold a record for ``hold_us``. Firing one timer costs ``timer_cost_us``.

    A source reads a log of ``splits`` splits (0: one per subtask). ``number`` (None: the source's index in the graph)
    is a seed of the records, so that the records stay the same if the parallelism or the rest of the graph changes.
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
    fan_out: float = 1
    output_bytes: int = 0
    bundle: int = 0
    watermark_interval_ms: int = 200
    sync_us: int | None = None
    sync_every: int = 1
    commit_us: int = 0
    slow_factors: Mapping[int, float] = field(default_factory=dict)
    slow_upload_factors: Mapping[int, float] = field(default_factory=dict)
    slow_sync_factors: Mapping[int, float] = field(default_factory=dict)
    out_of_orderness_us: int = 0
    idle_timeout_us: int = 0
    burst_period_us: int = 0
    burst_ratio: float = 1.0
    burst_share: float = 1.0
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
        """Whether the source may block while it emits: it is a legacy source without the non-blocking hook (SRC-2)."""
        return self.is_legacy and not self.has_nonblocking_hook

    @property
    def split_count(self) -> int:
        """Number of splits of the log that a source reads."""
        return self.splits or self.parallelism

    @property
    def effective_max_parallelism(self) -> int:
        """The number of key groups, M. If the job does not set it, it is Flink's default (PT-3)."""
        return self.max_parallelism or default_max_parallelism(self.parallelism)


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """One edge.

    With ``by_origin``, an edge with hash partitioning hashes the record's origin and the edge's index instead of the
    key, to spread records evenly. With ``shares``, it hashes the origin too, and each receiver gets its share of the
    records. The shares need not add up to 1.
    """

    source: str
    target: str
    partitioner: Partitioner
    by_origin: bool = False
    shares: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Costs of the snapshot store. A write takes the latency plus the transfer time. Transfers run one after another.

    ``upload_bytes_per_s`` limits the bandwidth of a single upload. None means no limit.
    """

    latency_us: int = 8_000
    bytes_per_s: int = 200_000_000
    upload_bytes_per_s: int | None = None


class FaultAction(StrEnum):
    """What a fault does at its point. ``faults.actions_at`` lists the actions that are possible at a point."""

    CRASH = "crash"
    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"
    ERROR = "error"
    CORRUPT = "corrupt"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One induced fault.

    From ``at_us`` on, it strikes at the ``hit``-th pass of ``point``, and then at each pass until it has struck
    ``times`` times.
    """

    point: str
    hit: int = 1
    at_us: int = 0
    action: FaultAction = FaultAction.CRASH
    delay_us: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Graph:
    """A job graph: vertices in topological order, and edges."""

    vertices: tuple[VertexSpec, ...]
    edges: tuple[EdgeSpec, ...]

    def inputs(self, vertex_id: str) -> list[int]:
        """Return the indices of the edges into the vertex."""
        return [i for i, e in enumerate(self.edges) if e.target == vertex_id]

    def outputs(self, vertex_id: str) -> list[int]:
        """Return the indices of the edges out of the vertex."""
        return [i for i, e in enumerate(self.edges) if e.source == vertex_id]

    def vertex(self, vertex_id: str) -> VertexSpec:
        """Return the vertex with this id."""
        return next(v for v in self.vertices if v.id == vertex_id)

    @property
    def channel_count(self) -> int:
        """The number of channels between subtasks, over all edges; of pointwise edges, the most that they may have."""
        sizes = {v.id: v.parallelism for v in self.vertices}
        return sum(
            max(sizes[e.source], sizes[e.target]) if e.partitioner.is_pointwise else sizes[e.source] * sizes[e.target]
            for e in self.edges
        )

    def supports_overtaking(self, edge: int, *, is_forced: bool) -> bool:
        """Return whether barriers may overtake data on an edge (OPT-5, OPT-7).

        Barriers may not overtake if one of the target's input edges is broadcast. Unless ``is_forced``, they may also
        not overtake if one of these edges is pointwise.
        """
        siblings = [self.edges[i].partitioner for i in self.inputs(self.edges[edge].target)]
        if any(p is Partitioner.BROADCAST for p in siblings):
            return False
        return is_forced or not any(p.is_pointwise for p in siblings)

    def channels(self, edge: int) -> list[tuple[int, int]]:
        """Return the pairs (source subtask, target subtask) that an edge connects, in order (G-3, G-4)."""
        spec = self.edges[edge]
        p = self.vertex(spec.source).parallelism
        q = self.vertex(spec.target).parallelism
        if not spec.partitioner.is_pointwise:
            return [(i, j) for i in range(p) for j in range(q)]
        if p >= q:
            # Flink rounds the index of a receiver's first sender down, so the last receivers have one sender more.
            return [(i, j) for j in range(q) for i in range(j * p // q, (j + 1) * p // q)]
        return sorted((j * p // q, j) for j in range(q))


def ordered(vertices: list[VertexSpec], edges: list[EdgeSpec]) -> Graph:
    """Return the graph with its vertices in topological order.

    Raises:
        PlanError: the graph has a cycle, two vertices with the same id, or an edge that names an unknown vertex.
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
                raise PlanError(f"no vertex {end!r}", rule="G-1", vertex=where, fix="use the id of a [[vertex]]")
    waiting = {v.id: sum(e.target == v.id for e in edges) for v in vertices}
    result: list[VertexSpec] = []
    while len(result) < len(vertices):
        ready = next((v for v in vertices if waiting.get(v.id) == 0), None)
        if ready is None:
            stuck = next(iter(waiting))
            raise PlanError("the graph has a cycle", rule="G-1", vertex=stuck, fix="remove an edge of the cycle")
        del waiting[ready.id]
        result.append(ready)
        for edge in edges:
            if edge.source == ready.id and edge.target in waiting:
                waiting[edge.target] -= 1
    return Graph(tuple(result), tuple(edges))


def validate(graph: Graph) -> None:
    """Refuse graphs that cannot run (G-6).

    Raises:
        PlanError: the graph breaks a rule. The error names the rule, the vertex and the change to make.
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
            raise PlanError("keyed state needs a hashed edge", rule="PT-2", vertex=edge.target, fix='use "hash"')
        if edge.shares:
            _validate_shares(edge, q)
        if (edge.by_origin or edge.shares) and graph.vertex(edge.target).kind.is_keyed:
            raise PlanError(
                "keyed state needs an edge hashed by key", rule="PT-2", vertex=edge.target, fix='hash by "key"'
            )


def _validate_shares(edge: EdgeSpec, receivers: int) -> None:
    if edge.partitioner is not Partitioner.HASH:
        raise PlanError("only hash edges have shares", rule="PT-1", vertex=edge.target, fix='use "hash"')
    if len(edge.shares) != receivers:
        raise PlanError(
            f"{len(edge.shares)} shares for {receivers} subtasks",
            rule="PT-1",
            vertex=edge.target,
            fix="give each subtask a share; a vertex whose input has shares cannot be rescaled",
        )


def _validate_vertex(graph: Graph, vertex: VertexSpec) -> None:
    if vertex.max_parallelism and vertex.parallelism > vertex.max_parallelism:
        raise PlanError(
            f"parallelism {vertex.parallelism} above its maximum {vertex.max_parallelism}",
            rule="G-6",
            vertex=vertex.id,
            fix="lower parallelism or raise max_parallelism",
        )
    inputs, outputs = graph.inputs(vertex.id), graph.outputs(vertex.id)
    if vertex.kind.is_source == bool(inputs):
        word = "a source has inputs" if inputs else "the vertex has no input"
        raise PlanError(word, rule="G-1", vertex=vertex.id, fix="correct its kind or the edges")
    if vertex.kind.has_sink and outputs:
        raise PlanError("a sink has outputs", rule="G-1", vertex=vertex.id, fix="correct its kind or the edges")
    if vertex.kind.has_rules and len({graph.edges[e].partitioner is Partitioner.BROADCAST for e in inputs}) < 2:
        raise PlanError(
            "broadcast state needs a broadcast input for its rules, and another input",
            rule="ST-2",
            vertex=vertex.id,
            fix='set one [[edge]] to partitioner = "broadcast", and add one that is not',
        )
    if vertex.burst_period_us and not vertex.rate:
        raise PlanError("bursts need a rate", rule="SRC-4", vertex=vertex.id, fix="set a rate, or no burst_period")
    if 0 < vertex.rate < RATE_MIN:
        raise PlanError(
            f"the rate {vertex.rate:g} is too low",
            rule="SRC-4",
            vertex=vertex.id,
            fix=f"set 0 for no limit, or at least {RATE_MIN:g}",
        )
    if vertex.record_bytes < HEADER.size:
        raise PlanError(
            f"record_bytes {vertex.record_bytes} is too small",
            rule="DET-9",
            vertex=vertex.id,
            fix=f"set at least {HEADER.size}",
        )
