"""Confirmations in the queue: what is read of a stored document, also of one that an earlier version stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.advisor.twin.changes import WhatIf
from backend.services.simulations.catalog import LIMITS
from backend.services.simulations.simulating import Progress, SimulationStoppedError
from backend.services.whatif.confirming import document, model_of, run
from tests.support.made_up_what_ifs import small_model


def stored(callback_ms: Any) -> dict[str, Any]:
    """Return the document of a confirmation as the queue returns it, with this value at the last vertex."""
    found: dict[str, Any] = json.loads(json.dumps(document("jruntime", "rruntime", small_model(), {}, WhatIf())))
    for vertex in found["model"]["vertices"]:
        vertex["callback_ms"] = callback_ms if vertex is found["model"]["vertices"][-1] else None
    return found


@pytest.mark.parametrize(("callback_ms", "by_subtask"), [(None, ()), (300.0, (300.0, 300.0)), ([1.0, 2.0], (1.0, 2.0))])
def test_the_long_callback_of_earlier_versions_is_read(callback_ms, by_subtask):
    first, _, last = model_of(stored(callback_ms)).vertices

    assert (first.callback_ms, last.callback_ms) == ((), by_subtask)


def test_a_stored_model_is_the_one_that_was_queued():
    assert (
        model_of(json.loads(json.dumps(document("jruntime", "rruntime", small_model(), {}, WhatIf())))) == small_model()
    )


def test_a_confirmation_that_an_earlier_version_queued_is_simulated():
    # The run gets as far as the first report of its progress, so its document was readable.
    with pytest.raises(SimulationStoppedError):
        run(stored(None), Progress(is_stopped=True), LIMITS)
