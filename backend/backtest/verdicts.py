"""Replays the verdict: what it would have said at the end of each checkpoint, and whether that place stayed slow.

Consecutive moments that accuse the same cause at the same vertex are one *episode*. An episode ends when two moments in
a row say something else. How it fared is measured without the verdict's rules. In each checkpoint after the first
statement, the place where the barrier spent most of the time is compared with the accused place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backend.analysis.measures.critical_path import critical_path
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.verdict import diagnose
from backend.backtest.early_warning import CALM_COUNT
from backend.backtest.moments import Moment
from backend.backtest.scores import Counts
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Diagnosis, Health, VerdictKind

FOLLOWED_COUNT: Final = 10
"""So many checkpoints after the first statement of an episode show how it fared."""
EPISODES_KEPT: Final = 100
_NOBODY: Final = (VerdictKind.NONE, VerdictKind.UNDECIDED, VerdictKind.CHECKPOINTING_OFF)
_SUFFERING: Final = (Health.SLOW, Health.FAILING, Health.INTERMITTENT)

Cause = tuple[VerdictKind, str | None]
"""A kind of cause, and the id of its vertex if it has one."""


@dataclass(slots=True)
class Episode:
    """A cause that was accused over some checkpoints.

    Of the ``checkpoint_count`` checkpoints from the first to the last statement, the verdict named this cause at
    ``said_count``. ``unnamed_count`` checkpoints just before the first statement were said to be slow or failing
    without a cause. Of ``followed_count`` checkpoints after the first statement, the accused place was the slowest one
    in ``held_count``. Of ``stored_count`` checkpoints of the episode with a stored verdict, ``stored_same_count`` name
    the same cause. ``sentence`` and ``confidence`` are those of the first statement.
    """

    run_id: str
    kind: str
    vertex_id: str | None
    vertex: str | None
    subtasks: list[int]
    phase: str | None
    sentence: str
    confidence: str
    health: str
    first_at: str
    first_checkpoint_id: int
    last_at: str
    last_checkpoint_id: int
    checkpoint_count: int = 1
    said_count: int = 1
    unnamed_count: int = 0
    followed_count: int = 0
    held_count: int = 0
    stored_count: int = 0
    stored_same_count: int = 0


@dataclass(slots=True)
class VerdictScore(Counts):
    """How the verdicts of some jobs fared.

    ``kinds`` counts the moments by what the verdict said. The other numbers are sums over the episodes.
    ``agreed_count`` of ``compared_count`` verdicts name the same cause as the one that is stored for the checkpoint.
    """

    checkpoint_count: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    episode_count: int = 0
    span_count: int = 0
    said_count: int = 0
    followed_count: int = 0
    held_count: int = 0
    compared_count: int = 0
    agreed_count: int = 0

    @property
    def stable_ratio(self) -> float | None:
        """The share of an episode's checkpoints at which the verdict named its cause; None without episodes."""
        return self.said_count / self.span_count if self.span_count else None

    @property
    def held_ratio(self) -> float | None:
        """The share of the followed checkpoints in which the accused place was the slowest; None if none followed."""
        return self.held_count / self.followed_count if self.followed_count else None

    @property
    def agreed_ratio(self) -> float | None:
        """The share of the stored verdicts with which the replayed one agrees; None if none is stored."""
        return self.agreed_count / self.compared_count if self.compared_count else None


@dataclass(slots=True)
class VerdictReplay:
    """The result of one job. ``episodes`` has the newest ``EPISODES_KEPT``, oldest first."""

    score: VerdictScore = field(default_factory=VerdictScore)
    episodes: list[Episode] = field(default_factory=list)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> VerdictReplay:
        """Return the result from its document."""
        return cls(VerdictScore(**document["score"]), [Episode(**e) for e in document["episodes"]])


@dataclass(slots=True)
class _Followed:
    episode: Episode
    cause: Cause
    calm_count: int = 0
    pending_count: int = 0
    is_open: bool = True

    @property
    def is_followed(self) -> bool:
        return self.cause[1] is not None and self.episode.followed_count < FOLLOWED_COUNT

    @property
    def is_watched(self) -> bool:
        return self.is_open or self.is_followed


