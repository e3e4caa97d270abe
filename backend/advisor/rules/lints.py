"""Finds settings that are known to cause trouble, and errors of the engine's version that concern checkpoints.

A lint needs no checkpoint that went wrong: it compares the settings and the version with what is known. Each names its
source. ``version_faults`` has the table of the versions' faults.

Settings of the cluster are defaults, which a job may override. A lint about them says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from backend.advisor.advice import Lint
from backend.advisor.rules import pauses, tolerance, version_faults
from backend.advisor.rules.version_faults import Version
from backend.advisor.situation import Situation
from backend.advisor.thresholds import STORE_MIN_RATIO
from backend.analysis.measures import multiplying
from backend.analysis.numbers.statistics import median, ratio
from backend.analysis.verdict.refused import after_finish_key
from backend.analysis.words import sentences as say
from backend.domain import flink_options
from backend.domain.advice import LintEffect, LintLevel
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.verdict import Health, VerdictKind

_ISSUE = "https://issues.apache.org/jira/browse/"
_DOCS = "https://nightlies.apache.org/flink/flink-docs-stable/docs/"
_UNALIGNED_DOCS = f"{_DOCS}ops/state/checkpointing_under_backpressure/"
_CONFIG_DOCS = f"{_DOCS}deployment/config/"
_FLIP_547 = "https://cwiki.apache.org/confluence/display/FLINK/FLIP-547%3A+Support+checkpoint+during+recovery"
_RECOVER_DOWNSTREAM = "execution.checkpointing.unaligned.recover-output-on-downstream.enabled"
_DURING_RECOVERY = "execution.checkpointing.during-recovery.enabled"
_RETAINED = "execution.checkpointing.num-retained"
_UNALIGNED = "execution.checkpointing.unaligned.enabled"
_AFTER_FINISH = "execution.checkpointing.checkpoints-after-tasks-finish"
_BUFFERS = (
    "taskmanager.network.memory.buffers-per-channel",
    "taskmanager.network.memory.floating-buffers-per-gate",
    "taskmanager.network.memory.max-buffers-per-channel",
)
OPTIONS = (
    *(_RECOVER_DOWNSTREAM, _DURING_RECOVERY, _RETAINED, _UNALIGNED, _AFTER_FINISH),
    *(*_BUFFERS, *version_faults.OPTIONS),
)
"""The options of the cluster that lints read, under their newest names."""
# From this amount on, reading and processing the in-flight data after a restore takes long enough to matter.
_PERSISTED_LARGE_BYTES = 256 << 20
_SYNC_STUCK_MS = 30_000
_UNION_DOCS = f"{_DOCS}dev/datastream/fault-tolerance/state/#using-operator-state"
_OWN_PART = (
    "Look at the operators of this vertex that restore list state. A subtask must keep only its own part of what it"
    " gets from getUnionListState, or must use getListState."
)
_ONLY_FEWER_SUBTASKS = "FLINK-31963"


def lints_of(situation: Situation) -> tuple[Lint, ...]:
    """Return the lints of a job, the most serious ones first."""
    if not situation.engine.has_barriers:
        return ()
    if situation.diagnosis.health is Health.OFF:
        return tuple(_switched_off(situation))
    of_version = tuple(_of_version(situation))
    # The fault of the version says why the pause is not kept.
    explained = {pauses.NOT_KEPT} if any(x.code == version_faults.PAUSE_NOT_KEPT for x in of_version) else set()
    lints = [*(x for x in _of_settings(situation) if x.code not in explained), *of_version]
    return tuple(sorted(lints, key=lambda lint: list(LintLevel).index(lint.level)))


def rescaling_error(situation: Situation) -> Lint | None:
    """Return the error of the version because of which an unaligned checkpoint cannot be restored with more subtasks.

    None if the version has no such error that concerns this job.
    """
    return next(
        (c for c in lints_of(situation) if c.effect is LintEffect.RISK and c.code != _ONLY_FEWER_SUBTASKS), None
    )


def version_of(text: str | None) -> Version | None:
    """Return the version that the engine reports as three numbers; None if it is not known."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


# --- errors of a version ------------------------------------------------------------------------------------------


def _of_version(situation: Situation) -> Iterator[Lint]:
    version = version_of(situation.version)
    if not situation.engine.is_flink_release or version is None:
        return
    yield from version_faults.of_version(situation, version)
    yield from _unread(situation, version)
    yield from _during_recovery(situation, version)
    yield from _stuck_sync(situation, version)


