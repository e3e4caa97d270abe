"""The uses that each kind of snapshot supports (GR-4): Flink's matrix, and the part that this runtime implements."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SnapshotKind(StrEnum):
    """The columns of the matrix."""

    CANONICAL_SAVEPOINT = "canonical savepoint"
    NATIVE_SAVEPOINT = "native savepoint"
    ALIGNED = "aligned checkpoint"
    UNALIGNED = "unaligned checkpoint"


class Support(StrEnum):
    """One cell of the matrix. AT_OWN_RISK: the use is not refused, but nothing checks that it works."""

    YES = "yes"
    NO = "no"
    AT_OWN_RISK = "at own risk"


class Use(StrEnum):
    """The rows of the matrix."""

    BACKEND_CHANGE = "state backend change"
    SELF_CONTAINED = "self-contained and relocatable"
    SCHEMA_EVOLUTION = "schema evolution"
    ARBITRARY_UPGRADE = "arbitrary job upgrade"
    SAME_TOPOLOGY_UPGRADE = "job upgrade of the same topology"
    MINOR_VERSION = "minor version upgrade"
    PATCH_VERSION = "patch version upgrade"
    RESCALING = "rescaling"


_YES, _NO, _RISK = Support.YES, Support.NO, Support.AT_OWN_RISK


def _row(*cells: Support) -> Mapping[SnapshotKind, Support]:
    return dict(zip(SnapshotKind, cells, strict=True))


CAPABILITIES: Mapping[Use, Mapping[SnapshotKind, Support]] = {
    Use.BACKEND_CHANGE: _row(_YES, _NO, _NO, _NO),
    Use.SELF_CONTAINED: _row(_YES, _YES, _NO, _NO),
    Use.SCHEMA_EVOLUTION: _row(_YES, _RISK, _RISK, _RISK),
    Use.ARBITRARY_UPGRADE: _row(_YES, _YES, _YES, _NO),
    Use.SAME_TOPOLOGY_UPGRADE: _row(_YES, _YES, _YES, _NO),
    Use.MINOR_VERSION: _row(_YES, _YES, _YES, _NO),
    Use.PATCH_VERSION: _row(_YES, _YES, _YES, _YES),
    Use.RESCALING: _row(_YES, _YES, _YES, _YES),
}
"""Flink's matrix (GR-4)."""

OF_THIS_RUNTIME: Mapping[Use, Mapping[SnapshotKind, Support]] = {
    Use.ARBITRARY_UPGRADE: CAPABILITIES[Use.ARBITRARY_UPGRADE],
    Use.SAME_TOPOLOGY_UPGRADE: {**CAPABILITIES[Use.SAME_TOPOLOGY_UPGRADE], SnapshotKind.UNALIGNED: _RISK},
    Use.RESCALING: CAPABILITIES[Use.RESCALING],
}
"""The rows that the reference runtime, with its one backend and one version, implements.

One cell differs: an upgrade of the same topology from an unaligned checkpoint is at own risk here (GR-2).
``JobEngine.at_own_risk`` reports it.
"""
