"""The uses that each kind of snapshot supports (GR-4): Flink's table, and the part that this runtime implements."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SnapshotKind(StrEnum):
    """The kinds of snapshots, which are the columns of the table."""

    CANONICAL_SAVEPOINT = "canonical savepoint"
    NATIVE_SAVEPOINT = "native savepoint"
    ALIGNED = "aligned checkpoint"
    UNALIGNED = "unaligned checkpoint"


class Support(StrEnum):
    """Whether a kind of snapshot supports a use. AT_OWN_RISK: the use is allowed, but nothing checks that it works."""

    YES = "yes"
    NO = "no"
    AT_OWN_RISK = "at own risk"


class Use(StrEnum):
    """The uses of a snapshot, which are the rows of the table."""

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
"""Flink's table (GR-4): for each use, whether each kind of snapshot supports it."""

OF_THIS_RUNTIME: Mapping[Use, Mapping[SnapshotKind, Support]] = {
    Use.ARBITRARY_UPGRADE: CAPABILITIES[Use.ARBITRARY_UPGRADE],
    Use.SAME_TOPOLOGY_UPGRADE: {**CAPABILITIES[Use.SAME_TOPOLOGY_UPGRADE], SnapshotKind.UNALIGNED: _RISK},
    Use.RESCALING: CAPABILITIES[Use.RESCALING],
}
"""The rows of the table that the reference runtime implements, which has only one state backend and one version.

One cell differs from Flink: upgrading a job with the same topology from an unaligned checkpoint is at own risk here
(GR-2). ``JobEngine.at_own_risk`` reports such an upgrade.
"""