def _unread(situation: Situation, version: Version) -> Iterator[Lint]:
    """Yield lints about settings of the cluster that this version does not read."""
    unread = flink_options.unread(_cluster(situation), version[:2])
    ignored = [key for key in unread if key in _BUFFERS]
    if ignored:
        yield Lint(
            "ignored-buffers",
            LintLevel.WARNING,
            f"{say.listed(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect",
            "Flink 2 has no such setting. It accepts the key without a message and runs with 2 buffers per channel"
            " and 8 floating buffers per gate.",
            f"Remove {'it' if len(ignored) == 1 else 'them'}. Use buffer debloating to have less data in flight.",
            f"{_CONFIG_DOCS}#network",
        )
    for key in (k for k in unread if k not in _BUFFERS):
        here = flink_options.option(key, flink_options.nearest(version[:2]))
        cure = f"Remove {key}." if here is None else f"Set {here.key} instead of {key}."
        yield Lint(
            "unread-setting",
            LintLevel.WARNING,
            f"{key} has no effect",
            f"{situation.engine_words} has no setting of this name. It accepts the key without a message.",
            cure,
            _CONFIG_DOCS,
        )


def _during_recovery(situation: Situation, version: Version) -> Iterator[Lint]:
    here = flink_options.option(_DURING_RECOVERY, flink_options.nearest(version[:2]))
    is_on = all(_setting(situation, name).lower() == "true" for name in (_RECOVER_DOWNSTREAM, _DURING_RECOVERY))
    if here is not None and version[:2] == (2, 3) and is_on and situation.aligned_timeout_ms is None:
        yield Lint(
            "FLINK-40518",
            LintLevel.DANGER,
            "A restore can end in an endless loop of restarts",
            "The cluster allows checkpoints during recovery, but this job's checkpoints are aligned. A checkpoint that"
            " is triggered while the job recovers then hangs until it expires, and the job restarts again.",
            f"Turn {here.key} off, or enable unaligned checkpoints.",
            f"{_ISSUE}FLINK-40518",
        )
    persisted = median(r.persisted_bytes for r in situation.recorded) or 0.0
    if situation.aligned_timeout_ms is not None and persisted >= _PERSISTED_LARGE_BYTES and not is_on:
        size = say.size(persisted)
        if here is not None:
            cure = f"Set {_RECOVER_DOWNSTREAM} and {here.key} to true."
        elif situation.engine.has_buffer_debloating:
            cure = "Limit the in-flight data with buffer debloating. Flink 2.3 can take checkpoints during recovery."
        else:
            cure = "Limit the in-flight data with fewer buffers. Flink 2.3 can take checkpoints during recovery."
        yield Lint(
            "FLIP-547",
            LintLevel.NOTE,
            "No checkpoint completes while the job restores its in-flight data",
            f"Checkpoints persist {size} of in-flight data (median). After a failure, the job reads and processes this"
            " data first. If it fails again meanwhile, it starts from the same checkpoint.",
            cure,
            _FLIP_547,
        )


def _stuck_sync(situation: Situation, version: Version) -> Iterator[Lint]:
    sync_ms = median(r.sync_ms for r in situation.recorded)
    is_sync = situation.diagnosis.verdict.kind is VerdictKind.SYNC
    if version < (2, 4, 0) and is_sync and sync_ms is not None and sync_ms >= _SYNC_STUCK_MS:
        yield Lint(
            "FLINK-40200",
            LintLevel.NOTE,
            "Nothing ends a sync part that is stuck",
            f"The longest sync part takes {say.duration(sync_ms)} (median). A checkpoint that expires does not end it:"
            " the subtask processes nothing until the call returns.",
            "Restart a stuck task by hand. Later versions have an optional timeout for the sync part, which fails the"
            " task.",
            f"{_ISSUE}FLINK-40200",
        )


# --- settings -----------------------------------------------------------------------------------------------------


