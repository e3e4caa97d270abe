"""Builds the model of a job from its evidence, and says what had to be assumed.

The model is built from two kinds of readings: counts, busy times and queues of each subtask (``flows``), and the phases
of its checkpoints (``parts``). A value that neither shows is assumed, and the model lists it with the reason.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.twin.model import contradictions, hidden_shares, parts
from backend.advisor.twin.model import flows as readings
from backend.advisor.twin.model.buffers import reported_buffers
from backend.advisor.twin.model.bursts import Bursts, bursts_of, period_of, with_hidden_heights
from backend.advisor.twin.model.callbacks import Callback, callback_of, with_callback
from backend.advisor.twin.model.flows import VertexFlow
from backend.advisor.twin.model.hung_writes import hangs_assumption, hangs_of, hung_writes
from backend.advisor.twin.model.model import (
    Assumption,
    CheckpointSettings,
    EdgeModel,
    JobModel,
    NetworkModel,
    Partitioning,
    SourceModel,
    StoreModel,
    VertexModel,
)
from backend.advisor.twin.model.outages import LOST_WORKER_MS, RESTART_MS, outages_of
from backend.analysis.health.failures import is_real_failure
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.numbers.arrays import Floats
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.engines import NEWEST_FLINK, EngineCapabilities
from backend.domain.errors import NotModelledError
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.topology import Vertex
from backend.domain.verdict import Basis

CHECKPOINTS_MIN_COUNT = 3
_SECONDS_MIN = 4.0
_HELD_RATIO, _ALWAYS_HELD_RATIO = 0.5, 0.9
_SEGMENT_MIN_BYTES, _SEGMENT_MAX_BYTES = 4096, 1 << 20
_FILLED_RATIO = 0.8
"""The usual content of a full buffer pool, as a share of its segments: buffers are flushed before they are full."""
_BUFFERS_SENT_MIN = 4
_UNKNOWN_TRIGGER = Interval(5.0, 1.0, 50.0)
_REACHED_RATIO = 0.9
_WAITING_BUSY, _NEVER_IDLE = 0.2, 0.95
_PARTITIONINGS = {
    "HASH": Partitioning.HASH,
    "REBALANCE": Partitioning.REBALANCE,
    "SHUFFLE": Partitioning.REBALANCE,
    "RESCALE": Partitioning.RESCALE,
    "FORWARD": Partitioning.FORWARD,
    "BROADCAST": Partitioning.BROADCAST,
}


def build(evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None) -> JobModel:
    """Return the model of the job, without calibration.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence; the message has what is missing, and what
            would help.
    """
    return _Builder(evidence, engine, version).model()


def terminal_checkpoints(evidence: JobEvidence) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that completed or expired and have details of their subtasks, oldest first."""
    return tuple(
        c
        for c in evidence.checkpoints
        if c.header.kind is CheckpointKind.CHECKPOINT
        and c.details
        and (
            c.header.status is CheckpointStatus.COMPLETED
            or (
                is_real_failure(c, has_restarts=bool(evidence.restart_count))
                and c.header.failure_reason is FailureReason.EXPIRED
            )
        )
    )


