"""Decides the mode of a job's checkpoints and of one checkpoint, and names it. At-least-once is a mode of its own.

Barriers of at-least-once checkpoints block no channel, so such a checkpoint is neither aligned nor unaligned. The
engine does not say so for a checkpoint (Flink's type is ``CHECKPOINT``); only the settings of its job do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, Guarantee
from backend.domain.protocols import TRAITS, Protocol

AT_LEAST_ONCE: Final = "at-least-once"
AnyMode = Mode | Protocol | Literal["at-least-once"]

MODE_WORDS: Final[Mapping[str, str]] = {
    "aligned": "aligned",
    "unaligned": "unaligned",
    "aligned-with-timeout": "aligned with timeout",
    AT_LEAST_ONCE: "at least once",
    **{protocol.value: traits.words for protocol, traits in TRAITS.items()},
}


def course_of(mode: str | None, *, aligned_timeout_ms: int | None, is_capped: bool) -> str | None:
    """Return in words how a checkpoint of this mode went. Return None if its mode is not known.

    An unaligned checkpoint of a job with an aligned timeout began aligned. With ``is_capped``, a cap on in-flight data
    made the checkpoint wait or persist less. It keeps a checkpoint aligned if nothing could be overtaken within it.
    """
    if mode is None:
        return None
    words = MODE_WORDS.get(mode, mode)
    if mode not in (Mode.ALIGNED, Mode.UNALIGNED):
        return words
    if is_capped:
        return f"{words}, capped"
    if mode == Mode.UNALIGNED and aligned_timeout_ms:
        return f"aligned, then unaligned after {_spelled(aligned_timeout_ms)}"
    return words


def course_of_checkpoint(header: CheckpointHeader, config: CheckpointConfig | None = None) -> str | None:
    """Return in words how a checkpoint went, by the settings of its run.

    A checkpoint under a cap that made no subtask wait is named as one without a cap: it had nothing in flight, or less
    than the cap. The settings do not decide this, because a cap may have been set after the checkpoint.
    """
    mode = mode_of_checkpoint(header, config)
    if config is None or header.kind is not CheckpointKind.CHECKPOINT or not config.is_unaligned_enabled:
        return course_of(mode, aligned_timeout_ms=None, is_capped=False)
    is_capped = bool(header.cap_bound_count)
    return course_of(mode, aligned_timeout_ms=config.aligned_timeout_ms, is_capped=is_capped)


def _spelled(ms: int) -> str:
    """Return a setting as a user writes it: ``1 s``, not ``1.0 s``."""
    return f"{ms // 1000} s" if ms % 1000 == 0 else f"{ms} ms"


def mode_of(config: CheckpointConfig | None) -> AnyMode | None:
    """Derive a job's checkpoint mode from its settings. Return None if they are unknown, or if checkpointing is off.

    Flink reports at-least-once for a job without periodic checkpoints, which says nothing about its savepoints.
    """
    if config is None or config.is_off or (config.mode is None and config.is_unaligned_enabled is None):
        return None
    if config.guarantee is Guarantee.AT_LEAST_ONCE:
        return AT_LEAST_ONCE
    if not config.is_unaligned_enabled:
        return Mode.ALIGNED
    if config.protocol is not None:
        return config.protocol
    return Mode.ALIGNED_WITH_TIMEOUT if config.aligned_timeout_ms else Mode.UNALIGNED


def mode_of_checkpoint(header: CheckpointHeader, config: CheckpointConfig | None = None) -> AnyMode | None:
    """Return the mode in which a checkpoint was taken. Return None if the engine does not report it.

    ``config`` has the settings of its run.
    """
    if header.protocol is not None or header.is_unaligned is None:
        return header.protocol
    if config is not None and not config.is_off and config.guarantee is Guarantee.AT_LEAST_ONCE:
        return AT_LEAST_ONCE
    return Mode.UNALIGNED if header.is_unaligned else Mode.ALIGNED
