"""Restarts a running job at another parallelism, and records each request, its restore point and its result.

A rescale stops the job in the same way as a failure. It then starts the job again from the newest checkpoint, aligned
or unaligned, or from a savepoint taken for the rescale (RS-3). Parallelism may go up or down (RS-13), even if
checkpoints no longer complete (RS-14). A change that cannot run or cannot be restored is refused before the job stops,
and the job continues unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from backend.domain.errors import PlanError
from backend.runtime.coordinator.coordinator import Coordinator
from backend.runtime.job.graph import PARALLELISM_MAX, Graph, Partitioner, VertexSpec, validate
from backend.runtime.measure.requested import RequestedFormat, Savepoint
from backend.runtime.snapshot.metadata import ReadCheckpoint, read_checkpoint
from backend.runtime.task.environment import Environment
from backend.runtime.task.restarts import Restart

_KEPT = 1000


@dataclass(frozen=True, slots=True)
class RescaleSpec:
    """A rescale that the job file requests: the new parallelism by vertex, and the virtual time of the rescale."""

    at_us: int
    parallelism: Mapping[str, int]
    from_savepoint: bool = False


class RescaleStatus(StrEnum):
    """The state of a rescale."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    REFUSED = "REFUSED"
    INTERRUPTED = "INTERRUPTED"
    """The job stopped again before every subtask was running."""


@dataclass(slots=True)
class Rescale:
    """One request for a rescale. Instants are virtual microseconds. None means that the instant is not reached."""

    requested_at_us: int
    parallelism: Mapping[str, int]
    from_savepoint: bool
    before: Mapping[str, int]
    stopped_at_us: int | None = None
    """When the job was stopped for the rescale. With ``from_savepoint``, the job stops after the savepoint."""
    restored_id: int | None = None
    """Id of the restored checkpoint or savepoint. None if the job is not stopped yet, or if nothing was restored."""
    persisted_bytes: int = 0
    """Size of the in-flight data in the restored checkpoint."""
    refusal: PlanError | None = None
    restart: Restart | None = None
    """The restart of the job for the rescale, with its cost. None if the job was not stopped, or is not stopped yet."""

    @property
    def status(self) -> RescaleStatus:
        """The state of the rescale."""
        if self.refusal is not None:
            return RescaleStatus.REFUSED
        if self.restart is None:
            return RescaleStatus.IN_PROGRESS
        if self.restart.running_at_us is not None:
            return RescaleStatus.COMPLETED
        return RescaleStatus.INTERRUPTED if self.restart.is_interrupted else RescaleStatus.IN_PROGRESS


def rescaled_graph(graph: Graph, parallelism: Mapping[str, int]) -> Graph:
    """Return the graph with the parallelism of some vertices changed. Key groups and source splits stay the same.

    Raises:
        PlanError: a vertex does not exist, or the job cannot run at this parallelism (G-6).
    """
    for vertex_id, wanted in parallelism.items():
        if all(v.id != vertex_id for v in graph.vertices):
            known = ", ".join(v.id for v in graph.vertices)
            raise PlanError("there is no such vertex to rescale", rule="G-6", vertex=vertex_id, fix=f"one of {known}")
        if not 1 <= wanted <= PARALLELISM_MAX:
            raise PlanError(f"parallelism {wanted}", rule="G-6", vertex=vertex_id, fix=f"from 1 to {PARALLELISM_MAX}")
    hashed = {e.target for e in graph.edges if e.partitioner is Partitioner.HASH}
    vertices = [_rescaled(v, parallelism.get(v.id, v.parallelism), is_hashed=v.id in hashed) for v in graph.vertices]
    changed = Graph(tuple(vertices), graph.edges)
    validate(changed)
    return changed


def _rescaled(vertex: VertexSpec, parallelism: int, *, is_hashed: bool) -> VertexSpec:
    if parallelism == vertex.parallelism:
        return vertex
    keeps_groups = vertex.kind.is_keyed or is_hashed
    return replace(
        vertex,
        parallelism=parallelism,
        max_parallelism=vertex.effective_max_parallelism if keeps_groups else vertex.max_parallelism,
        splits=vertex.split_count if vertex.kind.is_source else 0,
    )


