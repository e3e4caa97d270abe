"""The story *backpressure*, act by act: a healthy job, more load, the culprit, the alert, the cure, and its effect.

An act begins with a step, such as a change of the load, and ends when the service shows what the act describes. This
module decides what each act waits for, and its sentences. It starts no process and prints nothing: it sees the service
and the job through a ``Stage``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from backend.domain.advice import AdviceState, Metric, Topic
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Health

if TYPE_CHECKING:
    from backend.contracts.advice import CardOut
    from backend.contracts.alerts import AlertOut
    from backend.contracts.api import CheckpointOut, JobOut, VerdictOut

SOURCE_SUBTASKS = 4
"""The number of subtasks that the source has after the load has risen."""
# After this many completed checkpoints, the job is known to be healthy.
_HEALTHY_MIN = 3
# If a checkpoint takes this many times longer than before, the load made it slow, even if it still completes.
_SLOWER_FACTOR = 5.0


class Stage(Protocol):
    """The service and the job of a story, as the acts see them. All methods may raise ``ApiUnavailableError``."""

    def job(self) -> JobOut | None:
        """Return the job of the story, or None while the service does not know it."""
        ...

    def checkpoints(self, job: JobOut) -> Sequence[CheckpointOut]:
        """Return the newest checkpoints of the job's current run, newest first."""
        ...

    def verdict(self, checkpoint: CheckpointOut) -> VerdictOut:
        """Return the verdict on a checkpoint."""
        ...

    def alerts(self, job: JobOut) -> Sequence[AlertOut]:
        """Return the newest alerts of the job, in any state, newest first."""
        ...

    def cards(self, job: JobOut) -> Sequence[CardOut]:
        """Return the current recommendations for the job."""
        ...

    def raise_load(self, subtasks: int) -> None:
        """Give the source of the running job this many subtasks."""
        ...

    def apply(self, card: CardOut) -> None:
        """Apply a recommendation to the running job."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """What an act shows: sentences, and the path of the page that shows the same."""

    lines: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Act:
    """One act. ``find`` returns None until the service shows what the act describes."""

    title: str
    awaited: str
    """What the act waits for, in words."""
    find: Callable[[], Scene | None]
    begin: Callable[[], None] | None = None


class BackpressureStory:
    """The acts of the story on one stage, in order. They depend on each other, so each is played once."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._healthy_ms = 0.0
        self._last_id = -1
        self._alert: AlertOut | None = None
        self._card: CardOut | None = None

    def acts(self) -> Iterator[Act]:
        """Yield the acts."""
        yield Act("A healthy job", "the first checkpoints", self._healthy)
        yield Act("The load rises", "the first checkpoint under load", self._loaded, self._raise_load)
        yield Act("The culprit", "the verdict on that checkpoint", self._judged)
        yield Act("The alert", "the first alert", self._alerted)
        yield Act("The cure", "a recommendation from checkpoints under load", self._advised)
        yield Act("The change is applied", "the engine's new settings", self._applied, self._apply)
        yield Act("The job recovers", "the first healthy checkpoints", self._recovered)
        yield Act("The alert is resolved", "the end of the alert", self._resolved)
        yield Act("Predicted and measured", "five checkpoints after the change", self._measured)

    # --- the acts -------------------------------------------------------------------------------------------------

    def _healthy(self) -> Scene | None:
        job = self._stage.job()
        if job is None or job.health is not Health.HEALTHY:
            return None
        checkpoints = self._stage.checkpoints(job)
        durations = [
            c.end_to_end_duration_ms
            for c in checkpoints
            if c.status is CheckpointStatus.COMPLETED and c.end_to_end_duration_ms is not None
        ]
        if len(durations) < _HEALTHY_MIN:
            return None
        self._healthy_ms = median(durations)
        said = f"{len(durations)} checkpoints of {job.name} have completed, with a median of {_time(self._healthy_ms)}."
        return Scene((said, "No record waits: every vertex has spare capacity."), _page(job))

    def _raise_load(self) -> None:
        job = self._stage.job()
        found = [] if job is None else self._stage.checkpoints(job)
        self._last_id = max((c.checkpoint_id for c in found), default=-1)
        self._stage.raise_load(SOURCE_SUBTASKS)

    def _loaded(self) -> Scene | None:
        under_load = self._under_load()
        if under_load is None:
            return None
        job, checkpoint = under_load
        end = "expired" if checkpoint.status is CheckpointStatus.FAILED else "completed"
        took = f"Checkpoint {checkpoint.checkpoint_id} {end} after {_time(checkpoint.end_to_end_duration_ms)}"
        return Scene(
            (
                f"The source now reads with {SOURCE_SUBTASKS} subtasks instead of 1, more than the job can process.",
                f"{took}; before, the median was {_time(self._healthy_ms)}.",
            ),
            _page(job),
        )

    def _judged(self) -> Scene | None:
        under_load = self._under_load()
        if under_load is None:
            return None
        job, checkpoint = under_load
        verdict = self._stage.verdict(checkpoint)
        if verdict.vertex is None:
            return None
        path = f"{_page(job)}/runs/{checkpoint.run_id}/checkpoints/{checkpoint.checkpoint_id}"
        return Scene((verdict.sentence, "The barrier front on the page shows where the barrier waited."), path)

    def _alerted(self) -> Scene | None:
        job = self._stage.job()
        firing = [] if job is None else [a for a in self._stage.alerts(job) if a.state == "firing"]
        if not firing:
            return None
        self._alert = firing[-1]
        return Scene((f"{self._alert.rule}: {self._alert.summary}.",), _alert_page(self._alert))

    def _advised(self) -> Scene | None:
        from backend.contracts.advice_text import expected_words, metric_words

        job = self._stage.job()
        card = None if job is None else next((c for c in self._stage.cards(job) if self._is_of_load(c)), None)
        if job is None or card is None:
            return None
        self._card = card
        advice = card.recommendation
        changes = [f"{c.key}: {c.current or '-'} -> {c.proposed or '-'}" for c in advice.changes]
        effect = [f"{metric_words(e.metric)}: {expected_words(e)}" for e in advice.expected]
        return Scene((f"{advice.headline}.", *changes, *effect), f"{_page(job)}/advice")

    def _apply(self) -> None:
        assert self._card is not None
        self._stage.apply(self._card)

    def _applied(self) -> Scene | None:
        card = self._same_card()
        if card is None or card.applied_at is None:
            return None
        said = "The engine reports the new settings. Nothing was restarted, and the load is still the same."
        return Scene((said,), f"/ui/jobs/{card.job_id}/advice")

    def _recovered(self) -> Scene | None:
        job, card = self._stage.job(), self._same_card()
        if job is None or card is None or card.applied_at is None or job.health is not Health.HEALTHY:
            return None
        done = [
            c
            for c in self._stage.checkpoints(job)
            if c.status is CheckpointStatus.COMPLETED and c.triggered_at >= card.applied_at
        ]
        if not done:
            return None
        newest = done[0]
        took = f"Checkpoint {newest.checkpoint_id} completed after {_time(newest.end_to_end_duration_ms)}"
        return Scene((f"{took}, although the job still cannot process all records.",), _page(job))

    def _resolved(self) -> Scene | None:
        job = self._stage.job()
        alerts = [] if job is None else self._stage.alerts(job)
        if self._alert is None or not alerts or any(a.state == "firing" for a in alerts):
            return None
        ended = next((a for a in alerts if a.id == self._alert.id and a.state == "resolved"), None)
        if ended is None:
            return None
        return Scene((f"{ended.rule} is resolved: {ended.ended_reason or ended.reason}.",), _alert_page(ended))

    def _measured(self) -> Scene | None:
        from backend.contracts.advice_text import measured_words, metric_words

        card = self._same_card()
        if card is None or not card.measured or card.state is not AdviceState.VERIFIED:
            return None
        rows = [f"{metric_words(m.metric)}: {measured_words(m)}" for m in card.measured]
        return Scene((f"{card.state_reason}.", *rows), f"/ui/jobs/{card.job_id}/advice")

    # --- what acts share --------------------------------------------------------------------------------------------

    def _under_load(self) -> tuple[JobOut, CheckpointOut] | None:
        """Return the job and its newest checkpoint that the load made slow or let expire."""
        job = self._stage.job()
        if job is None:
            return None
        for checkpoint in self._stage.checkpoints(job):
            took_ms = checkpoint.end_to_end_duration_ms
            is_slow = took_ms is not None and took_ms > _SLOWER_FACTOR * self._healthy_ms
            is_failed = checkpoint.status is CheckpointStatus.FAILED and checkpoint.failure_reason == "expired"
            if checkpoint.checkpoint_id > self._last_id and (is_failed or is_slow):
                return job, checkpoint
        return None

    def _is_of_load(self, card: CardOut) -> bool:
        """Return whether the card advises a mode, can be applied, and considers mostly checkpoints under load.

        The first recommendation considers mostly checkpoints from before the load, so its numbers say little. On a busy
        machine, debloating may be advised first: it shortens the checkpoints, but the job stays slow.
        """
        before_ms = next((e.before for e in card.recommendation.expected if e.metric is Metric.DURATION), None)
        is_mode = card.recommendation.topic is Topic.MODE
        return is_mode and card.can_apply and before_ms is not None and before_ms > _SLOWER_FACTOR * self._healthy_ms

    def _same_card(self) -> CardOut | None:
        job = self._stage.job()
        if job is None or self._card is None:
            return None
        given = self._card.id
        return next((c for c in self._stage.cards(job) if c.id == given), None)


def _page(job: JobOut) -> str:
    return f"/ui/jobs/{job.id}"


def _alert_page(alert: AlertOut) -> str:
    return f"/ui/alerts/{alert.id}" if alert.incident_id is None else f"/ui/incidents/{alert.incident_id}"


def _time(value_ms: float | None) -> str:
    if value_ms is None:
        return "an unknown time"
    return f"{value_ms / 1000:.1f} s" if value_ms >= 1000 else f"{value_ms:.0f} ms"
