"""Episodes of the replayed verdict: when a cause was first named, how stable, and whether its place stayed slow."""

from __future__ import annotations

from dataclasses import replace

from backend.backtest.jobs import JobResult, result_of
from backend.backtest.verdicts import FOLLOWED_COUNT, VerdictScore
from backend.domain.backtest import Part
from tests.support.handwritten_jobs import LAST, quick
from tests.support.past_jobs import Past, loaded, slow, stored


def _replayed(past: Past):
    return result_of("j", past, {Part.VERDICT}).verdict


def test_a_lasting_cause_is_one_episode_that_says_when_it_was_named_and_that_it_held():
    found = _replayed(Past(stored(slow(1, 24)), loaded(130)))

    (episode,) = found.episodes
    assert (episode.kind, episode.vertex_id) == ("capacity", LAST)
    assert (episode.last_checkpoint_id, episode.said_count) == (24, episode.checkpoint_count)
    assert (episode.followed_count, episode.held_count) == (FOLLOWED_COUNT, FOLLOWED_COUNT)
    assert found.score.stable_ratio == found.score.held_ratio == 1.0
    assert found.score.checkpoint_count == sum(found.score.kinds.values()) == 24


def test_checkpoints_that_are_slow_elsewhere_afterwards_do_not_hold():
    first = slow(1, 8)
    # The last vertex keeps pace, and the barrier waits before the middle instead.
    later = [c for n in range(9, 19) for c in slow(n, 1, last_ms=4_810)]
    moved = [_moved(c) for c in later]

    found = _replayed(Past(stored([*first, *moved]), loaded(100)))

    episode = found.episodes[0]
    named = episode.first_checkpoint_id
    assert episode.held_count == 8 - named
    assert episode.followed_count == FOLLOWED_COUNT


def _moved(checkpoint):
    rows = []
    for d in checkpoint.details:
        if d.vertex_id == "middle":
            d = replace(d, start_delay_ms=(4_800,) * 4, ack_delay_ms=(4_800,) * 4)
        rows.append(d)
    return replace(checkpoint, details=tuple(rows))


def test_a_verdict_is_compared_with_the_stored_one():
    same = stored(slow(1, 10), judged=("capacity", LAST))
    other = stored(slow(11, 5), judged=("skew", LAST))
    none = stored(slow(16, 5))

    found = _replayed(Past([*same, *other, *none], loaded(110)))

    (episode,) = found.episodes
    assert episode.stored_same_count == 10 - (episode.first_checkpoint_id - 1)
    assert episode.stored_count == episode.stored_same_count + 5
    assert (found.score.compared_count, found.score.agreed_count) == (15, episode.stored_same_count)


def test_a_healthy_job_has_no_episode():
    found = _replayed(Past(stored([quick(n) for n in range(1, 20)]), loaded(100, held=0.0, queued_bytes=0, busy=0.2)))

    assert found.episodes == []
    assert found.score.kinds == {"none": 19}
    assert (found.score.held_ratio, found.score.stable_ratio) == (None, None)


def test_scores_add_up_and_a_result_survives_its_document():
    past = Past(stored(slow(1, 12), judged=("capacity", LAST)), loaded(70))
    result = result_of("j", past)

    assert JobResult.of(result.document()) == result
    total = VerdictScore()
    for _ in range(2):
        total.add(result.verdict.score)
    assert total.checkpoint_count == 24
    assert total.kinds == {kind: 2 * count for kind, count in result.verdict.score.kinds.items()}
    assert total.held_count == 2 * result.verdict.score.held_count
