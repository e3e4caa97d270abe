"""Models built from what the collector read of jobs of known parameters on a running Flink (1.20 and 2.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.hidden_shares import GUESS_COUNT
from backend.advisor.twin.model.model import JobModel
from backend.domain.engines import flink
from backend.domain.pressure import VertexPressure
from tests.simulators.twin_recordings import FOLDER, read

VERSIONS = ("1.20.5", "2.3.0")


def model_of(name: str, version: str) -> JobModel:
    evidence = read(FOLDER / f"{name}-{version}.json.gz").evidence
    return build(evidence, engine=flink(version), version=version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_the_service_times_of_a_straggler_are_those_of_the_job(mode: str, version: str):
    last = model_of(f"straggler-last-{mode}", version).vertices[-1]

    assert last.service_us[0] == pytest.approx(8000.0, rel=0.05)
    # The others are rarely busy, and their small ratios are rounded.
    assert last.service_us[1:] == pytest.approx([2000.0] * 3, rel=0.25)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_the_shares_are_those_of_the_keys_although_full_subtasks_read_less(mode: str, version: str):
    shares = model_of(f"two-stages-{mode}", version).vertices[-1].input_shares

    assert sorted(shares) == pytest.approx([0.2385, 0.25, 0.253, 0.2585], abs=0.003)


@pytest.mark.parametrize("mode", ["aligned", "timeout"])
def test_the_waits_of_barriers_show_the_shares_behind_a_single_exchange(mode: str):
    shares = model_of(f"one-stage-{mode}", "1.20.5").vertices[-1].input_shares

    assert shares == pytest.approx([0.2602, 0.2513, 0.2383, 0.2502], abs=0.001)


@pytest.mark.parametrize("mode", ["aligned", "timeout", "unaligned"])
def test_a_stage_whose_queues_differ_has_even_shares(mode: str):
    assert model_of(f"slow-host-{mode}", "1.20.5").vertices[1].input_shares == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_many_full_subtasks_have_several_likely_shares_and_no_small_buffers(version: str):
    model = model_of("wide-timeout", version)
    last = model.vertices[-1]

    assert len(last.share_guesses) == GUESS_COUNT
    # A division of the queues by rank made the fullest of 16 subtasks 1.4 times as full as the mean.
    assert 16 * max(last.share_guesses[GUESS_COUNT // 2]) < 1.2
    # Its channels have little data in a buffer, because each checkpoint ends a buffer.
    assert model.network.segment_bytes == 32_768


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["aligned", "timeout", "unaligned"])
def test_what_queues_take_and_give_back_is_not_emitted(mode: str, version: str):
    # The job emits each record that it reads. The queues of these runs change, and hosts have counts of other ages.
    assert model_of(f"wide-{mode}", version).vertices[1].output_ratio == pytest.approx(1.0, abs=0.001)
    assert model_of("slow-host-timeout", "1.20.5").vertices[1].output_ratio == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("name", ["one-stage", "slow-store", "over-capacity", "no-straggler"])
def test_what_is_queued_belongs_to_the_subtask_that_is_never_idle(name: str):
    # Others were busy for 97 to 99 % of the time. The keys give the first one 1.038 to 1.040 of an even share.
    shares = model_of(f"{name}-unaligned", "1.20.5").vertices[-1].input_shares

    assert 4 * shares[0] == pytest.approx(1.039, abs=0.008)


def test_a_last_reading_without_queues_does_not_take_them_from_the_subtask_that_is_never_idle():
    evidence = read(FOLDER / "one-stage-unaligned-1.20.5.json.gz").evidence
    last = {r.vertex_id: r for r in evidence.pressure}
    rows = [_without_queues(r) if last[r.vertex_id] is r else r for r in evidence.pressure]

    model = build(replace(evidence, pressure=tuple(rows)), engine=flink("1.20.5"), version="1.20.5")

    assert 4 * model.vertices[-1].input_shares[0] == pytest.approx(1.039, abs=0.008)


def test_queues_of_which_no_reading_has_a_whole_sum_are_taken_for_steady():
    """Each last reading lacks the queues of another subtask, in turn."""
    evidence = read(FOLDER / "one-stage-unaligned-1.20.5.json.gz").evidence
    rows = [_without_queues(r, i // len(evidence.topology.vertices) % 4) for i, r in enumerate(evidence.pressure)]

    model = build(replace(evidence, pressure=tuple(rows)), engine=flink("1.20.5"), version="1.20.5")

    assert 4 * model.vertices[-1].input_shares[0] == pytest.approx(1.039, abs=0.008)


def _without_queues(row: VertexPressure, subtask: int | None = None) -> VertexPressure:
    """Return the reading without the queues of a subtask, or of all."""

    def rest(values: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(None if subtask in (None, i) else v for i, v in enumerate(values))

    return replace(row, queued_out_bytes=rest(row.queued_out_bytes), queued_in_bytes=rest(row.queued_in_bytes))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["aligned", "timeout", "unaligned"])
def test_the_store_has_the_speed_that_all_uploads_share(mode: str, version: str):
    store = model_of(f"slow-store-{mode}", version).store

    assert store.shared_bytes_per_ms == pytest.approx(8000.0, rel=0.05)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_join_has_the_rate_of_the_source_that_is_not_held_back(version: str):
    sources = [v.source for v in model_of("join-aligned", version).vertices if v.source is not None]

    assert [s.rate_per_s for s in sources] == [None, pytest.approx(400.0, rel=0.05)]


def test_bursts_of_a_source_show_in_its_checkpoints():
    source = model_of("bursts-aligned", "1.20.5").vertices[0].source

    assert source is not None
    assert source.rate_per_s == pytest.approx(1600.0, rel=0.05)
    assert source.burst_period_ms == pytest.approx(15_000.0, rel=0.05)
    assert source.burst_factor == pytest.approx(2.0, rel=0.05)
    assert source.burst_ratio == pytest.approx(1 / 3, rel=0.05)


def test_old_counts_are_no_bursts():
    source = model_of("below-capacity-unaligned", "1.20.5").vertices[0].source

    assert source is not None
    assert source.rate_per_s == pytest.approx(1200.0, rel=0.01)
    assert source.burst_period_ms is None
