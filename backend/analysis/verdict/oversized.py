"""The rule about acknowledgements that are larger than a message may be, so the coordinator never gets them.

A subtask puts small pieces of state into its acknowledgement, and writes only larger ones to the store. Flink drops an
acknowledgement above ``pekko.framesize``. Its REST API then shows the same as for a snapshot that does not reach the
store. The settings of the cluster can make the one more likely than the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.analysis.measures.snapshots import Unanswered
from backend.analysis.numbers.statistics import known
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict import snapshot, stuck_sync
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft
from backend.analysis.verdict.rule import WAITING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.domain import flink_options
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.flink_options import INLINE_THRESHOLD_KEY, MESSAGE_SIZE_KEYS
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

_LIMIT_DEFAULT_BYTES = 10 << 20
_INLINE_DEFAULT_BYTES = 20 << 10
# The pieces of state that the operators of one subtask may well have below the threshold.
_PIECES_MAX = 20


@dataclass(frozen=True, slots=True)
class _Oversized:
    """The subtasks that did not acknowledge, the largest message, and the state that goes into an acknowledgement.

    ``limit_key`` is the name of the setting of the largest message, if it is set.
    """

    unanswered: Unanswered
    limit_bytes: int
    limit_key: str | None
    inline_bytes: int


def _find_oversized(case: Case) -> _Oversized | None:
    """Return the subtasks that did not acknowledge, if the settings let their acknowledgements grow above the limit.

    If such a subtask once acknowledged more bytes than a message may have, its state goes to the store.
    """
    settings = dict(case.evidence.cluster_settings or ())
    limit_key = next((key for key in MESSAGE_SIZE_KEYS if key in settings), None)
    limit = None if limit_key is None else flink_options.size_bytes(settings[limit_key])
    names = sorted(flink_options.names_of(INLINE_THRESHOLD_KEY))
    inline = next((size for n in names if n in settings and (size := flink_options.size_bytes(settings[n]))), None)
    limit_bytes, inline_bytes = limit or _LIMIT_DEFAULT_BYTES, inline or _INLINE_DEFAULT_BYTES
    if limit_bytes >= _LIMIT_DEFAULT_BYTES and limit_bytes > _PIECES_MAX * inline_bytes:
        return None
    found = stuck_sync.find_unanswered(case)
    if found is None or _largest_bytes(case, found) > limit_bytes:
        return None
    return _Oversized(found, limit_bytes, limit_key, inline_bytes)


def _largest_bytes(case: Case, found: Unanswered) -> float:
    """Return the most bytes that one of the subtasks wrote in a checkpoint that completed; 0 if none is known."""
    details = [
        detail
        for c in case.evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and (detail := c.detail(found.vertex_id)) is not None
    ]
    wrote = [
        d.checkpointed_size_bytes[i] for d in details for i in found.subtasks if i < len(d.checkpointed_size_bytes)
    ]
    return max(known(wrote), default=0.0)


def _tell_oversized(case: Case, found: _Oversized) -> Verdict:
    subtasks, vertex_id = found.unanswered.subtasks, found.unanswered.vertex_id
    where = say.where(case.name(vertex_id), subtasks, case.subtask_count(vertex_id))
    limit, inline = say.size(found.limit_bytes), say.size(found.inline_bytes)
    what, drops = (
        ("its acknowledgement holds", "it is") if len(subtasks) == 1 else ("their acknowledgements hold", "they are")
    )
    return draft(
        case,
        VerdictKind.COORDINATOR,
        f"{where} did not acknowledge: {what} more state than a message may have ({limit}), so {drops} dropped on the"
        " way to the coordinator (JobManager)",
        vertex_id=vertex_id,
        subtasks=subtasks,
        phase=Phase.ACK_WAIT,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(
                f"largest message between the processes ({found.limit_key or 'default of ' + MESSAGE_SIZE_KEYS[0]})",
                "cluster settings",
                found.limit_bytes,
                "bytes",
            ),
            rows.note(f"each piece of state below {inline} goes into the acknowledgement, and not to the store"),
            *snapshot.unanswered_rows(case, found.unanswered),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=(
            "a message on a size above the limit in the logs of the TaskManager or of the JobManager; without one, the"
            " snapshots do not reach the store",
        ),
    )


OVERSIZED = Rule(
    "acknowledgement above the message size", Explains.THE_REST, (WAITING,), _find_oversized, _tell_oversized
)