class Rescaler:
    """Carries out the rescale requests of one job.

    ``newest`` returns the checkpoint that a restart would restore. ``check`` raises PlanError if a checkpoint cannot be
    restored into a graph. ``restart`` stops the job and starts it with another graph from a checkpoint. ``is_over``
    returns whether the job has ended. ``on_refused`` receives the error if a request is refused after ``ask`` has
    returned, or if the request came from the job file.
    """

    def __init__(
        self,
        env: Environment,
        coordinator: Coordinator,
        *,
        newest: Callable[[], ReadCheckpoint | None],
        check: Callable[[ReadCheckpoint, Graph], object],
        restart: Callable[[Graph, ReadCheckpoint | None, str], Restart],
        is_over: Callable[[], bool],
        on_refused: Callable[[PlanError], None],
    ) -> None:
        self.asked: list[Rescale] = []
        self._env = env
        self._coordinator = coordinator
        self._newest = newest
        self._check = check
        self._restart = restart
        self._is_over = is_over
        self._on_refused = on_refused

    def ask(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> Rescale:
        """Request a rescale. ``JobEngine.rescale`` calls this, and documents the arguments and errors."""
        graph = rescaled_graph(self._env.graph, parallelism)
        self._check_goes_on()
        newest = self._newest()
        if newest is not None and not from_savepoint:
            self._check(newest, graph)
        self._env.scheduler.fold(f"rescale {sorted(parallelism.items())} {from_savepoint}")
        rescale = self._request(parallelism, from_savepoint=from_savepoint)
        if from_savepoint:
            then = partial(self._saved, rescale)
            self._coordinator.triggering.request_savepoint(RequestedFormat.CANONICAL, when_ended=then)
        else:
            self._begin(rescale, graph, newest)
        return rescale

    def _check_goes_on(self) -> None:
        if self._is_over() or self._coordinator.triggering.stop is not None:
            raise PlanError(
                "the job has ended or is stopping with a savepoint",
                rule="SV-3",
                vertex=None,
                fix="start another job from the savepoint at the wanted parallelism",
            )

    def on_due(self, spec: RescaleSpec) -> None:
        """Carry out a rescale that the job file requests for this time. If it is refused, record the reason."""
        try:
            self.ask(spec.parallelism, from_savepoint=spec.from_savepoint)
        except PlanError as error:
            self._refuse(self._request(spec.parallelism, from_savepoint=spec.from_savepoint), error)

    def _request(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> Rescale:
        before = {v.id: v.parallelism for v in self._env.graph.vertices}
        self.asked.append(Rescale(self._env.now, dict(parallelism), from_savepoint, before))
        del self.asked[:-_KEPT]
        return self.asked[-1]

    def _refuse(self, rescale: Rescale, error: PlanError) -> None:
        rescale.refusal = error
        self._on_refused(error)

    def _saved(self, rescale: Rescale, savepoint: Savepoint) -> None:
        """Continue a rescale whose savepoint has completed or failed."""
        try:
            self._check_goes_on()
            read = self._read(savepoint)
            graph = rescaled_graph(self._env.graph, rescale.parallelism)
            self._check(read, graph)
        except PlanError as error:
            self._refuse(rescale, error)
        else:
            self._begin(rescale, graph, read)

    def _read(self, savepoint: Savepoint) -> ReadCheckpoint:
        kept = self._coordinator.savepoints.get(savepoint.checkpoint_id or 0)
        if kept is None:
            raise PlanError(
                f"the savepoint to rescale from failed: {savepoint.message}",
                rule="SV-1",
                vertex=None,
                fix="rescale from the newest checkpoint, or try again",
            )
        newest = self._newest()
        if newest is not None and newest.id > kept.record.id:
            # Restore the newer checkpoint, because it is already committed. If the older savepoint were restored, the
            # records between the two would be committed a second time.
            return newest
        return read_checkpoint(kept.stored(kept.record.graph))

    def _begin(self, rescale: Rescale, graph: Graph, read: ReadCheckpoint | None) -> None:
        rescale.stopped_at_us = self._env.now
        if read is not None:
            rescale.restored_id, rescale.persisted_bytes = read.id, read.persisted_bytes
        changes = ", ".join(f"{v} {rescale.before[v]} -> {p}" for v, p in sorted(rescale.parallelism.items()))
        rescale.restart = self._restart(graph, read, f"rescaled: {changes}")
