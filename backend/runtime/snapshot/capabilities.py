"""What a kind of snapshot may be used for (GR-4): Flink's matrix. Pure data, and what this runtime makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SnapshotKind(StrEnum):
    """The columns."""

    CANONICAL_SAVEPOINT = "canonical savepoint"
    NATIVE_SAVEPOINT = "native savepoint"
    ALIGNED = "aligned checkpoint"
    UNALIGNED = "unaligned checkpoint"


class Support(StrEnum):
    """One cell. At own risk: nothing refuses it, and nothing checks that it works."""

    YES = "yes"
    NO = "no"
    AT_OWN_RISK = "at own risk"


class Use(StrEnum):
    """The rows."""

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
"""GR-4."""

OF_THIS_RUNTIME: Mapping[Use, Mapping[SnapshotKind, Support]] = {
    Use.ARBITRARY_UPGRADE: CAPABILITIES[Use.ARBITRARY_UPGRADE],
    Use.SAME_TOPOLOGY_UPGRADE: {**CAPABILITIES[Use.SAME_TOPOLOGY_UPGRADE], SnapshotKind.UNALIGNED: _RISK},
    Use.RESCALING: CAPABILITIES[Use.RESCALING],
}
"""What of it the reference runtime has, with its one backend and one version. It differs in one cell: an upgrade of the
same topology from an unaligned checkpoint is at own risk here (GR-2), and told in ``JobEngine.at_own_risk``."""
