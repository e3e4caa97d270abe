"""The JSON of a curve over the cap on in-flight data: one job with aligned checkpoints, with caps, and unaligned.

A curve depends only on its request, so the request determines the id. The same request finds the kept result.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from pydantic import Field

from backend.contracts.model import Model, StrictInt, StrictNumber
from backend.contracts.simulations import SEED_MAX, QueuedWorkOut, SettingKey, SettingValue, Word

CAPS_MAX: Final = 12
"""The largest number of caps of one curve."""
CAP_MAX_BYTES: Final = 2**40

CapBytes = Annotated[StrictInt, Field(ge=0, le=CAP_MAX_BYTES)]


class CapCurveIn(Model):
    """A curve to simulate. ``/simulation-catalog`` lists the shapes, the settings and the limits."""

    shape: Annotated[Word, Field(examples=["backpressured"])]
    caps_bytes: Annotated[list[CapBytes], Field(min_length=1, max_length=CAPS_MAX)] | None = None
    """The caps, each of one subtask. Null chooses them from what the unaligned checkpoints of the job persist."""
    settings: Annotated[dict[SettingKey, SettingValue], Field(max_length=32)] = {}
    """Settings of the job by key. Absent keys keep the value of the shape."""
    parallelism: Annotated[StrictInt, Field(ge=1, le=32768)] | None = None
    """The parallelism of every vertex. The default is that of the shape."""
    duration_s: Annotated[StrictNumber, Field(gt=0, le=1e9)] = 60.0
    """The virtual time of each run, in seconds."""
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] = 7


def cap_curve_id_of(request: CapCurveIn) -> str:
    """Return the id of a request's curve. Requests with the same content have the same id."""
    plain = request.model_copy(
        update={
            "settings": dict(sorted(request.settings.items())),
            "caps_bytes": None if request.caps_bytes is None else sorted(set(request.caps_bytes)),
        }
    )
    return "c" + hashlib.blake2b(plain.model_dump_json().encode(), digest_size=8).hexdigest()


class CapPointOut(Model):
    """One run of a curve. All its values are measured, on virtual time."""

    protocol: str
    """``aligned``, ``capped`` or ``unaligned``, as in the catalog."""
    cap_bytes: int | None
    """The cap of each subtask; null for ``aligned`` and ``unaligned``, which have none."""
    completed_count: int
    failed_count: int
    duration_p50_ms: float | None
    """The median end-to-end duration of completed checkpoints; null if none completed."""
    duration_max_ms: int | None
    persisted_p50_bytes: float | None
    """The median in-flight data that a completed checkpoint persisted; null if none completed."""
    persisted_max_bytes: int | None
    subtask_persisted_max_bytes: int | None
    """The most in-flight data that one subtask persisted in a completed checkpoint. The cap bounds it."""


class CapCurveOut(QueuedWorkOut):
    """A curve: its request, its state and, if it is completed, its points."""

    request: CapCurveIn
    points: list[CapPointOut] = []
    """Aligned, then the caps in ascending order, then unaligned. Empty until the curve is completed."""