class _Builder:
    def __init__(self, evidence: JobEvidence, engine: EngineCapabilities, version: str | None) -> None:
        self._evidence = evidence
        self._engine = engine
        self._topology = evidence.topology
        self._assumptions: list[Assumption] = []
        self._refuse_early(version)
        major, minor = (version or "0.0").split(".")[:2]
        self._version = int(major), int(re.sub(r"\D.*", "", minor))
        if engine.is_flink_release and self._version > NEWEST_FLINK:
            newest = ".".join(map(str, NEWEST_FLINK))
            reason = f"the job runs on {version}, and no release after {newest} was compared with the model"
            self._assume("rules of Flink", f"as in {newest}", reason)
        self._flows = readings.flows_of(evidence.pressure)
        self._recorded = [
            parts.Recorded(c, checkpoint_phases(c, evidence.config, evidence.late(c.header.checkpoint_id)))
            for c in terminal_checkpoints(evidence)
        ]
        self._refuse()
        self._hung = hung_writes(self._recorded, self._topology, evidence.config)
        assert evidence.config is not None
        self._settings = CheckpointSettings.of(evidence.config)
        self._services: dict[VertexId, Floats] = {}
        self._bursts: dict[VertexId, Bursts] = {}
        self._callback = callback_of(evidence, self._recorded, self._flows)

    def model(self) -> JobModel:
        store, is_store_measured = parts.store_of(self._recorded, self._hung, self._topology, self._evidence.config)
        if not is_store_measured:
            self._assume(
                "speed of the store",
                f"{store.bytes_per_ms / 1000:.0f} MB/s for each subtask",
                "no upload was large enough to measure it",
            )
        if self._engine.is_flink_release:  # Small state is in the metadata, and incremental state in several files.
            store = replace(store, small_bytes_per_ms=None)
        store = replace(store, hangs=hangs_of(self._recorded, self._hung, self._settings.schedule))
        self._assumptions += hangs_assumption(store.hangs)
        busy: dict[VertexId, Floats] = {}
        for vertex in self._topology.vertices:
            flow = self._flows[vertex.id]
            service, is_measured = flow.service_us(is_source=self._is_source(vertex.id))
            service = self._without_waits(vertex, flow, service)
            self._services[vertex.id], busy[vertex.id] = service, np.nan_to_num(flow.busy)
            if not is_measured:
                self._assume(
                    f"service time of {vertex.name}",
                    f"at most {float(service.max()):.3g} us for a record",
                    "its subtasks were never busy enough to measure it",
                )
        self._network_of_queues = self._network()
        slow = readings.slow_host_factors(self._services, busy, self._evidence.placements)
        vertices = tuple(self._vertex(v, store, slow.get(v.id)) for v in self._topology.vertices)
        if isinstance(self._callback, Callback):
            vertices = with_callback(vertices, self._callback, busy[self._callback.vertex_id])
            self._assumptions.append(self._callback.assumption(self._name(self._callback.vertex_id)))
        elif self._callback is not None:
            self._assumptions.append(self._callback)
        edges = tuple(self._edge(e.source, e.target, e.ship_strategy) for e in self._topology.edges)
        state = parts.state_assumption(vertices)
        self._assumptions += [] if state is None else [state]
        sources = [v.id for v in self._topology.vertices if self._is_source(v.id)]
        trigger = parts.trigger_delay_of(self._recorded, sources)
        if trigger is None:
            trigger = _UNKNOWN_TRIGGER
            self._assume("trigger delay", f"{trigger.value:g} ms", "no checkpoint reports the start delay of a source")
        outage = outages_of(self._recorded, self._evidence.exceptions, self._evidence.config)
        if outage is None:
            taken = (
                f"{RESTART_MS.low / 1000:g} to {RESTART_MS.high / 1000:g} s, and the time to read the state; about"
                f" {LOST_WORKER_MS.value / 1000:.0f} s more if a worker dies, until that is noticed"
            )
            self._assume("outage after a failure", taken, "no checkpoint that a failure delayed is stored")
        measured, assumed = Basis.MEASURED, Basis.PREDICTED
        model = JobModel(
            vertices=vertices,
            edges=edges,
            network=self._network_of_queues,
            store=store,
            settings=self._settings,
            trigger_delay_ms=trigger,
            assumptions=tuple(self._assumptions),
            bases=(
                ("service_us", Basis.RECONSTRUCTED),
                ("input_shares", measured),
                ("source", measured),
                ("record_bytes", measured),
                ("sync_ms", measured),
                ("upload_bytes", measured),
                ("store", Basis.RECONSTRUCTED if is_store_measured else assumed),
                ("network", assumed),
                ("trigger_delay_ms", measured),
                ("outage_ms", assumed if outage is None else Basis.RECONSTRUCTED),
            ),
            age_ms=1000 * max(f.age_s for f in self._flows.values()),
            outage_ms=None if outage is None else outage.outage_ms,
            is_outage_of_lost_worker=outage is not None and outage.is_worker_lost,
            engine=self._engine,
        )
        held = {v: float(np.nan_to_num(self._flows[v].backpressured).mean()) for v in self._bursts}
        return with_hidden_heights(model, self._bursts, held)

    def _without_waits(self, vertex: Vertex, flow: VertexFlow, service: Floats) -> Floats:
        """Return the service times of a source without the time that it waits for its next record.

        A source that waits inside its own code counts as busy. If a source is never idle and not held back, its busy
        time is assumed to be such a wait, except for a tenth.
        """
        busy, held = float(np.nan_to_num(flow.busy).mean()), float(np.nan_to_num(flow.backpressured).mean())
        if not self._is_source(vertex.id) or busy < _WAITING_BUSY or busy + held < _NEVER_IDLE:
            return service
        self._assume(
            f"service time of {vertex.name}",
            f"a tenth of its busy time, {float(service.mean()) / 10:.3g} us for a record",
            "it is never idle, so its busy time seems to contain the wait for its next record",
        )
        return service / 10

    # --- what refuses a job -----------------------------------------------------------------------------------------

    def _refuse_early(self, version: str | None) -> None:
        if self._evidence.is_micro_batched or not self._engine.has_barriers:
            raise NotModelledError(
                f"{self._engine.name} has no checkpoint barriers to simulate", fix="ask for a job with barriers"
            )
        if not self._engine.has_subtasks:
            raise NotModelledError(
                f"{self._engine.name} does not report the subtasks of a checkpoint",
                fix="ask for a job of an engine that does",
            )
        if version is None:
            raise NotModelledError(
                f"the version of {self._engine.name} is not known, and its buffers depend on it",
                fix="let the collector read the target once",
            )
        if re.match(r"\d+\.\d+", version) is None:
            raise NotModelledError(
                f"{self._engine.name} reports {version!r} as its version, and its buffers depend on the version",
                fix="use a build that reports a version such as 2.3.0",
            )
        if not self._topology.vertices:
            raise NotModelledError("the graph of the job is not known", fix="let the collector read the job once")

    def _refuse(self) -> None:
        config = self._evidence.config
        if config is None or config.is_unaligned_enabled is None or not config.interval_ms or not config.timeout_ms:
            raise NotModelledError("the checkpoint settings are not known", fix="let the collector read the job once")
        if config.protocol is not None:
            raise NotModelledError(
                f"the checkpoints of the job are {config.protocol.value}, which the model does not have",
                fix="ask for a job with aligned or unaligned checkpoints",
            )
        missing = [v for v in self._topology.vertices if v.id not in self._flows]
        if missing:
            same = contradictions.same_counts(self._evidence.pressure, missing[0].id)
            if same > 2:
                raise NotModelledError(
                    f"the counts of records of {missing[0].name} are the same in its last {same} readings",
                    fix="wait until it reads records, or check its metrics",
                )
            raise NotModelledError(
                f"{missing[0].name} has fewer than two readings with counts of records since its last start",
                fix="wait for two more readings of backpressure",
            )
        short = min(self._flows.values(), key=lambda f: f.seconds)
        if short.seconds < _SECONDS_MIN:
            raise NotModelledError(
                f"the readings of backpressure span {short.seconds:.0f} s",
                fix=f"wait until they span {_SECONDS_MIN:g} s or more",
            )
        count = len(self._recorded)
        if count < CHECKPOINTS_MIN_COUNT:
            raise NotModelledError(
                f"only {count} of the newest checkpoints completed or expired and have details",
                fix=f"wait for {CHECKPOINTS_MIN_COUNT - count} more",
            )
        contradictions.refuse(self._evidence, self._flows, [r.checkpoint for r in self._recorded])

    # --- what is built ------------------------------------------------------------------------------------------------

    def _vertex(self, vertex: Vertex, store: StoreModel, slow: Floats | None) -> VertexModel:
        flow = self._flows[vertex.id]
        snapshot = parts.parts_of(self._recorded, self._hung, vertex.id, store, self._topology, self._evidence.config)
        is_source = self._is_source(vertex.id)
        guessed: list[Floats] = []
        if is_source:
            emitted = np.nan_to_num(flow.records_out)
            shares = emitted / emitted.sum() if emitted.sum() > 0 else np.full(emitted.size, 1.0 / emitted.size)
        else:
            queued = self._queued_records(vertex, flow)
            shares = flow.shares(np.zeros(vertex.parallelism) if queued is None else queued)
            if (queued is None or not queued.any()) and self._can_be_even(vertex, flow):
                shares = np.full(vertex.parallelism, 1.0 / vertex.parallelism)
                self._assume(f"input shares of {vertex.name}", "equal", "its counts and its queues do not contradict")
            elif queued is None:
                guessed = self._guesses(vertex, flow)
                shares = guessed[hidden_shares.chosen(len(guessed), 0, 1)] if guessed else shares
            if np.nansum(flow.counted_in) <= 0:
                self._assume(f"input shares of {vertex.name}", "equal", "it read no record between the readings")
        return VertexModel(
            id=vertex.id,
            name=vertex.name,
            service_us=tuple(self._services[vertex.id].tolist()),
            input_shares=tuple(shares.tolist()),
            output_ratio=self._output_ratio(vertex.id, flow, is_source=is_source),
            source=self._source(vertex, flow) if is_source else None,
            sync_ms=snapshot.sync_ms,
            async_fixed_ms=snapshot.async_fixed_ms,
            upload_bytes=snapshot.upload_bytes,
            state_bytes=snapshot.state_bytes,
            state_growth_bytes_per_s=parts.growth_bytes_per_s(self._recorded, vertex.id),
            slow_host_factors=() if slow is None else tuple(slow.tolist()),
            max_parallelism=vertex.max_parallelism,
            share_guesses=tuple(tuple(of.tolist()) for of in guessed),
        )

    def _can_be_even(self, vertex: Vertex, flow: VertexFlow) -> bool:
        """Return whether the subtasks may have equal shares: their counts differ by chance and by their queues."""
        if not self._is_hashed(vertex):
            return False
        queued, room = self._queues(vertex, flow)
        return queued is not None and flow.can_be_even(queued, room)

    def _queues(self, vertex: Vertex, flow: VertexFlow) -> tuple[float | None, float]:
        """Return the records queued for all subtasks together, and those that can be queued for one of them.

        The records are None if their size is not known.
        """
        above = self._topology.upstream(vertex.id)
        size = float(np.nansum(flow.bytes_in)) / max(float(np.nansum(flow.records_in)), 1e-9)
        if size <= 0:
            return None, 0.0
        queued = sum(self._flows[u].queued_out_last for u in above) + flow.queued_in_last
        network = self._network_of_queues
        senders = sum(self._flows[u].busy.size for u in above)
        room = senders * network.max_buffers_per_channel * network.segment_bytes * (1 + network.is_remote_ratio)
        return queued / size, room / size

    def _queued_records(self, vertex: Vertex, flow: VertexFlow) -> Floats | None:
        """Return the records queued for each subtask behind a hash exchange; None if only their sum is known.

        An aligned barrier shows them: it waits as long as the subtask needs to read them.
        """
        none = np.zeros(vertex.parallelism)
        above = self._topology.upstream(vertex.id)
        if not flow.full.any() or not self._is_hashed(vertex):
            return none
        config = self._evidence.config
        found = None if config is None else parts.waits_ms(self._recorded, vertex.id, above)
        waited = none if found is None else np.where(flow.full, np.nan_to_num(found * flow.records_in / 1000), 0.0)
        if found is not None and config is not None and not config.is_unaligned_enabled:
            return waited
        queued, _ = self._queues(vertex, flow)
        if not queued or not flow.is_young:
            return none
        timeout_ms = float(config.aligned_timeout_ms or 0.0) if config is not None else 0.0
        if found is not None and timeout_ms and (flow.full & (found >= _REACHED_RATIO * timeout_ms)).any():
            # Barriers that waited until the timeout show the least that is queued. What no wait shows is theirs.
            late = flow.full & (found >= _REACHED_RATIO * timeout_ms)
            rest = max(0.0, queued - float(waited.sum()))
            return waited + np.where(late, rest / late.sum(), 0.0)
        return None

    def _guesses(self, vertex: Vertex, flow: VertexFlow) -> list[Floats]:
        """Return guesses of the shares, if only the sum of the queues of the full subtasks is known."""
        queued, room = self._queues(vertex, flow)
        read = np.nan_to_num(flow.total_in)
        shown = np.where(flow.full, np.nan_to_num(flow.queued_in), 0.0)
        if queued is None or read.sum() + queued <= 0:
            return []
        if shown.sum() > 0:
            # Channels between task managers show the queues of their receivers.
            return hidden_shares.by_weight(read, shown, queued)
        if flow.full.sum() < hidden_shares.MANY_FULL:
            how = "most of it for the one that read most"
        else:
            how = "in one of several likely ways"
        self._assume(
            f"input shares of {vertex.name}",
            f"what its senders hold is queued for its full subtasks, {how}",
            "full subtasks read less than their share, and without aligned checkpoints no barrier shows the difference",
        )
        steady = queued * self._steady_ratio(vertex, flow)
        never_idle, passing = flow.never_idle, flow.passing_queues
        passing *= min(1.0, steady / 2 / max(float(passing.sum()), 1e-9))
        rest = steady - float(passing.sum())
        passing += (queued - steady) / read.size
        if flow.full.sum() < hidden_shares.MANY_FULL:
            return hidden_shares.by_rank(read + passing, never_idle, rest)
        return hidden_shares.guesses(read + passing, never_idle, rest, room=room, service=self._services[vertex.id])

    def _steady_ratio(self, vertex: Vertex, flow: VertexFlow) -> float:
        """Return the part of the queues that was there in each of the last readings.

        The queue of a subtask that is never idle changes slowly. So what comes and goes is queued for all subtasks. If
        the least sum of a queue is not known, all of the queues count as steady.
        """
        above = self._topology.upstream(vertex.id)
        queued = sum(self._flows[u].queued_out_last for u in above) + flow.queued_in_last
        least = sum(self._flows[u].queued_out_least for u in above) + flow.queued_in_least
        return 1.0 if queued <= 0 or np.isnan(least) else min(1.0, least / queued)

    def _source(self, vertex: Vertex, flow: VertexFlow) -> SourceModel:
        held = float(np.nan_to_num(flow.backpressured).mean())
        rate = float(np.nansum(flow.records_out))
        # A source that is back-pressured because a vertex is always full has more input than the vertex can read. If no
        # vertex is always full, bursts cause the back-pressure, and the source catches up between them.
        is_full = any(f.full.any() for f in self._flows.values())
        if held >= _ALWAYS_HELD_RATIO or (held >= _HELD_RATIO and is_full):
            self._assume(
                f"rate of {vertex.name}",
                "as fast as it can",
                f"it was back-pressured for {say.percent(held)} of the time,"
                f" so its input grows by at least {rate:.0f}/s",
            )
            return SourceModel(rate_per_s=None)
        below = [self._flows[w] for w in self._topology.downstream(vertex.id)]
        bursts = None if isinstance(self._callback, Callback) else bursts_of(flow, below, self._period_ms())
        if bursts is None:
            return SourceModel(rate_per_s=rate)
        self._bursts[vertex.id] = bursts
        return SourceModel(
            rate_per_s=rate, burst_period_ms=bursts.period_ms, burst_ratio=bursts.ratio, burst_factor=bursts.factor
        )

    def _period_ms(self) -> float | None:
        """Return the period in which the checkpoints repeat: their durations, or what they persist."""
        headers = [r.checkpoint.header for r in self._recorded]
        if len(headers) < 2:
            return None
        apart_ms = (headers[-1].triggered_at - headers[0].triggered_at).total_seconds() * 1000 / (len(headers) - 1)
        rows = ([h.end_to_end_duration_ms for h in headers], [h.persisted_bytes for h in headers])
        for row in rows:
            known = [float(v) for v in row if v is not None]
            found = period_of(known, apart_ms) if len(known) == len(headers) else None
            if found is not None:
                return found
        return None

    def _output_ratio(self, vertex: VertexId, flow: VertexFlow, *, is_source: bool) -> float:
        """Return the records emitted on each output for one record read.

        A sender's count is the sum over its outputs, so with several outputs the counts of receivers with a single
        input are preferred. With one output they are not if the receiver has a queue: what this takes or gives back is
        not emitted. A receiver without a queue reads what it is sent, and its rate makes it as busy as it was.
        """
        below = self._topology.downstream(vertex)
        if not below:
            return 0.0
        if is_source:
            return 1.0
        taken = float(np.nansum(flow.records_in))
        if taken <= 0:
            return 1.0
        if len(below) == 1 and flow.out_per_in > 0 and self._flows[below[0]].is_held.any():
            return flow.out_per_in
        single = [w for w in below if len(self._topology.upstream(w)) == 1 and not self._is_broadcast(vertex, w)]
        if single:
            ratios = [float(np.nansum(self._flows[w].records_in)) / taken for w in single]
        else:
            ratios = [float(np.nansum(flow.records_out)) / taken / len(below)]
        if max(ratios) > 1.2 * min(ratios) + 1e-9:
            self._assume(
                f"records of {self._name(vertex)} on each output",
                f"{sum(ratios) / len(ratios):.3g} for one record read",
                "its outputs differ, and the model has one value for all of them",
            )
        return sum(ratios) / len(ratios)

    def _edge(self, source: VertexId, target: VertexId, strategy: str | None) -> EdgeModel:
        partitioning = _PARTITIONINGS.get((strategy or "").upper())
        if partitioning is None:
            partitioning = Partitioning.HASH
            self._assume(
                f"exchange from {self._name(source)} to {self._name(target)}",
                "records are distributed by the observed shares",
                f"the engine reports {strategy or 'no strategy'}",
            )
        flow = self._flows[target]
        count, size = float(np.nansum(flow.records_in)), float(np.nansum(flow.bytes_in))
        if count > 0 and size > 0:
            record_bytes = size / count
            if len(self._topology.upstream(target)) > 1:
                self._assume(
                    f"size of the records from {self._name(source)} to {self._name(target)}",
                    f"{record_bytes:.0f} bytes",
                    "the engine counts the bytes of all inputs together",
                )
        else:
            record_bytes = 100.0
            self._assume(
                f"size of the records from {self._name(source)} to {self._name(target)}",
                "100 bytes",
                "no record passed between the readings",
            )
        return EdgeModel(source=source, target=target, partitioning=partitioning, record_bytes=record_bytes)

    def _network(self) -> NetworkModel:
        default = NetworkModel()
        config = self._evidence.config
        assert config is not None
        network = replace(
            default,
            debloat_target_ms=None if config.debloat_target_ms is None else float(config.debloat_target_ms),
            is_remote_ratio=self._remote_ratio(),
        )
        if self._evidence.cluster_settings is not None:
            return reported_buffers(network, dict(self._evidence.cluster_settings), self._version)
        if network.debloat_target_ms is not None:
            self._assume("buffers", "32 kB, 2 a channel and 8 a gate", "with debloating, queues do not show them")
            return network
        found = self._observed_buffers(default)
        if found is None:
            self._assume("buffers", "32 kB, 2 a channel and 8 a gate", "Flink's defaults; no full queue contradicts")
            return network
        self._assume(
            "buffers",
            f"{found.segment_bytes} bytes, {found.exclusive_buffers_per_channel} a channel and"
            f" {found.floating_buffers_per_gate} a gate",
            "the content of the full queues, and the steps in which the usage of their pools changes",
        )
        return replace(
            network,
            segment_bytes=found.segment_bytes,
            exclusive_buffers_per_channel=found.exclusive_buffers_per_channel,
            floating_buffers_per_gate=found.floating_buffers_per_gate,
        )

    def _observed_buffers(self, default: NetworkModel) -> NetworkModel | None:
        """Return buffers that explain the content of full pools; None if the defaults explain it or no pool is full.

        Each checkpoint ends the current buffer of every channel, and flushed buffers are read before they are full. So
        channels with little data have buffers with little content, which say nothing of their size.
        """
        config = self._evidence.config
        interval_ms = float((config.interval_ms if config is not None else None) or 0)
        for vertex in self._topology.vertices:
            flow = self._flows[vertex.id]
            below = self._topology.downstream(vertex.id)
            if len(below) != 1 or np.nanmax(flow.backpressured, initial=0.0) < _HELD_RATIO:
                continue
            after = self._topology.vertex(below[0])
            if after is None or self._is_pointwise(vertex.id, below[0]):
                continue
            channels = after.parallelism
            sent = float(np.nansum(self._flows[after.id].bytes_in)) / flow.busy.size / channels
            if sent * interval_ms / 1000 < _BUFFERS_SENT_MIN * default.segment_bytes:
                continue
            expected = default.exclusive_buffers_per_channel * channels + default.floating_buffers_per_gate
            buffers = readings.pool_size_of(flow.pool_usages, expected) or expected
            full = float(np.nanmax(flow.queued_out, initial=0.0))
            if full <= 0:
                continue
            segment = full / (_FILLED_RATIO * buffers)
            size = int(
                2 ** np.clip(np.round(np.log2(segment)), np.log2(_SEGMENT_MIN_BYTES), np.log2(_SEGMENT_MAX_BYTES))
            )
            if size == default.segment_bytes and buffers == expected:
                return None
            exclusive = min(2, max(1, (buffers - 1) // channels))
            floating = max(1, buffers - exclusive * channels)
            return replace(
                default,
                segment_bytes=size,
                exclusive_buffers_per_channel=exclusive,
                floating_buffers_per_gate=floating,
            )
        return None

    def _remote_ratio(self) -> float:
        places = {p.vertex_id: p.task_managers for p in self._evidence.placements}
        pairs = remote = 0
        for edge in self._topology.edges:
            above, below = places.get(edge.source, ()), places.get(edge.target, ())
            if self._is_pointwise(edge.source, edge.target):
                below = below[: len(above)]
            for sender in above:
                for receiver in below:
                    if sender is not None and receiver is not None:
                        pairs += 1
                        remote += sender != receiver
        if not pairs:
            self._assume("channels between task managers", "none", "the engine does not report where subtasks run")
        return remote / pairs if pairs else 0.0

    def _assume(self, subject: str, taken: str, reason: str) -> None:
        self._assumptions.append(Assumption(subject=subject, taken=taken, reason=reason))

    def _name(self, vertex: VertexId) -> str:
        return self._evidence.vertex_name(vertex)

    def _is_source(self, vertex: VertexId) -> bool:
        return not self._topology.upstream(vertex)

    def _is_hashed(self, vertex: Vertex) -> bool:
        return any("HASH" in self._strategies(u, vertex.id) for u in self._topology.upstream(vertex.id))

    def _strategies(self, source: VertexId, target: VertexId) -> set[str]:
        return {
            (e.ship_strategy or "").upper() for e in self._topology.edges if (e.source, e.target) == (source, target)
        }

    def _is_broadcast(self, source: VertexId, target: VertexId) -> bool:
        return "BROADCAST" in self._strategies(source, target)

    def _is_pointwise(self, source: VertexId, target: VertexId) -> bool:
        return bool({"FORWARD", "RESCALE"} & self._strategies(source, target))
