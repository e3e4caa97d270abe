"""The topics, modes, metrics and states of advice, which the advisor, the store, the API and the pages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final


class Topic(StrEnum):
    """The topic of an advice rule, by rank. A job has at most one open recommendation for each topic."""

    MODE = "mode"
    IN_FLIGHT = "in-flight"
    WHAT_IF = "what-if"
    """A change that a person chose on the what-if page. No rule gives it."""
    PARALLELISM = "parallelism"
    STATE = "state"
    BUFFERS = "buffers"
    BATCH_SIZE = "batch-size"
    """How much input a micro-batch may read."""
    TOLERANCE = "tolerance"
    INTERVAL = "interval"
    """The interval of the checkpoints, or of the trigger of a micro-batched engine."""
    MIN_PAUSE = "min-pause"
    TIMEOUT = "timeout"
    RETENTION = "retention"


class Mode(StrEnum):
    """The checkpoint mode that advice proposes or that a job uses."""

    ALIGNED = "aligned"
    ALIGNED_WITH_TIMEOUT = "aligned-with-timeout"
    UNALIGNED = "unaligned"


class Metric(StrEnum):
    """A quantity that advice predicts. It is measured after the change, and compared with the prediction."""

    DURATION = "end_to_end_duration_ms"
    PERSISTED = "persisted_bytes"
    EXPIRED = "expired_ratio"
    RESTORE = "restore_extra_ms"
    WRITTEN = "checkpointed_size_bytes"
    OPEN_RATIO = "open_ratio"
    """The share of the time during which a checkpoint runs."""
    REPLAYED = "replayed_ms"
    """The input, in milliseconds of its arrival, that a restore processes again."""
    RECOVERY = "recovery_ms"
    """The time from a failure until its backlog is processed."""
    LOST = "lost_ratio"
    """The share of the time that checkpoints and failures cost."""
    FAILOVERS = "failovers_per_day"
    """How often a day failed checkpoints restart the job."""
    STORED = "stored_bytes"
    """The size of all retained checkpoints together."""
    THROUGHPUT = "records_per_s"


class AdviceStep(StrEnum):
    """What an entry in the history of a recommendation records."""

    STATE = "state"
    """The recommendation got the entry's state."""
    APPLY = "apply"
    """The change was sent to the target. The state is *accepted* until the engine reports the new settings."""
    GUARDED_APPLY = "guarded-apply"
    """As ``APPLY``, and a person asked for an automatic roll back if the checkpoints are worse after the change."""
    ROLL_BACK = "roll-back"
    """A roll back was sent to the target. The state changes later, when the engine reports the earlier settings."""
    AUTO_ROLL_BACK = "auto-roll-back"
    """As ``ROLL_BACK``, but Barrierscope sent it by itself, because the change made the checkpoints worse."""

    @property
    def is_apply(self) -> bool:
        """Whether the entry records that the change was sent."""
        return self in (AdviceStep.APPLY, AdviceStep.GUARDED_APPLY)

    @property
    def is_roll_back(self) -> bool:
        """Whether the entry records that a roll back was sent."""
        return self in (AdviceStep.ROLL_BACK, AdviceStep.AUTO_ROLL_BACK)


class AdviceOutcome(StrEnum):
    """What is known of a request to the target: of that which the entry records, or of that of the entry before."""

    AWAITED = "awaited"
    """It is being sent. The next entry says what came of it."""
    SENT = "sent"
    """The target took it."""
    REFUSED = "refused"
    """The target, or the service before it was sent, refused it. Nothing changed."""
    UNANSWERED = "unanswered"
    """The target did not answer, so it may have taken it."""
    CUT_SHORT = "cut-short"
    """The service ended while it sent it, so the target may have taken it."""

    @property
    def is_unsure(self) -> bool:
        """Whether it is not known whether the target took the request."""
        return self in (AdviceOutcome.UNANSWERED, AdviceOutcome.CUT_SHORT)


OUTCOME_WORDS: Final[Mapping[AdviceOutcome, str]] = {
    AdviceOutcome.AWAITED: "being sent",
    AdviceOutcome.SENT: "taken by the target",
    AdviceOutcome.REFUSED: "refused",
    AdviceOutcome.UNANSWERED: "not answered",
    AdviceOutcome.CUT_SHORT: "cut short",
}
"""What came of a request, in words."""

THE_SERVICE: Final = "the service"
"""The author of a step that no person took."""


def with_action(description: str, action: str | None) -> str:
    """Return what is wrong, with what to do first: the one wording of messages, the command line and the API."""
    return description if action is None else f"{description} Do first: {action.rstrip('.')}."


def author_words(author: str | None) -> str:
    """Return who took a step. None is a person who gave no name."""
    return "a person" if author is None else author


class LintLevel(StrEnum):
    """How serious a lint is, the most serious first."""

    DANGER = "danger"
    """The setting causes restarts or has none of the effect that a user expects."""
    WARNING = "warning"
    NOTE = "note"


class LintEffect(StrEnum):
    """What a lint means for advice to enable unaligned checkpoints."""

    NONE = "none"
    RISK = "risk"
    """The advice mentions it as a risk."""
    NO_GAIN = "no-gain"
    """Unaligned checkpoints may have no effect, so they are not advised."""
    UNSAFE = "unsafe"
    """An unaligned checkpoint may not restore what it should, so they are not advised."""


class AdviceState(StrEnum):
    """The state of a recommendation."""

    NEW = "new"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    APPLIED = "applied"
    VERIFIED = "verified"
    REGRESSED = "regressed"
    """The change is in force, and the checkpoints are clearly worse than before it and than predicted."""
    ROLLED_BACK = "rolled-back"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        """Whether a user can still accept, dismiss or apply the recommendation."""
        return self in (AdviceState.NEW, AdviceState.ACCEPTED)

    @property
    def is_in_force(self) -> bool:
        """Whether the engine reports the proposed settings."""
        return self in (AdviceState.APPLIED, AdviceState.VERIFIED, AdviceState.REGRESSED)

    def word(self, held: Sequence[bool] = ()) -> str:
        """Return the state as people read it. ``held`` says of each prediction whether it was measured to hold.

        A change is called verified only if all did. Without ``held``, the reason beside the word counts them.
        """
        if self is not AdviceState.VERIFIED:
            return self.value
        return "measured" if not held else "verified" if all(held) else "not as predicted"
