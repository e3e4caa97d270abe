"""The JSON of the actions on a checkpoint and its job."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from backend.contracts.advice import ChangeOut, OptionalAuthor
from backend.contracts.model import Model
from backend.domain.checkpoint_action import CheckpointAction

_KEY = Annotated[str, Field(max_length=200)]


class ActionOut(Model):
    """One action, whether it is possible now, and what it changes."""

    action: CheckpointAction
    is_possible: bool
    reason: str | None
    """The reason why the action is not possible now; null if it is possible."""
    rule: str | None = None
    """The id of the rule behind ``reason``, if the protocol of the engine has one."""
    effect: str
    """What the action does, in words."""
    changes: list[ChangeOut] = []
    """The settings that the action changes. Empty if it changes none, or if it is not possible."""


class ActionIn(Model):
    """An action to take. ``settings`` are the proposed values that the user confirmed.

    If the job's settings have changed since, so that the action would set other values, it is refused.
    """

    action: CheckpointAction
    settings: Annotated[dict[_KEY, _KEY], Field(max_length=10)] = {}
    author: OptionalAuthor = None
    """Who takes it, for the annotation of the job. The name is not verified."""


class ActionTakenOut(Model):
    """An action that was sent to the target."""

    action: CheckpointAction
    text: str
    at: datetime
