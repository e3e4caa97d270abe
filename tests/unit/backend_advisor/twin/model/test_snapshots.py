"""What checkpoints say of the store and of the state: its speed, the noise of uploads, and how fast state grows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from backend.advisor.twin.model.hung_writes import hung_writes
from backend.advisor.twin.model.model import Assumption, StoreModel
from backend.advisor.twin.model.snapshots import (
    Recorded,
    growth_bytes_per_s,
    own_async_ms,
    parts_of,
    state_assumption,
    store_of,
)
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.numbers.arrays import array_of
from tests.support.handwritten_jobs import ALIGNED, LAST, SOURCE, UNALIGNED, chain, completed, detail
from tests.support.long_pasts import LongPast
from tests.support.twin_models import vertex

JOB = chain(SOURCE, LAST, parallelism=4)
SIZE = 20_000_000
BYTES_PER_MS = 50_000.0
DAY_S = 86_400.0
GB = 1_000_000_000


def recorded(sizes: Sequence[int], took_ms: Callable[[int], Sequence[int]], every_s: float = 60.0) -> list[Recorded]:
    """Return one checkpoint for each size, whose four uploads take ``took_ms`` of the size."""
    found = []
    for number, size in enumerate(sizes, start=1):
        made = completed(number, detail(LAST, first=[1] * 4, async_=took_ms(size), size_bytes=size), every_s=every_s)
        found.append(Recorded(made, checkpoint_phases(made, ALIGNED)))
    return found


def store_from(rows: Sequence[Recorded]) -> tuple[StoreModel, bool]:
    return store_of(rows, hung_writes(rows, JOB, ALIGNED), JOB, ALIGNED)


@pytest.mark.parametrize("noise", [0.1, 0.25, 0.5])
def test_the_noise_of_the_store_is_that_of_its_uploads(noise: float):
    draws = random.Random(f"store/{noise}")
    rows = recorded(
        [SIZE] * 60, lambda size: [round(size / BYTES_PER_MS * max(0.1, draws.gauss(1.0, noise))) for _ in range(4)]
    )
    store, is_measured = store_from(rows)

    assert is_measured
    assert store.bytes_per_ms == pytest.approx(BYTES_PER_MS, rel=0.1)
    assert store.noise_ratio == pytest.approx(noise, rel=0.15)


def test_a_steady_store_has_no_noise_also_if_its_uploads_differ_in_size():
    sizes = [SIZE, 2 * SIZE, 4 * SIZE] * 5
    store, _ = store_from(recorded(sizes, lambda size: [round(size / BYTES_PER_MS)] * 4))

    assert store.bytes_per_ms == pytest.approx(BYTES_PER_MS)
    assert store.noise_ratio == pytest.approx(0.0, abs=1e-9)


def test_uploads_that_are_too_small_to_measure_the_store_say_nothing_of_its_noise():
    store, is_measured = store_from(recorded([1000] * 5, lambda _: [3, 9, 1, 30]))

    assert (is_measured, store.noise_ratio) == (False, 0.0)


LATENCY_MS, SLOW_BYTES_PER_MS = 20, 1_000


def small_uploads(
    count: int, *, per_byte_ms: float = 1 / SLOW_BYTES_PER_MS, noise_ms: Callable[[], int] = lambda: 0, calls: int = 2
) -> list[Recorded]:
    """Return checkpoints in which one vertex writes 64 bytes a subtask, and later another one 30 kB a subtask.

    The store writes one upload after the other. ``noise_ms`` is drawn for the later vertex, and for both if ``calls``
    is 2.
    """
    found = []
    for n in range(1, count + 1):
        more = noise_ms()
        ends = [LATENCY_MS + more + round(i * 30_000 * per_byte_ms) for i in range(1, 5)]
        first_ms = LATENCY_MS + (noise_ms() if calls == 2 else 0)
        first = detail(SOURCE, first=[1] * 4, async_=[first_ms] * 4, size_bytes=64)
        made = completed(n, first, detail(LAST, first=[5_000] * 4, async_=ends, size_bytes=30_000), every_s=60)
        found.append(Recorded(made, checkpoint_phases(made, ALIGNED)))
    return found


def test_small_uploads_show_the_speed_of_a_slow_store_by_what_they_take_beyond_its_latency():
    store, is_measured = store_from(small_uploads(10))

    assert store.small_bytes_per_ms == pytest.approx(SLOW_BYTES_PER_MS, rel=0.02)
    # No tier simulates it.
    assert not is_measured
    assert store.shared_bytes_per_ms is None


def test_small_uploads_that_hang_do_not_change_the_speed():
    hangs = iter([True, False] * 10)
    rows = small_uploads(20, noise_ms=lambda: 700 if next(hangs) else 0, calls=1)
    hung = hung_writes(rows, JOB, ALIGNED)

    assert store_of(rows, hung, JOB, ALIGNED)[0].small_bytes_per_ms == pytest.approx(SLOW_BYTES_PER_MS, rel=0.02)
    assert store_of(rows, _none_hung(rows), JOB, ALIGNED)[0].small_bytes_per_ms is None


@pytest.mark.parametrize("wrong", ["few", "latency varies", "bytes take no time"])
def test_small_uploads_show_no_speed_if_bytes_do_not_clearly_take_time(wrong: str):
    draws = random.Random("latency")
    rows = {
        "few": lambda: small_uploads(3),
        "latency varies": lambda: small_uploads(20, noise_ms=lambda: draws.randrange(0, 200)),
        "bytes take no time": lambda: small_uploads(10, per_byte_ms=0.0),
    }[wrong]()

    assert store_from(rows)[0].small_bytes_per_ms is None


def test_uploads_of_different_sizes_show_the_speed_without_small_ones_and_beside_outliers():
    sizes = [100_000, 130_000, 160_000, 200_000] * 5
    late = iter([0, 0, 0, 0, 300] * 4)

    def took(size: int) -> list[int]:
        more = next(late)
        return [150 + more + round(n * size / SLOW_BYTES_PER_MS) for n in range(1, 5)]

    store, _ = store_from(recorded(sizes, took))

    assert store.small_bytes_per_ms == pytest.approx(SLOW_BYTES_PER_MS, rel=0.05)


def test_uploads_that_begin_one_after_another_last_long_whatever_they_write():
    """Bytes take no time, but each upload begins 19 ms after the one before, because its barrier is later."""
    rows = []
    for n in range(1, 21):
        first = detail(SOURCE, first=[1] * 4, async_=LATENCY_MS, size_bytes=64)
        last = detail(LAST, first=[5_000, 5_019, 5_038, 5_057], async_=LATENCY_MS, size_bytes=30_000)
        made = completed(n, first, last, every_s=60)
        rows.append(Recorded(made, checkpoint_phases(made, ALIGNED)))

    assert store_from(rows)[0].small_bytes_per_ms is None


def test_uploads_that_hang_are_neither_noise_nor_speed_nor_a_fixed_part():
    """Every other upload hangs for some seconds, which the hangs of the store have. The others are steady."""
    took = iter([round(SIZE / BYTES_PER_MS) + (n % 2) * (5_000 + 100 * n) for n in range(20)])
    rows = recorded([SIZE] * 20, lambda _: [next(took)] * 4)
    store, _ = store_from(rows)
    parts = parts_of(rows, hung_writes(rows, JOB, ALIGNED), LAST, store, JOB, ALIGNED)

    assert store.bytes_per_ms == pytest.approx(BYTES_PER_MS)
    assert store.noise_ratio == pytest.approx(0.0, abs=1e-9)
    assert store.shared_bytes_per_ms == pytest.approx(4 * BYTES_PER_MS)
    assert max(parts.async_fixed_ms) == pytest.approx(0.0, abs=1.0)


def test_the_fixed_part_of_a_write_is_that_of_those_that_do_not_hang_also_if_most_hang():
    took = iter([20, 5_000, 7_000] * 7)
    rows = recorded([1_000] * 21, lambda _: [next(took)] * 4)
    store, _ = store_from(rows)
    parts = parts_of(rows, hung_writes(rows, JOB, ALIGNED), LAST, store, JOB, ALIGNED)

    assert parts.async_fixed_ms == pytest.approx([20.0] * 4, abs=1.0)


def growth(sizes: Sequence[int]) -> float:
    return growth_bytes_per_s(recorded(sizes, lambda _: [10] * 4), LAST)


def test_state_that_grows_has_the_slope_of_its_checkpoints_over_all_subtasks():
    draws = random.Random("growth")
    grown = [GB + n * 60_000_000 + round(draws.gauss(0, 5e6)) for n in range(12)]

    assert growth(grown) == pytest.approx(4 * 1_000_000, rel=0.05)


@pytest.mark.parametrize(
    "sizes",
    [
        [GB] * 12,
        [GB - n * 10_000_000 for n in range(12)],
        [GB + n * 1_000_000 for n in range(12)],
        [GB + 200_000_000 * (n % 4) for n in range(12)],
        [GB + n * 60_000_000 for n in range(4)],
    ],
    ids=["steady", "shrinks", "hardly grows", "goes up and down", "too few checkpoints"],
)
def test_state_without_clear_growth_has_none(sizes: list[int]):
    assert growth(sizes) == 0.0


def test_growth_that_doubles_the_state_within_a_month_is_said_with_its_day_and_its_time():
    growing = vertex("window", 2, state_bytes=(3.0 * GB, 3.0 * GB), state_growth_bytes_per_s=2 * GB / DAY_S)
    still = vertex("join", 2, state_bytes=(1.0 * GB, 1.0 * GB))
    said = state_assumption([still, growing])

    assert said is not None
    assert said.subject == "state of window"
    assert said.taken == "as large as now, 8.0 GB in all"
    assert "grew by 2.0 GB a day" in said.reason
    assert "doubles in 4 days, and with it each full checkpoint" in said.reason
    hourly = vertex("window", 2, state_bytes=(3.0 * GB, 5.0 * GB), state_growth_bytes_per_s=2 * GB / 3600)
    quick = state_assumption([hourly])
    assert quick is not None
    assert "doubles in 4 hours" in quick.reason
    slow = vertex("window", 2, state_bytes=(3.0 * GB, 3.0 * GB), state_growth_bytes_per_s=GB / 10 / DAY_S)
    assert state_assumption([slow, still]) == Assumption(
        subject="state of window",
        taken="as large as now, 8.0 GB in all",
        reason=(
            "it grew by 100 MB a day between the checkpoints, too little to double it within 30 days; each full"
            " checkpoint and the time to restore depend on it"
        ),
    )


def test_the_size_of_state_without_growth_is_named():
    said = state_assumption([vertex("join", 2, state_bytes=(1.0 * GB, 1.0 * GB))])

    assert said is not None
    assert (said.subject, said.taken) == ("state", "as large as now, 2.0 GB in all")
    assert said.reason.startswith("no clear growth")
    assert state_assumption([vertex("map", 2)]) is None


def _drawn(config):
    """Return checkpoints of a drawn job, some of which expired at some subtasks."""
    drawn = LongPast(vertices=3, parallelism=7, checkpoints=80, seed=5)
    rows = [c for c in drawn.rows() if c.header.checkpoint_id % 6 == 0]
    return drawn, [Recorded(c, checkpoint_phases(c, config)) for c in rows]


def _none_hung(recorded):
    return [{v: np.zeros(phases.sync_duration_ms.size) for v, phases in r.phases.items()} for r in recorded]


@pytest.mark.parametrize("config", [ALIGNED, UNALIGNED])
def test_the_parts_of_a_snapshot_equal_those_that_are_computed_subtask_by_subtask(config):
    drawn, recorded = _drawn(config)
    topology, vertex_id = drawn.topology(), drawn.names[1]
    hung = _none_hung(recorded)
    store, _ = store_of(recorded, hung, topology, config)
    found = parts_of(recorded, hung, vertex_id, store, topology, config)

    sync = [[r.phases[vertex_id].sync_duration_ms[i] for r in recorded] for i in range(7)]
    assert found.sync_ms == tuple(float(np.mean([v for v in row if v == v] or [0.0])) for row in sync)
    details = [r.checkpoint.detail(vertex_id) for r in recorded]
    written = [[array_of(d.checkpointed_size_bytes)[i] for d in details if d is not None] for i in range(7)]
    assert found.upload_bytes == tuple(float(np.median([v for v in row if v == v] or [0.0])) for row in written)


def test_the_own_async_part_begins_at_the_last_arrival_before_its_end():
    drawn, recorded = _drawn(UNALIGNED)
    vertex_id = drawn.names[-1]
    for r in recorded:
        phases = r.phases[vertex_id]
        arrivals = np.concatenate([p.travel_ms for p in r.phases.values()])
        ends = phases.async_end_ms + 5.0
        released = [max([0.0, *(a for a in arrivals if a <= end)]) for end in ends]
        expected = np.minimum(phases.own_async_ms, np.maximum(0.0, phases.async_end_ms - np.array(released)))
        assert np.array_equal(own_async_ms(r, vertex_id, drawn.topology(), UNALIGNED), expected, equal_nan=True)


@pytest.mark.parametrize("config", [ALIGNED, UNALIGNED])
def test_the_shared_speed_counts_time_with_several_uploads_once(config):
    drawn, recorded = _drawn(config)
    topology = drawn.topology()
    speeds = []
    for r in recorded:
        spans, total = [], 0.0
        for d in r.checkpoint.details:
            ends, own = r.phases[d.vertex_id].async_end_ms, own_async_ms(r, d.vertex_id, topology, config)
            for end, took, size in zip(ends, own, array_of(d.checkpointed_size_bytes), strict=True):
                if took > 0 and size > 0:
                    spans.append((float(end - took), float(end)))
                    total += float(size)
        running = last = 0.0
        for begin, end in sorted(spans):
            running += max(0.0, end - max(begin, last)) if last else end - begin
            last = max(last, end)
        if total >= 1_000_000 and running >= 20:
            speeds.append(total / running)

    store, is_measured = store_of(recorded, _none_hung(recorded), topology, config)

    assert is_measured
    assert store.shared_bytes_per_ms == float(np.median(speeds))


def test_a_barrier_that_is_reported_a_little_after_the_end_that_it_caused_counts_as_before_it():
    checkpoint = completed(1, detail(LAST, first=[0, 105], async_=[100, 1]))
    r = Recorded(checkpoint, checkpoint_phases(checkpoint, UNALIGNED))
    assert own_async_ms(r, LAST, chain(LAST, parallelism=2), UNALIGNED).tolist() == [0.0, 1.0]
