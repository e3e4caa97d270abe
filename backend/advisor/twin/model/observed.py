"""What the evidence shows of a job: its flows and its checkpoints, and what a model assumes where neither shows it.

Refuses a job of which too little is known, or whose metrics contradict each other.
"""

from __future__ import annotations

import re
from typing import Final

from backend.advisor.twin.model import contradictions
from backend.advisor.twin.model.flows import flows_of
from backend.advisor.twin.model.hung_writes import hung_writes
from backend.advisor.twin.model.model import Assumption, CheckpointSettings
from backend.advisor.twin.model.snapshots import Recorded
from backend.analysis.health.failures import is_real_failure
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import checkpoint_phases
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.engines import NEWEST_FLINK, EngineCapabilities
from backend.domain.errors import NotModelledError
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.topology import Vertex

CHECKPOINTS_MIN_COUNT: Final = 3
_SECONDS_MIN: Final = 4.0


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


class ObservedJob:
    """The evidence about a job, prepared for its model.

    ``flows`` has every vertex, and ``recorded`` the checkpoints with details, oldest first. ``hung`` are their writes
    to the store that hung. ``assumptions`` is what the parts of the model that were built so far assume.
    """

    def __init__(self, evidence: JobEvidence, engine: EngineCapabilities, version: str | None) -> None:
        """Prepare the evidence.

        Raises:
            NotModelledError: the job cannot be modelled from this evidence; the message has what is missing, and what
                would help.
        """
        self.evidence = evidence
        self.engine = engine
        self.topology = evidence.topology
        self.assumptions: list[Assumption] = []
        self._refuse_early(version)
        major, minor = (version or "0.0").split(".")[:2]
        self.version = int(major), int(re.sub(r"\D.*", "", minor))
        if engine.is_flink_release and self.version > NEWEST_FLINK:
            newest = ".".join(map(str, NEWEST_FLINK))
            reason = f"the job runs on {version}, and no release after {newest} was compared with the model"
            self.assume("rules of Flink", f"as in {newest}", reason)
        self.flows = flows_of(evidence.pressure)
        self.recorded = [
            Recorded(c, checkpoint_phases(c, evidence.config, evidence.late(c.header.checkpoint_id)))
            for c in terminal_checkpoints(evidence)
        ]
        self._refuse()
        self.hung = hung_writes(self.recorded, self.topology, evidence.config)
        assert evidence.config is not None
        self.settings = CheckpointSettings.of(evidence.config)

    def assume(self, subject: str, taken: str, reason: str) -> None:
        """Note what is assumed, and why it is not known."""
        self.assumptions.append(Assumption(subject=subject, taken=taken, reason=reason))

    # --- the graph ----------------------------------------------------------------------------------------------------

    def name(self, vertex: VertexId) -> str:
        """Return the name of a vertex."""
        return self.evidence.vertex_name(vertex)

    def is_source(self, vertex: VertexId) -> bool:
        """Return whether no vertex is upstream of this one."""
        return not self.topology.upstream(vertex)

    def is_hashed(self, vertex: Vertex) -> bool:
        """Return whether an input of the vertex is a hash exchange."""
        return any("HASH" in self._strategies(u, vertex.id) for u in self.topology.upstream(vertex.id))

    def is_broadcast(self, source: VertexId, target: VertexId) -> bool:
        """Return whether every subtask of ``target`` gets every record."""
        return "BROADCAST" in self._strategies(source, target)

    def is_pointwise(self, source: VertexId, target: VertexId) -> bool:
        """Return whether a subtask of ``source`` sends to some subtasks of ``target`` only."""
        return bool({"FORWARD", "RESCALE"} & self._strategies(source, target))

    def _strategies(self, source: VertexId, target: VertexId) -> set[str]:
        return {
            (e.ship_strategy or "").upper() for e in self.topology.edges if (e.source, e.target) == (source, target)
        }

    # --- what refuses a job -------------------------------------------------------------------------------------------

    def _refuse_early(self, version: str | None) -> None:
        if self.evidence.is_micro_batched or not self.engine.has_barriers:
            raise NotModelledError(
                f"{self.engine.name} has no checkpoint barriers to simulate", fix="ask for a job with barriers"
            )
        if not self.engine.has_subtasks:
            raise NotModelledError(
                f"{self.engine.name} does not report the subtasks of a checkpoint",
                fix="ask for a job of an engine that does",
            )
        if version is None:
            raise NotModelledError(
                f"the version of {self.engine.name} is not known, and its buffers depend on it",
                fix="let the collector read the target once",
            )
        if re.match(r"\d+\.\d+", version) is None:
            raise NotModelledError(
                f"{self.engine.name} reports {version!r} as its version, and its buffers depend on the version",
                fix="use a build that reports a version such as 2.3.0",
            )
        if not self.topology.vertices:
            raise NotModelledError("the graph of the job is not known", fix="let the collector read the job once")

    def _refuse(self) -> None:
        config = self.evidence.config
        if config is None or config.is_unaligned_enabled is None or not config.interval_ms or not config.timeout_ms:
            raise NotModelledError("the checkpoint settings are not known", fix="let the collector read the job once")
        if config.protocol is not None:
            raise NotModelledError(
                f"the checkpoints of the job are {config.protocol.value}, which the model does not have",
                fix="ask for a job with aligned or unaligned checkpoints",
            )
        missing = [v for v in self.topology.vertices if v.id not in self.flows]
        if missing:
            same = contradictions.same_counts(self.evidence.pressure, missing[0].id)
            if same > 2:
                raise NotModelledError(
                    f"the counts of records of {missing[0].name} are the same in its last {same} readings",
                    fix="wait until it reads records, or check its metrics",
                )
            raise NotModelledError(
                f"{missing[0].name} has fewer than two readings with counts of records since its last start",
                fix="wait for two more readings of backpressure",
            )
        short = min(self.flows.values(), key=lambda f: f.seconds)
        if short.seconds < _SECONDS_MIN:
            raise NotModelledError(
                f"the readings of backpressure span {short.seconds:.0f} s",
                fix=f"wait until they span {_SECONDS_MIN:g} s or more",
            )
        count = len(self.recorded)
        if count < CHECKPOINTS_MIN_COUNT:
            raise NotModelledError(
                f"only {count} of the newest checkpoints completed or expired and have details",
                fix=f"wait for {CHECKPOINTS_MIN_COUNT - count} more",
            )
        contradictions.refuse(self.evidence, self.flows, [r.checkpoint for r in self.recorded])
