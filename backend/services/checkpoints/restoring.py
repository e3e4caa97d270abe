"""Decides which changes a job may make when it restores a checkpoint (GR-4), from what its engine reported. Pure.

Only a completed checkpoint that has not been discarded can be restored. Its possible uses depend on its kind: the kind
of a savepoint depends on its format, that of a checkpoint on whether it contains in-flight data. A checkpoint without
in-flight data follows the rules of an aligned checkpoint, even if its barriers were unaligned (GR-2). If the kind is
not reported, a use is decided only if all possible kinds agree on it.

Source of Flink's rules: its documentation, "Checkpoints vs. Savepoints", capabilities and limitations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backend.contracts.restoring import InFlightOut, RestoreUseOut, RestoringOut
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    Guarantee,
    SavepointFormat,
    VertexDetail,
)
from backend.domain.checkpoint_mode import AT_LEAST_ONCE
from backend.domain.engines import EngineCapabilities, RestoreRules
from backend.domain.topology import Topology
from backend.runtime.snapshot.capabilities import CAPABILITIES, OF_THIS_RUNTIME, SnapshotKind, Support, Use

_RULES: Final = {
    RestoreRules.FLINK: (CAPABILITIES, "Flink's documentation: Checkpoints vs. Savepoints"),
    RestoreRules.RUNTIME: (OF_THIS_RUNTIME, "the rules of the reference runtime for restoring another graph"),
}
_SAVEPOINTS: Final = {
    SavepointFormat.CANONICAL: SnapshotKind.CANONICAL_SAVEPOINT,
    SavepointFormat.NATIVE: SnapshotKind.NATIVE_SAVEPOINT,
}
_IN_FLIGHT_STAYS: Final = "in-flight data belongs to an edge: to change that, take a savepoint or an aligned checkpoint"
_NOTES: Final[Mapping[tuple[Use, SnapshotKind], str]] = {
    (Use.RESCALING, SnapshotKind.UNALIGNED): "its in-flight data is redistributed over the new subtasks",
    (Use.ARBITRARY_UPGRADE, SnapshotKind.UNALIGNED): _IN_FLIGHT_STAYS,
    (Use.SAME_TOPOLOGY_UPGRADE, SnapshotKind.UNALIGNED): _IN_FLIGHT_STAYS,
}
_STATE_THAT_IS_GONE: Final = "dropping the state of removed operators must be allowed explicitly"


def restoring_out(
    checkpoint: Checkpoint, engine: EngineCapabilities, topology: Topology | None, guarantee: Guarantee | None = None
) -> RestoringOut | None:
    """Return the possible uses of one checkpoint, or None if the engine cannot restore a chosen checkpoint (Spark).

    ``guarantee`` is that of the settings under which it was taken.
    """
    if engine.restore_rules is None:
        return None
    matrix, source = _RULES[engine.restore_rules]
    header = checkpoint.header
    refusal = _refusal(header)
    if refusal is not None:
        return RestoringOut(is_restorable=False, sentence=refusal, kinds=[], source=source)
    kinds = kinds_of(header)
    uses = [_use(use, row, kinds) for use, row in matrix.items()]
    in_flight = _in_flight(checkpoint.details, topology)
    return RestoringOut(
        is_restorable=True,
        sentence=_sentence(_name_of(kinds, guarantee), uses, in_flight),
        kinds=[kind.value for kind in kinds],
        location=header.external_path,
        uses=uses,
        in_flight=in_flight,
        is_consistent_for_queries=_is_consistent(kinds, guarantee),
        source=source,
    )


def kinds_of(header: CheckpointHeader) -> tuple[SnapshotKind, ...]:
    """Return the possible kinds of a completed checkpoint: several if the engine did not report enough to decide."""
    if header.kind is not CheckpointKind.CHECKPOINT:
        return (
            tuple(_SAVEPOINTS.values()) if header.savepoint_format is None else (_SAVEPOINTS[header.savepoint_format],)
        )
    if header.persisted_bytes is not None:
        return (SnapshotKind.UNALIGNED,) if header.persisted_bytes else (SnapshotKind.ALIGNED,)
    if header.is_unaligned is not None:
        return (SnapshotKind.UNALIGNED,) if header.is_unaligned else (SnapshotKind.ALIGNED,)
    return SnapshotKind.ALIGNED, SnapshotKind.UNALIGNED


def _is_consistent(kinds: Sequence[SnapshotKind], guarantee: Guarantee | None) -> bool | None:
    """Return whether queries can read the state, or None if this is not known."""
    if SnapshotKind.UNALIGNED in kinds:
        return False if len(kinds) == 1 or guarantee is Guarantee.AT_LEAST_ONCE else None
    return None if guarantee is None else guarantee is Guarantee.EXACTLY_ONCE


def _refusal(header: CheckpointHeader) -> str | None:
    if header.status is CheckpointStatus.FAILED:
        return "It failed: nothing can be restored from it."
    if header.status is CheckpointStatus.IN_PROGRESS:
        return "It is not complete: nothing can be restored from it yet."
    if header.is_discarded:
        return "It was discarded after newer checkpoints completed: restore the newest one."
    return None


def _use(use: Use, row: Mapping[SnapshotKind, Support], kinds: Sequence[SnapshotKind]) -> RestoreUseOut:
    answers = {row[kind] for kind in kinds}
    if len(answers) > 1:
        each = ", ".join(f"{row[kind].value} for a {kind.value}" for kind in kinds).replace(" a aligned", " an aligned")
        note = each.replace(" a unaligned", " an unaligned")
        return RestoreUseOut(use=use.value, support=None, note=note)
    (answer,) = answers
    own = _NOTES.get((use, kinds[0])) if len(kinds) == 1 else None
    if own is None and use is Use.ARBITRARY_UPGRADE and answer is Support.YES:
        own = _STATE_THAT_IS_GONE
    return RestoreUseOut(use=use.value, support=answer.value, note=own)


def _in_flight(details: Sequence[VertexDetail], topology: Topology | None) -> list[InFlightOut]:
    in_flight = []
    for detail in details:
        held = sum(n for n in detail.persisted_bytes if n is not None)
        vertex = None if topology is None else topology.vertex(detail.vertex_id)
        if held:
            name = detail.vertex_id if vertex is None else vertex.name
            in_flight.append(InFlightOut(vertex_id=detail.vertex_id, vertex=name, persisted_bytes=held))
    return in_flight


def _name_of(kinds: Sequence[SnapshotKind], guarantee: Guarantee | None) -> str:
    # An at-least-once checkpoint has no in-flight data, so it is restored as an aligned one is. It is not aligned.
    if guarantee is Guarantee.AT_LEAST_ONCE and tuple(kinds) == (SnapshotKind.ALIGNED,):
        return f"{AT_LEAST_ONCE} checkpoint"
    return " or ".join(kind.value for kind in kinds)


def _sentence(what: str, uses: Sequence[RestoreUseOut], in_flight: Sequence[InFlightOut]) -> str:
    article = "an" if what[0] in "au" else "a"
    answers = {u.use: u.support for u in uses}
    rescales, changes = answers[Use.RESCALING.value], answers[Use.ARBITRARY_UPGRADE.value]
    words = [f"It is {article} {what}: the job can continue from it"]
    words.append("at another parallelism" if rescales == "yes" else "at the same parallelism only")
    if changes == "yes":
        words.append("and with another graph.")
    elif changes is None:
        words.append("; whether its graph may change is not known.")
    else:
        names = ", ".join(f.vertex for f in in_flight[:3]) + (" and others" if len(in_flight) > 3 else "")
        words.append("but not with another graph: it has in-flight data" + (f" at {names}." if names else "."))
    return " ".join(words).replace(" ;", ";")
