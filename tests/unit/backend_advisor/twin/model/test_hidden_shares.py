"""Guesses of shares behind full subtasks, of which only the sum of the queues is known."""

from __future__ import annotations

import numpy as np
import pytest

from backend.advisor.twin.model.hidden_shares import GUESS_COUNT, by_rank, chosen, guesses

MS_8 = np.full(16, 8000.0)


def drawn_job(seed: int, *, seconds: float = 80.0) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the shares of 16 subtasks by 4000 keys, what each has read, and what is queued for all of them.

    Each subtask reads 125 records a second if there are any, and the senders have buffers for 1000 records each.
    """
    rng = np.random.default_rng(seed)
    shares = rng.multinomial(4000, [1 / 16] * 16) / 4000
    sent = 125.0 * 16 * seconds + 8_000.0
    read = np.minimum(shares * sent, 125.0 * seconds)
    return shares, read, float(sent - read.sum())


@pytest.mark.parametrize("seed", range(5))
def test_the_fullest_subtask_of_a_wide_job_is_nearly_as_full_as_it_is_said_to_be(seed: int):
    shares, read, queued = drawn_job(seed)
    found = guesses(read, read >= read.max(), queued, room=5000.0, service=MS_8)

    most = sorted(float(g.max()) for g in found)
    # A division by rank gave it 0.09 and more.
    assert 0.95 * shares.max() < most[GUESS_COUNT // 2] < 1.05 * shares.max()
    assert most == [g.max() for g in found]
    for guess in found:
        assert guess.sum() == pytest.approx(1.0)
        assert (guess * (read.sum() + queued) >= read - 1e-6).all()


def test_all_of_the_queue_is_that_of_the_only_full_subtask():
    read = np.array([900.0, 800.0, 1000.0, 700.0])
    found = guesses(read, read == 1000.0, 600.0, room=5000.0, service=MS_8[:4])

    assert all(g == pytest.approx([0.225, 0.2, 0.4, 0.175]) for g in found)


def test_no_subtask_gets_more_than_its_buffers_can_hold():
    read = np.full(4, 1000.0)
    found = guesses(read, read > 0, 1000.0, room=300.0, service=MS_8[:4])

    assert all(((g * 5000 - read) <= 300.0 + 1e-6).all() for g in found)
    assert any(g.max() > 0.2515 for g in found)


def test_simulations_are_spread_evenly_over_the_guesses():
    assert [chosen(7, n, 2) for n in range(2)] == [1, 5]
    assert [chosen(7, n, 1) for n in range(1)] == [3]
    assert [chosen(1, n, 3) for n in range(3)] == [0, 0, 0]


def test_most_of_the_queue_of_a_few_full_subtasks_is_that_of_the_one_that_read_most():
    read = np.array([900.0, 1000.0, 500.0, 950.0])
    even, uneven = by_rank(read, np.array([True, True, False, True]), 110.0)

    assert even * 3460 == pytest.approx([920.0, 1060.0, 500.0, 980.0])
    assert uneven[1] > even[1]
    assert uneven[2] == even[2]


def test_the_first_of_two_guesses_stands_for_both():
    assert [chosen(2, n, 1) for n in range(1)] == [0]
    assert [chosen(2, n, 2) for n in range(2)] == [0, 1]