def _of_settings(situation: Situation) -> Iterator[Lint]:
    config = situation.evidence.config
    if config is None:
        return
    if config.tolerable_failed_count == 0:
        failed = sum(r.is_failed for r in situation.recorded)
        count = len(situation.recorded)
        happened = f" {say.of_the_last(failed, count)} failed." if failed else ""
        yield Lint(
            "tolerable-0",
            LintLevel.DANGER if failed else LintLevel.WARNING,
            "One failed checkpoint restarts the job",
            "No failed checkpoint is tolerated. Under back-pressure a checkpoint expires, the job restarts and replays"
            f" its input, which causes more back-pressure.{happened}",
            "Tolerate some failures, for example 3. Each makes the job replay more input if it restarts later.",
            f"{_CONFIG_DOCS}#execution-checkpointing-tolerable-failed-checkpoints",
        )
    yield from tolerance.lints_of(situation, config)
    if config.timeout_ms is not None and config.interval_ms is not None and config.timeout_ms < config.interval_ms:
        timeout, interval = say.duration(config.timeout_ms), say.duration(config.interval_ms)
        yield Lint(
            "timeout-below-interval",
            LintLevel.WARNING,
            f"The checkpoint timeout of {timeout} is shorter than the interval of {interval}",
            "A slow checkpoint is aborted although the next one is not due yet.",
            f"Raise the timeout to at least {interval}. Checkpoints that complete in time stay as they are.",
            f"{_CONFIG_DOCS}#execution-checkpointing-timeout",
        )
    yield from pauses.lints_of(situation, config)
    if situation.aligned_timeout_ms is not None and (config.max_concurrent or 1) > 1:
        yield Lint(
            "unaligned-concurrent",
            LintLevel.WARNING,
            "Unaligned checkpoints and more than one checkpoint at a time exclude each other",
            f"{config.max_concurrent} checkpoints may run at the same time. Flink starts no job with both settings.",
            "Allow one checkpoint at a time.",
            f"{_UNALIGNED_DOCS}#limitations",
        )
    yield from _unaligned_ignored(situation)
    yield from _concurrent(situation, config)
    yield from _after_tasks_finish(situation)
    yield from _retained(situation)
    yield from _multiplying(situation)


def _unaligned_ignored(situation: Situation) -> Iterator[Lint]:
    """Yield a lint if the cluster enables unaligned checkpoints and the job's mode leaves them off."""
    there = _found(situation, _UNALIGNED)
    if there is not None and there[1].lower() == "true" and situation.is_exactly_once is False:
        yield Lint(
            "unaligned-needs-exactly-once",
            LintLevel.WARNING,
            "Unaligned checkpoints are set and off, because the job's mode is at-least-once",
            f"The cluster sets {there[0]} to true. Flink switches it off for a job that is not exactly-once, and only"
            " a line in a log shows that. At-least-once checkpoints do not align, so a barrier still waits in queues.",
            "Set execution.checkpointing.mode to EXACTLY_ONCE if barriers shall overtake queues.",
            f"{_UNALIGNED_DOCS}#limitations",
        )


def _concurrent(situation: Situation, config: CheckpointConfig) -> Iterator[Lint]:
    """Yield a lint if several checkpoints write at the same time (R-CC-1)."""
    writing = median(ratio(r.own_async_ms, r.duration_ms) for r in situation.recorded)
    is_aligned = situation.aligned_timeout_ms is None
    overlap = config.interval_ms is not None and (situation.duration_ms or 0.0) > config.interval_ms
    if (config.max_concurrent or 1) > 1 and is_aligned and overlap and (writing or 0.0) > STORE_MIN_RATIO:
        took = say.duration(situation.duration_ms or 0.0)
        yield Lint(
            "concurrent-writes",
            LintLevel.WARNING,
            f"Up to {config.max_concurrent} checkpoints write to the store at the same time",
            f"A checkpoint takes {took}, longer than the interval, and most of that is writing. Each one that begins"
            " meanwhile makes the others slower. Several at a time suit small state and a long way of the barriers.",
            "Allow one checkpoint at a time, or raise the interval above the duration.",
            f"{_CONFIG_DOCS}#execution-checkpointing-max-concurrent-checkpoints",
        )


def _multiplying(situation: Situation) -> Iterator[Lint]:
    """Yield a lint if each restart of the job multiplies the state of a vertex."""
    found = multiplying.of_job(situation.evidence)
    if found is None:
        return
    if not found.is_decided:
        yield _may_multiply(situation, found)
        return
    factor = say.times(median(found.factors) or 0.0)
    sizes = ", ".join(say.size(size) for size in found.sizes_bytes)
    like = ""
    if found.is_by_parallelism:
        like = (
            f" That is about the number of its subtasks ({found.subtask_count}), as if each of them restores the union"
            " list state of all and adds it to its own."
        )
    yield Lint(
        "state-multiplies",
        LintLevel.DANGER,
        f"The state of {situation.name(found.vertex_id)} is {factor} as large after each restart",
        f"It had {sizes} of state before, between and after the last {len(found.factors)} restarts. In between, it"
        f" kept its size.{like} In the end, an acknowledgement no longer fits into a message, or a restore runs out of"
        " memory.",
        f"{_OWN_PART} A savepoint keeps the size that the state has by now.",
        _UNION_DOCS,
    )


