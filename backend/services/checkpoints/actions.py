"""The actions on a checkpoint and its job: which ones its engine allows now, and taking them.

Each action that was sent becomes an annotation of the job, so that the timeline shows what was done and when. The rules
that decide whether an action is possible are pure functions. Invariant: an action that changes settings sets exactly
the values that the user confirmed.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.analysis.words import sentences as say
from backend.contracts.advice import ChangeOut
from backend.contracts.annotations import AnnotationIn
from backend.contracts.checkpoint_actions import ActionIn, ActionOut, ActionTakenOut
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus, Guarantee
from backend.domain.checkpoint_action import CheckpointAction
from backend.domain.clock import Clock
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import ConflictError, RateLimitedError, StoreUnavailableError
from backend.domain.job_request import AbortCheckpoint, JobRequest, StartFrom, StopWithSavepoint, TriggerSavepoint
from backend.domain.observation import JobState
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService, Opened
from backend.services.jobs.annotations import AnnotationService
from backend.services.jobs.evidence import is_lost
from backend.services.targets.changing import JobChanger
from backend.store.postgres.connections import reading

_EXTENDED_BY = 2
_TAG = "action"


class ActionService:
    """Handles requests for actions on checkpoints."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        checkpoints: CheckpointService,
        changer: JobChanger,
        annotations: AnnotationService,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._checkpoints = checkpoints
        self._changer = changer
        self._annotations = annotations

    async def take(self, key: CheckpointKey, wanted: ActionIn) -> ActionTakenOut:
        """Take an action on the checkpoint or its job.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
            ConflictError: the action is not possible now, or would set other values than those confirmed.
            InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``JobChanger.send``.
        """
        async with reading(self._engine) as connection:
            opened = await self._checkpoints.open(connection, key)
        action = next((a for a in actions_of(opened) if a.action is wanted.action), None)
        if action is None:
            raise ConflictError("the checkpoint has ended, or its engine has no actions", kind="action-not-available")
        if not action.is_possible:
            rule = "" if action.rule is None else f" ({action.rule})"
            raise ConflictError(f"{action.reason}{rule}", kind="action-not-available")
        settings = {c.key: c.proposed for c in action.changes}
        if settings != wanted.settings:
            text = f"the settings have changed: the action would now set {_listed(settings)}"
            raise ConflictError(text, kind="settings-changed")
        await self._changer.send(opened.run, settings or _request(wanted.action, opened.record.header))
        return await self._taken(opened, action, wanted.author)

    async def _taken(self, opened: Opened, action: ActionOut, author: str | None) -> ActionTakenOut:
        now: datetime = self._clock.now()
        text = f"checkpoint {opened.record.header.checkpoint_id}: {_DONE[action.action]}"
        if action.changes:
            text += f" ({_listed({c.key: c.proposed for c in action.changes})})"
        # The action was sent. An error here would make the user think that it was not, so a failure to record it is
        # ignored.
        with contextlib.suppress(ConflictError, RateLimitedError, StoreUnavailableError):
            noted = AnnotationIn(text=text, tags=[_TAG], author=author)
            await self._annotations.add_to_job(opened.job.id, noted, key=None)
        return ActionTakenOut(action=action.action, text=text, at=now)


_DONE = {
    CheckpointAction.EXTEND_TIMEOUT: "timeout extended",
    CheckpointAction.SAVEPOINT: "savepoint triggered",
    CheckpointAction.SWITCH_TO_UNALIGNED: "switched to unaligned",
    CheckpointAction.ABORT: "aborted",
    CheckpointAction.STOP: "stop of the job with a savepoint requested",
    CheckpointAction.START: "job started from it",
}


def _request(action: CheckpointAction, header: CheckpointHeader) -> JobRequest:
    if action is CheckpointAction.ABORT:
        return AbortCheckpoint(header.checkpoint_id)
    if action is CheckpointAction.STOP:
        return StopWithSavepoint()
    if action is CheckpointAction.START:
        return StartFrom(str(header.external_path))
    return TriggerSavepoint()


def _listed(settings: dict[str, str]) -> str:
    return ", ".join(f"{k}: {v}" for k, v in settings.items())


def actions_of(opened: Opened) -> list[ActionOut]:
    """Return every action on a checkpoint and its job, each with the reason if it is not possible.

    If the checkpoint has ended, only actions on the job are left, or none if the engine has no requests for them.
    """
    header = opened.record.header
    if opened.run.engine.is_micro_batched:
        return []
    config, engine = opened.evidence.config, opened.run.engine
    has_ended = opened.run.state is JobState.ENDED or opened.run.ended_at is not None
    of_job = [_stop(has_ended=has_ended)] if engine.can_continue_jobs else []
    if header.status.is_terminal or is_lost(opened.record, opened.run):
        return [*of_job, _start(header, has_ended=has_ended)] if of_job else []
    return [
        _extend(engine, config),
        _switch(engine, config),
        _savepoint(engine),
        _abort(engine, header),
        *of_job,
    ]


