"""Tests of how recordings of a running Flink are reduced to medians and written to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulators import fidelity_recordings
from tests.simulators.fidelity import RECORDED, recorded

_RECORDINGS = Path(__file__).parents[2] / "contract" / "recordings"


def test_a_recording_is_reduced_to_the_medians_of_what_it_measured() -> None:
    # B2 (aligned) and C2 (unaligned) ran the same job. The documented figures of its baseline are 4958 ms, 981
    # records/s and 3.3 MB.
    scenario, aligned = fidelity_recordings.reduced(_RECORDINGS / "B2")
    _, unaligned = fidelity_recordings.reduced(_RECORDINGS / "C2")
    assert (scenario.name, aligned.flink, scenario.arguments["slow-us"]) == ("B2", "1.20.5", "4000")
    assert aligned.medians.end_to_end_ms == pytest.approx(4958, rel=0.1)
    assert aligned.medians.start_delay_ms == pytest.approx(4880, rel=0.1)
    assert aligned.medians.records_per_s == pytest.approx(981, rel=0.02)
    assert sum(aligned.queued_bytes) == pytest.approx(3.1e6, rel=0.1)
    assert unaligned.medians.persisted_bytes == pytest.approx(3.31e6, rel=0.1)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    kept = recorded()
    fidelity_recordings.write(kept, tmp_path / "again.json")
    assert recorded(tmp_path / "again.json") == kept
    assert (tmp_path / "again.json").read_text() == RECORDED.read_text()