def _may_multiply(situation: Situation, sign: multiplying.Multiplying) -> Lint:
    before, after = (say.size(size) for size in sign.sizes_bytes)
    return Lint(
        "state-multiplies",
        LintLevel.WARNING,
        f"The state of {situation.name(sign.vertex_id)} may multiply with each restart",
        f"It had {before} before the last restart and {after} after it, {say.times(sign.factors[0])} as much, and kept"
        f" its size otherwise. The vertex has {sign.subtask_count} subtasks: if each of them restores the union list"
        " state of all and adds it to its own, it looks like this. One restart is not enough to tell it from a change"
        " of the input or of the job. The size after the next restart decides.",
        f"{_OWN_PART} If none does that, nothing is wrong.",
        _UNION_DOCS,
    )


def _switched_off(situation: Situation) -> Iterator[Lint]:
    """Yield a lint if a streaming job takes no checkpoints. A job in batch mode needs none."""
    if not situation.evidence.topology.is_batch:
        yield Lint(
            "checkpointing-off",
            LintLevel.WARNING,
            "The job takes no checkpoints",
            "A failure loses the state of the job. Sinks that write when a checkpoint completes, such as files and"
            " transactions, show nothing until the job ends.",
            "Set execution.checkpointing.interval, for example to 1 min, unless the job has no state worth keeping.",
            f"{_CONFIG_DOCS}#execution-checkpointing-interval",
        )


def _after_tasks_finish(situation: Situation) -> Iterator[Lint]:
    """Yield a lint if checkpoints end with the first task that finishes (R-FIN-1)."""
    there = _found(situation, _AFTER_FINISH)
    config = situation.evidence.config
    if config is not None and config.ends_with_first_task:
        yield Lint(
            "no-checkpoints-after-finish",
            LintLevel.WARNING,
            "Once a task has finished, the job takes no checkpoint any more",
            "The job's settings say so. If one of several sources is bounded, the job loses its checkpoints when that"
            " source ends.",
            f"Set {after_finish_key(situation.evidence)} to true: from Flink 1.15 on, this is the default.",
            f"{_DOCS}dev/datastream/fault-tolerance/checkpointing/#checkpointing-with-parts-of-the-graph-finished",
        )
    elif there is not None and there[1].lower() == "false":
        off = there[0]
        version = version_of(situation.version)
        # In Flink 1.14 the default is false.
        is_default_off = version is not None and version[:2] == (1, 14)
        yield Lint(
            "no-checkpoints-after-finish",
            LintLevel.WARNING,
            "Once a task has finished, the job takes no checkpoint any more",
            f"The cluster sets {off} to false; the job may override it. If one of several sources is bounded, the job"
            " loses its checkpoints when that source ends.",
            f"Set {off} to true." if is_default_off else f"Remove {off}: from Flink 1.15 on, the default is true.",
            f"{_DOCS}dev/datastream/fault-tolerance/checkpointing/#checkpointing-with-parts-of-the-graph-finished",
        )


def _retained(situation: Situation) -> Iterator[Lint]:
    count = retained_count(situation)
    if count is None or count > 1:
        return
    set_by = "The cluster's setting is" if _setting(situation, _RETAINED) else "Flink's default is"
    yield Lint(
        "retained-1",
        LintLevel.NOTE,
        "Only the newest checkpoint is kept",
        f"{set_by} 1 retained checkpoint; an option of a job does not change it. If the newest checkpoint is damaged,"
        " or if a fault in the job is noticed late, there is no earlier one to restore.",
        f"Set {situation.engine.settings.retained or _RETAINED} to 2 or more for the cluster, and keep a savepoint for"
        " upgrades.",
        f"{_CONFIG_DOCS}#execution-checkpointing-num-retained",
    )


def retained_count(situation: Situation) -> int | None:
    """Return how many checkpoints the cluster keeps for each job; None if not known."""
    if situation.evidence.cluster_settings is None:
        return None
    value = _setting(situation, _RETAINED)
    return int(value) if value.isdecimal() else 1


def cluster_setting(situation: Situation, name: str) -> str | None:
    """Return a setting of the cluster, under whatever name the version reads it; None if not set or not known."""
    return _setting(situation, name) or None


def _setting(situation: Situation, name: str) -> str:
    found = _found(situation, name)
    return "" if found is None else found[1]


def _found(situation: Situation, name: str) -> tuple[str, str] | None:
    """Return the key under which the cluster sets an option that this version reads, and its value."""
    version = version_of(situation.version)
    return flink_options.set_as(name, _cluster(situation), None if version is None else version[:2])


def _cluster(situation: Situation) -> Mapping[str, str]:
    return {key: value.strip() for key, value in situation.evidence.cluster_settings or ()}