def _extend(engine: EngineCapabilities, config: CheckpointConfig | None) -> ActionOut:
    timeout_ms, key = config.timeout_ms if config is not None else None, engine.settings.timeout
    reason, changes = None, []
    if not engine.can_apply_settings_live or key is None:
        reason = f"{engine.name} takes the timeout when the job starts"
    elif timeout_ms is None:
        reason = "the timeout is not known"
    else:
        changes = [ChangeOut(key=key, current=f"{timeout_ms} ms", proposed=f"{_EXTENDED_BY * timeout_ms} ms")]
    longer = "twice its length" if timeout_ms is None else say.duration(_EXTENDED_BY * timeout_ms)
    effect = f"This checkpoint and the next ones get a timeout of {longer}. The setting stays until it is changed back."
    return _out(CheckpointAction.EXTEND_TIMEOUT, effect, reason, changes)


def _switch(engine: EngineCapabilities, config: CheckpointConfig | None) -> ActionOut:
    keys = engine.settings
    reason, changes = None, []
    if keys.unaligned is None:
        reason = f"{engine.name} has no unaligned checkpoints"
    elif not engine.can_apply_settings_live:
        reason = f"{engine.name} takes the mode when the job starts"
    elif config is None or config.is_unaligned_enabled is None:
        reason = "the mode is not known"
    elif config.mode is not None and config.guarantee is not Guarantee.EXACTLY_ONCE:
        reason = "only exactly-once checkpoints can be unaligned"
    elif config.protocol is not None and not config.protocol.overtakes:
        reason = "the job takes Chandy-Lamport checkpoints, whose markers overtake nothing"
    elif config.is_unaligned_enabled and not config.aligned_timeout_ms:
        reason = "checkpoints are unaligned from their trigger already"
    else:
        if not config.is_unaligned_enabled:
            changes.append(ChangeOut(key=keys.unaligned, current="false", proposed="true"))
        if config.aligned_timeout_ms and keys.aligned_timeout is not None:
            now = f"{config.aligned_timeout_ms} ms"
            changes.append(ChangeOut(key=keys.aligned_timeout, current=now, proposed="0 ms"))
    effect = (
        "From the next one on, checkpoints are unaligned."
        " This one does not change; if you abort it, the next may begin sooner."
    )
    return _out(CheckpointAction.SWITCH_TO_UNALIGNED, effect, reason, changes)


def _savepoint(engine: EngineCapabilities) -> ActionOut:
    reason = None if engine.can_trigger_savepoints else f"{engine.name} has no request for a savepoint"
    effect = "The job takes a savepoint in its default directory and continues. It may wait for this checkpoint to end."
    return _out(CheckpointAction.SAVEPOINT, effect, reason)


def _abort(engine: EngineCapabilities, header: CheckpointHeader) -> ActionOut:
    reason = None
    if not engine.can_abort_checkpoints:
        reason = f"{engine.name} has no request that aborts a checkpoint"
    what = "savepoint" if header.kind is not CheckpointKind.CHECKPOINT else "checkpoint"
    effect = f"This {what} fails and is not counted as a failure of the job. The next checkpoint is not affected."
    return _out(CheckpointAction.ABORT, effect, reason)


def _stop(*, has_ended: bool) -> ActionOut:
    """Return the stop with a savepoint. A stopping job refuses another stop itself."""
    reason, rule = ("the job has ended", "SV-3") if has_ended else (None, None)
    effect = "The job takes a savepoint and ends. It can be started from the savepoint again."
    return _out(CheckpointAction.STOP, effect, reason, rule=rule)


def _start(header: CheckpointHeader, *, has_ended: bool) -> ActionOut:
    """Return the start from a checkpoint that has ended. The target checks the rest, such as newer output (CO-8)."""
    reason, rule = None, None
    if header.status is CheckpointStatus.FAILED:
        reason, rule = "it failed", "CO-7"
    elif header.is_discarded:
        reason, rule = "it was dropped after newer ones were complete", "CO-12"
    elif header.external_path is None:
        reason, rule = "its location is not known", "CK-3"
    elif not has_ended:
        reason, rule = "the job still runs, and both would write to its external system", "SNK-3"
    effect = "The job starts again with the same graph and settings. It continues from this state, and its output too."
    return _out(CheckpointAction.START, effect, reason, rule=rule)


def _out(
    action: CheckpointAction,
    effect: str,
    reason: str | None,
    changes: list[ChangeOut] | None = None,
    *,
    rule: str | None = None,
) -> ActionOut:
    is_possible = reason is None
    return ActionOut(
        action=action, is_possible=is_possible, reason=reason, rule=rule, effect=effect, changes=changes or []
    )
