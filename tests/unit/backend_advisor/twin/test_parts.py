"""What checkpoints say of the store and of the state: the noise of uploads, and how fast state grows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from backend.advisor.twin.hung_writes import hung_writes
from backend.advisor.twin.model import Assumption, StoreModel
from backend.advisor.twin.parts import Recorded, growth_bytes_per_s, parts_of, state_assumption, store_of
from backend.analysis.phases import checkpoint_phases
from tests.support.handwritten_jobs import ALIGNED, LAST, chain, completed, detail
from tests.support.twin_models import vertex

JOB = chain(LAST, parallelism=4)
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
            "it grew by 100.0 MB a day between the checkpoints, too little to double it within 30 days; each full"
            " checkpoint and the time to restore depend on it"
        ),
    )


def test_the_size_of_state_without_growth_is_named():
    said = state_assumption([vertex("join", 2, state_bytes=(1.0 * GB, 1.0 * GB))])

    assert said is not None
    assert (said.subject, said.taken) == ("state", "as large as now, 2.0 GB in all")
    assert said.reason.startswith("no clear growth")
    assert state_assumption([vertex("map", 2)]) is None