class VerdictReplayer:
    """Replays the verdicts of one job. ``add`` takes its moments in their order, and ``result`` returns the result."""

    def __init__(self) -> None:
        self._score = VerdictScore()
        self._episodes: deque[Episode] = deque(maxlen=EPISODES_KEPT)
        self._followed: list[_Followed] = []
        self._run_id: str | None = None
        self._unnamed_count = 0

    def add(self, moment: Moment, case: Case | None) -> Diagnosis:
        """Judge a moment, and return what the verdict says. ``case`` is what ``case_of`` returns."""
        said = diagnose(moment.evidence, case)
        if moment.run.id != self._run_id:
            self._settle(self._followed)
            self._run_id, self._followed, self._unnamed_count = moment.run.id, [], 0
        self._count(moment, said)
        self._follow(moment)
        cause: Cause = (said.verdict.kind, said.verdict.vertex_id)
        self._continue(moment, cause)
        is_named = said.verdict.kind not in _NOBODY
        if is_named and not any(f.is_open and f.cause == cause for f in self._followed):
            self._begin(moment, said, cause)
        is_unnamed = not is_named and said.health in _SUFFERING
        self._unnamed_count = self._unnamed_count + 1 if is_unnamed else 0
        return said

    def result(self) -> VerdictReplay:
        """Return the result. Call it once, after the last moment."""
        self._settle(self._followed)
        self._score.kinds = dict(sorted(self._score.kinds.items()))
        return VerdictReplay(self._score, list(self._episodes))

    def _count(self, moment: Moment, said: Diagnosis) -> None:
        score, kind = self._score, said.verdict.kind.value
        score.checkpoint_count += 1
        score.kinds[kind] = score.kinds.get(kind, 0) + 1
        if moment.stored.judged is not None:
            score.compared_count += 1
            score.agreed_count += moment.stored.judged == (kind, said.verdict.vertex_id)

    def _follow(self, moment: Moment) -> None:
        followed = [f for f in self._followed if f.is_followed]
        place = _slowest_place(moment) if followed else None
        if place is None:
            return
        for one in followed:
            episode = one.episode
            episode.followed_count += 1
            is_one = not episode.subtasks or place[1] in episode.subtasks
            episode.held_count += place[0] == episode.vertex_id and is_one

    def _continue(self, moment: Moment, cause: Cause) -> None:
        """Extend the open episode of this cause. End an episode if two moments in a row name another cause or none."""
        for one in self._followed:
            if not one.is_open:
                continue
            one.pending_count += 1
            if one.cause == cause:
                _extend(one.episode, moment, one.pending_count)
                one.calm_count = one.pending_count = 0
            else:
                one.calm_count += 1
                one.is_open = one.calm_count < CALM_COUNT
        self._settle([f for f in self._followed if not f.is_watched])
        self._followed = [f for f in self._followed if f.is_watched]

    def _begin(self, moment: Moment, said: Diagnosis, cause: Cause) -> None:
        verdict, at = said.verdict, moment.at.isoformat()
        number = moment.stored.header.checkpoint_id
        episode = Episode(
            run_id=moment.run.id,
            kind=verdict.kind.value,
            vertex_id=verdict.vertex_id,
            vertex=verdict.vertex,
            subtasks=list(verdict.subtasks),
            phase=None if verdict.phase is None else verdict.phase.value,
            sentence=verdict.sentence,
            confidence=verdict.confidence.value,
            health=said.health.value,
            first_at=at,
            first_checkpoint_id=number,
            last_at=at,
            last_checkpoint_id=number,
            unnamed_count=self._unnamed_count,
        )
        _compare(episode, moment)
        self._episodes.append(episode)
        self._followed.append(_Followed(episode, cause))

    def _settle(self, ended: Sequence[_Followed]) -> None:
        """Count episodes that cannot change any more."""
        for episode in (one.episode for one in ended):
            self._score.episode_count += 1
            self._score.span_count += episode.checkpoint_count
            self._score.said_count += episode.said_count
            self._score.followed_count += episode.followed_count
            self._score.held_count += episode.held_count


def case_of(moment: Moment) -> Case | None:
    """Return the case of a moment, which the verdict and the advice share; None for a micro-batched query."""
    return None if moment.evidence.is_micro_batched else cases.of_job(moment.evidence)


def _extend(episode: Episode, moment: Moment, count: int) -> None:
    episode.checkpoint_count += count
    episode.said_count += 1
    episode.last_at, episode.last_checkpoint_id = moment.at.isoformat(), moment.stored.header.checkpoint_id
    _compare(episode, moment)


def _compare(episode: Episode, moment: Moment) -> None:
    if moment.stored.judged is not None:
        episode.stored_count += 1
        episode.stored_same_count += moment.stored.judged == (episode.kind, episode.vertex_id)


def _slowest_place(moment: Moment) -> tuple[str, int] | None:
    """Return where the barrier of the moment's checkpoint spent most of the time: the vertex and the subtask.

    Of a checkpoint that failed, it is the subtask that it waited for. None if the subtasks are not known.
    """
    evidence, checkpoint = moment.evidence, moment.stored.checkpoint
    path = critical_path(checkpoint, evidence.topology, evidence.config, evidence.late(checkpoint.header.checkpoint_id))
    if path is None:
        return None
    if checkpoint.header.status is not CheckpointStatus.COMPLETED:
        return path.last_vertex_id, path.last_subtask
    spent: dict[tuple[str, int], int] = {}
    for step in path.steps:
        key = (step.vertex_id, step.subtask)
        spent[key] = spent.get(key, 0) + step.end_ms - step.start_ms
    return max(spent, key=lambda key: spent[key], default=None)
