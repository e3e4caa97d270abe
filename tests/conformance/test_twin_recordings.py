"""Goal: the recordings of a real Flink that the twin is proven on are complete, small and free of the machine's paths.

``tests/simulators/twin_recordings.py`` reads them, and ``benchmarks/fidelity/record_twin.py`` makes them.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.domain.advice import Mode
from tests.simulators import twin_recordings
from tests.simulators.fidelity import MEASURES
from tests.simulators.twin_recordings import FOLDER, Pair, Recording, pairs, what_if
from tests.simulators.twin_runs import RUNS, Half, half_of

_SIZE_MAX = 60_000
_CHECKPOINTS_MIN = 3


@cache
def _recordings() -> dict[tuple[str, str], Recording]:
    return twin_recordings.read_all()


@cache
def _pairs() -> tuple[Pair, ...]:
    return tuple(pairs(_recordings().values()))


def _first(name: str) -> Recording:
    return next(r for (run, _), r in _recordings().items() if run == name)


def test_each_recording_is_of_a_listed_run_and_has_all_that_a_prediction_is_compared_with() -> None:
    assert _recordings()
    for (name, _), recording in _recordings().items():
        run = RUNS[name]
        assert recording.arguments == run.arguments, name
        assert run.cluster.items() <= recording.cluster.items(), name
        assert int(recording.cluster["lab.taskmanagers"]) == run.task_managers, name
        assert len(recording.counted()) >= _CHECKPOINTS_MIN, name
        assert all(getattr(recording.medians, measure) is not None for measure in MEASURES), name
        assert all(c.details for c in recording.counted()), name


def test_no_file_is_large_or_names_a_path_of_the_machine() -> None:
    for path in FOLDER.glob("*.json.gz"):
        assert path.stat().st_size <= _SIZE_MAX, path.name
        assert b"file:/" not in (content := gzip.decompress(path.read_bytes())), path.name
        assert b"/tmp" not in content, path.name


def test_a_recording_that_is_written_and_read_is_the_same(tmp_path: Path) -> None:
    recording = _first("two-stages-aligned")
    path = twin_recordings.write(recording, tmp_path)
    assert twin_recordings.read(path) == recording


def test_a_long_run_keeps_evenly_spread_readings_with_the_first_and_the_last(tmp_path: Path) -> None:
    recording = _first("two-stages-aligned")
    many = tuple(recording.evidence.pressure) * 4
    long = replace(recording, evidence=replace(recording.evidence, pressure=many))
    kept = twin_recordings.read(twin_recordings.write(long, tmp_path)).evidence.pressure
    for vertex in recording.evidence.topology.vertices:
        own = [r for r in kept if r.vertex_id == vertex.id]
        all_own = sorted(r.observed_at for r in many if r.vertex_id == vertex.id)
        assert len(own) == twin_recordings.READINGS_MAX
        assert (own[0].observed_at, own[-1].observed_at) == (all_own[0], all_own[-1])


def test_runs_that_differ_in_one_thing_are_pairs_in_both_directions() -> None:
    found = {(p.base.name, p.changed.name): p.what_if for p in _pairs()}
    assert found["two-stages-aligned", "two-stages-unaligned"] == WhatIf(mode=Mode.UNALIGNED)
    assert found["two-stages-unaligned", "two-stages-aligned"] == WhatIf(mode=Mode.ALIGNED)
    timed = WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=1000)
    assert found["two-stages-unaligned", "two-stages-timeout"] == timed
    assert ("two-stages-aligned", "four-stages-aligned") not in found


def test_both_runs_of_a_pair_are_in_the_same_half() -> None:
    found = {(half_of(p.base.name, p.base.flink), half_of(p.changed.name, p.base.flink)) for p in _pairs()}
    # A pair belongs to the part of its base. An unseen base may be predicted into a known run, and never the reverse.
    assert {(h, h) for h in Half} <= found
    assert {base for base, changed in found if base is not changed} <= {Half.UNSEEN}


@pytest.mark.parametrize(
    ("argument", "before", "after", "expected"),
    [
        ("rate", "1200", "1800", WhatIf(load_factor=1.5)),
        ("hot-key-ratio", "0.3", None, WhatIf(without_skew=True)),
        ("slow-host-factor", "3", None, WhatIf(without_slow_host=True)),
        ("hot-key-ratio", None, "0.3", None),
        ("rate", None, "1800", None),
        ("cost-us", "2000", "1000", None),
    ],
)
def test_a_difference_of_two_runs_as_a_what_if(
    argument: str, before: str | None, after: str | None, expected: WhatIf | None
) -> None:
    run = _first("two-stages-aligned")

    def of(value: str | None) -> Recording:
        plain = {name: v for name, v in run.arguments.items() if name != argument}
        return replace(run, arguments=plain if value is None else {**plain, argument: value})

    assert what_if(of(before), of(after)) == expected
