"""The faults of Flink's versions that concern checkpoints, as one table.

A fault is reported only if the version has it and the settings and the job graph make it apply. Each entry was checked:

* FLINK-37870, FLINK-38483: the classes of releases 1.19 to 2.2.
* FLINK-31963, FLINK-35351, FLINK-18856, FLINK-22815, FLINK-31588: the announcements of the releases that mend them.
  The class that FLINK-18856 mends is new in 1.11.
* FLINK-20645: the release notes of 1.12, and the change for 1.12, which was made after release 1.12.1.
* FLINK-21726: the sources of the RocksDB of Flink 1.13 (5.17.2) and of 1.14 (6.20.3). Only the second has the change.
* FLINK-27251: the announcement of 1.16. The aligned timeout is new in 1.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from backend.advisor.advice import Lint
from backend.advisor.rules import pauses
from backend.advisor.situation import Situation
from backend.domain.advice import LintEffect, LintLevel

_ISSUE = "https://issues.apache.org/jira/browse/"
_POINTWISE = frozenset({"FORWARD", "RESCALE"})
_OVERTAKEN = frozenset({"HASH", "REBALANCE", "SHUFFLE", "CUSTOM"})
_ROCKSDB = "state.backend.rocksdb."
_PREDEFINED = f"{_ROCKSDB}predefined-options"
_WRITE_BUFFERS = f"{_ROCKSDB}writebuffer.count"
_MERGED_BUFFERS = f"{_ROCKSDB}writebuffer.number-to-merge"
PAUSE_NOT_KEPT = "FLINK-18856"
OPTIONS = (_PREDEFINED, _WRITE_BUFFERS, _MERGED_BUFFERS)
"""The settings of the cluster that the table reads, apart from those in the table of Flink's options."""
# Write buffers of a column family, and how many of them RocksDB merges in a flush: Flink's default and this profile's.
_DEFAULT_BUFFERS = (2, 1)
_BUFFERS_OF = {"SPINNING_DISK_OPTIMIZED_HIGH_MEM": (4, 3)}
# With so many write buffers or fewer, RocksDB delays no write because of them.
_UNDELAYED_BUFFERS = 3

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the engine. ``ranges`` has pairs: a version with the fault, and the first later one without it.

    ``concerns`` is whether the settings and the graph of a job make it apply. If ``needs_unaligned``, it applies only
    while unaligned checkpoints are on; if ``is_latent``, it is then reported as a note while they are off.
    ``until_then`` says what helps without an upgrade, as a sentence.
    """

    code: str
    level: LintLevel
    headline: str
    detail: str
    ranges: tuple[tuple[Version, Version], ...]
    concerns: Callable[[Situation], bool]
    effect: LintEffect = LintEffect.NONE
    needs_unaligned: bool = True
    is_latent: bool = False
    until_then: str = ""

    def mended_in(self, version: Version) -> Version | None:
        """Return the first later version without the fault; None if this version does not have the fault."""
        return next((fixed for first, fixed in self.ranges if first <= version < fixed), None)

    def cure(self, mended: Version) -> str:
        """Return what to do about the fault."""
        return f"Upgrade to {'.'.join(map(str, mended))} or later.{self.until_then and f' {self.until_then}'}"


def _can_be_unaligned(situation: Situation) -> bool:
    return situation.is_exactly_once


def _has_custom_exchange(situation: Situation) -> bool:
    return _can_be_unaligned(situation) and "CUSTOM" in _strategies(situation)


def _has_broadcast_exchange(situation: Situation) -> bool:
    return _can_be_unaligned(situation) and "BROADCAST" in _strategies(situation)


def _has_mixed_exchanges(situation: Situation) -> bool:
    """Return whether a vertex has both kinds of exchange on one side: overtaken and pointwise."""
    edges = situation.evidence.topology.edges
    sides = [{e.ship_strategy for e in edges if e.target == v.id} for v in situation.evidence.topology.vertices]
    sides += [{e.ship_strategy for e in edges if e.source == v.id} for v in situation.evidence.topology.vertices]
    return _can_be_unaligned(situation) and any(side & _POINTWISE and side & _OVERTAKEN for side in sides)


def _strategies(situation: Situation) -> set[str | None]:
    return {e.ship_strategy for e in situation.evidence.topology.edges}


def _has_aligned_timeout(situation: Situation) -> bool:
    return _can_be_unaligned(situation) and bool(situation.aligned_timeout_ms)


def _has_min_pause(situation: Situation) -> bool:
    config = situation.evidence.config
    return config is not None and bool(config.min_pause_ms)


def _waits_for_a_flush(situation: Situation) -> bool:
    """Return whether RocksDB may wait for a flush that begins only with one more full write buffer.

    Before a checkpoint, it waits while one more full buffer would delay writes, which is so if all but one of more than
    three buffers are full. It flushes by itself only if as many are full as it merges in a flush.
    """
    config = situation.evidence.config
    if config is None or "rocksdb" not in (config.state_backend or "").lower():
        return False
    settings = dict(situation.evidence.cluster_settings or ())
    count, merged = _BUFFERS_OF.get(settings.get(_PREDEFINED, "").strip().upper(), _DEFAULT_BUFFERS)
    count = _number(settings.get(_WRITE_BUFFERS), count)
    merged = _number(settings.get(_MERGED_BUFFERS), merged)
    return count > _UNDELAYED_BUFFERS and merged >= count - 1


def _number(text: str | None, default: int) -> int:
    value = (text or "").strip()
    return int(value) if value.isdecimal() else default


FAULTS = (
    Fault(
        "FLINK-37870",
        LintLevel.DANGER,
        "Unaligned checkpoints can be off for the whole job although they are enabled",
        "In this version, a sink with a committer turns unaligned checkpoints off on every exchange of the job, not"
        " only on those inside of the sink. Such checkpoints stay aligned, and nothing reports it.",
        (((1, 19, 2), (1, 19, 3)), ((1, 20, 1), (1, 20, 2)), ((2, 0, 0), (2, 0, 1))),
        _can_be_unaligned,
        LintEffect.NO_GAIN,
        is_latent=True,
    ),
    Fault(
        "FLINK-31963",
        LintLevel.WARNING,
        "A smaller parallelism cannot be restored from an unaligned checkpoint",
        "The restore fails with an ArrayIndexOutOfBoundsException if an operator without state lies between the"
        " channels with in-flight data.",
        (((1, 13, 0), (1, 16, 2)), ((1, 17, 0), (1, 17, 1))),
        _can_be_unaligned,
        LintEffect.RISK,
        is_latent=True,
    ),
    Fault(
        "FLINK-35351",
        LintLevel.WARNING,
        "Another parallelism cannot be restored from an unaligned checkpoint of this job",
        "The job has an exchange with a custom partitioner. After a change of the parallelism, the restore of its"
        " in-flight data fails.",
        (((1, 13, 0), (1, 19, 1)),),
        _has_custom_exchange,
        LintEffect.RISK,
        is_latent=True,
    ),
    Fault(
        "FLINK-38483",
        LintLevel.WARNING,
        "Another parallelism cannot be restored from an unaligned checkpoint of this job",
        "A vertex of this job has both a pointwise exchange (forward, rescale) and another one on the same side. After"
        " a change of the parallelism, the restore fails (FLINK-38267, FLINK-38483).",
        (((1, 13, 0), (1, 20, 4)), ((2, 0, 0), (2, 0, 1)), ((2, 1, 0), (2, 1, 1))),
        _has_mixed_exchanges,
        LintEffect.RISK,
        is_latent=True,
    ),
    Fault(
        "FLINK-20645",
        LintLevel.DANGER,
        "An unaligned checkpoint can complete and be corrupt",
        "After a checkpoint that was declined, the next one can lack in-flight data. In 1.12.0 this also happens to a"
        " checkpoint that begins while a task with several inputs still restores (FLINK-20654). A restore from such a"
        " checkpoint fails with errors about corrupt data.",
        (((1, 12, 0), (1, 12, 2)),),
        _can_be_unaligned,
        LintEffect.UNSAFE,
        until_then="Until then, turn unaligned checkpoints off.",
    ),
    Fault(
        "FLINK-22815",
        LintLevel.DANGER,
        "A restore can bring back broadcast state that differs between subtasks",
        "The job has a broadcast exchange, and in this version its barriers may overtake records. Some subtasks have"
        " then applied a broadcast record before the checkpoint, and others have not. Later versions keep the barriers"
        " of broadcast exchanges aligned.",
        (((1, 11, 0), (1, 11, 4)), ((1, 12, 0), (1, 12, 5)), ((1, 13, 0), (1, 13, 2))),
        _has_broadcast_exchange,
        LintEffect.UNSAFE,
        until_then="Until then, turn unaligned checkpoints off.",
    ),
    Fault(
        "FLINK-27251",
        LintLevel.WARNING,
        "The aligned timeout does not reach a barrier that waits at its sender",
        "Before Flink 1.16, a checkpoint becomes unaligned only at a subtask that has received a barrier. Under"
        " back-pressure the barrier waits in the output buffers of its sender, so the checkpoint stays aligned and may"
        " expire.",
        (((1, 13, 0), (1, 16, 0)),),
        _has_aligned_timeout,
        until_then="Until then, only an aligned timeout of 0 lets barriers overtake there.",
    ),
    Fault(
        "FLINK-31588",
        LintLevel.NOTE,
        "A subtask with an unaligned checkpoint can be shown as aligned",
        "If the aligned timeout ends in the output buffers of a subtask, Flink shows the checkpoint of this subtask as"
        " aligned, although it persists in-flight data.",
        (((1, 16, 0), (1, 16, 2)), ((1, 17, 0), (1, 17, 1))),
        _has_aligned_timeout,
        until_then="Until then, go by the persisted bytes.",
    ),
    Fault(
        "FLINK-21726",
        LintLevel.DANGER,
        "The sync part of a checkpoint can wait for a flush that does not begin",
        "By the cluster's settings, RocksDB merges all but one of its write buffers in one flush. Before a checkpoint,"
        " it can wait for a flush that begins only when another buffer is full. Meanwhile the task processes no"
        " records, so the buffer does not fill. A job may override these settings.",
        (((1, 11, 0), (1, 14, 0)),),
        _waits_for_a_flush,
        needs_unaligned=False,
        until_then=f"Until then, set {_MERGED_BUFFERS} to at least 2 less than {_WRITE_BUFFERS}.",
    ),
    Fault(
        PAUSE_NOT_KEPT,
        LintLevel.WARNING,
        "The minimum pause may not be kept",
        "Flink 1.11.0 and 1.11.1 may compare the minimum pause with the end of an earlier checkpoint than the last one."
        " The next checkpoint then begins at once.",
        (((1, 11, 0), (1, 11, 2)),),
        _has_min_pause,
        needs_unaligned=False,
        until_then="Until then, a longer interval is what leaves a pause.",
    ),
)


def of_version(situation: Situation, version: Version) -> Iterator[Lint]:
    """Yield a lint for each fault that this version has and that concerns the job."""
    is_on = situation.aligned_timeout_ms is not None
    for fault in FAULTS:
        mended = fault.mended_in(version)
        is_now = is_on or not fault.needs_unaligned
        if mended is None or not (is_now or fault.is_latent) or not fault.concerns(situation):
            continue
        when = "" if is_now else " It concerns this job only once unaligned checkpoints are on."
        lint = Lint(
            fault.code,
            fault.level if is_now else LintLevel.NOTE,
            fault.headline,
            f"{fault.detail}{when}",
            fault.cure(mended),
            _ISSUE + fault.code,
            fault.effect,
        )
        yield _with_pauses(lint, situation) if fault.code == PAUSE_NOT_KEPT else lint


def has_fault(situation: Situation, code: str, version: Version | None) -> bool:
    """Return whether this version has a fault of the table, whatever the settings of the job are."""
    if version is None or not situation.engine.is_flink_release:
        return False
    return any(fault.code == code and fault.mended_in(version) is not None for fault in FAULTS)


def unsafe(situation: Situation, version: Version | None) -> tuple[str, str] | None:
    """Return the code of the fault because of which unaligned checkpoints are not safe for the job, and a sentence.

    None if this version has no such fault, or if the version is not known.
    """
    if version is None or not situation.engine.is_flink_release:
        return None
    for fault in FAULTS:
        mended = fault.mended_in(version)
        if mended is not None and fault.effect is LintEffect.UNSAFE and fault.concerns(situation):
            headline = fault.headline[0].lower() + fault.headline[1:]
            return fault.code, f"{headline} ({fault.code}). Upgrade to {'.'.join(map(str, mended))} or later first"
    return None


def _with_pauses(lint: Lint, situation: Situation) -> Lint:
    """Return the lint on the minimum pause with what the checkpoints of the job show of it."""
    found = pauses.of_job(situation)
    if found is None:
        return lint
    detail = f"{lint.detail} {found.text}"
    if found.are_kept:
        return replace(lint, level=LintLevel.NOTE, detail=detail)
    return replace(lint, headline=found.headline, detail=detail)
