"""Tests of the table of Flink's options: its releases, its renamed options, and what a release does not read."""

from __future__ import annotations

import pytest

from backend.domain import flink_options
from backend.domain.engines import NEWEST_FLINK

_CHECKPOINTING = "execution.checkpointing."


def test_the_table_has_every_release_from_1_13_to_the_newest_that_was_compared():
    found = flink_options.releases()

    assert found == (*((1, n) for n in range(13, 21)), *((2, n) for n in range(4)))
    assert found[-1] == NEWEST_FLINK


@pytest.mark.parametrize(
    ("newest", "key", "release", "default"),
    [
        ("state.changelog.enabled", "state.backend.changelog.enabled", (1, 15), "false"),
        ("state.changelog.enabled", "state.backend.changelog.enabled", (1, 19), "false"),
        ("state.changelog.enabled", "state.changelog.enabled", (1, 20), "false"),
        (f"{_CHECKPOINTING}aligned-checkpoint-timeout", f"{_CHECKPOINTING}alignment-timeout", (1, 13), "0 ms"),
        (f"{_CHECKPOINTING}aligned-checkpoint-timeout", f"{_CHECKPOINTING}aligned-checkpoint-timeout", (1, 14), "0 ms"),
        (f"{_CHECKPOINTING}unaligned.enabled", f"{_CHECKPOINTING}unaligned", (1, 16), "false"),
        (f"{_CHECKPOINTING}unaligned.enabled", f"{_CHECKPOINTING}unaligned.enabled", (1, 17), "false"),
        ("state.backend.type", "state.backend", (1, 16), None),
        ("state.backend.type", "state.backend.type", (1, 17), None),
        (f"{_CHECKPOINTING}incremental", "state.backend.incremental", (1, 19), "false"),
        (f"{_CHECKPOINTING}incremental", f"{_CHECKPOINTING}incremental", (1, 20), "false"),
        (f"{_CHECKPOINTING}num-retained", "state.checkpoints.num-retained", (1, 19), "1"),
        (f"{_CHECKPOINTING}dir", "state.checkpoints.dir", (1, 19), None),
        (f"{_CHECKPOINTING}dir", f"{_CHECKPOINTING}dir", (2, 0), None),
        ("taskmanager.network.memory.buffer-debloat.period", None, (1, 14), "500 ms"),
        ("taskmanager.network.memory.buffer-debloat.period", None, (1, 15), "200 ms"),
    ],
)
def test_a_renamed_option_is_found_by_its_newest_name_in_every_release(newest, key, release, default):
    found = flink_options.option(newest, release)

    assert found is not None
    assert (found.key, found.default) == (key or newest, default)
    # The name of that release finds the same option in the newest one.
    assert flink_options.option(found.key, flink_options.releases()[-1]).key == newest


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("taskmanager.network.memory.buffer-debloat.enabled", (1, 14)),
        ("dstl.dfs.base-path", (1, 15)),
        ("pipeline.jobvertex-parallelism-overrides", (1, 17)),
        (f"{_CHECKPOINTING}unaligned.max-subtasks-per-channel-state-file", (1, 17)),
        (f"{_CHECKPOINTING}unaligned.interruptible-timers.enabled", (1, 20)),
        (f"{_CHECKPOINTING}during-recovery.enabled", (2, 3)),
    ],
)
def test_an_option_is_not_there_before_the_release_that_brought_it(key, first):
    there = [r for r in flink_options.releases() if flink_options.option(key, r) is not None]

    assert there == [r for r in flink_options.releases() if r >= first]


def test_the_number_of_buffers_is_no_option_since_2_0():
    key = "taskmanager.network.memory.floating-buffers-per-gate"

    assert flink_options.option(key, (1, 20)) is not None
    assert flink_options.option(key, (2, 0)) is None


def test_the_key_of_the_release_counts_before_its_older_names():
    both = {"state.checkpoints.num-retained": "5", f"{_CHECKPOINTING}num-retained": "2"}
    name = f"{_CHECKPOINTING}num-retained"

    assert flink_options.set_as(name, both, (1, 20)) == (name, "2")
    assert flink_options.set_as(name, both, (1, 15)) == ("state.checkpoints.num-retained", "5")
    assert flink_options.set_as(name, both, None) == (name, "2")
    old = {"state.checkpoints.num-retained": "5"}
    assert flink_options.set_as(name, old, (2, 3)) == flink_options.set_as(name, old, None) == (*old.items(),)[0]
    assert flink_options.set_as(name, {name: "2"}, (1, 15)) is None
    assert flink_options.unread({**both, "my.own": "1"}, (1, 15)) == (name,)
    assert flink_options.unread(both, (1, 20)) == ()


@pytest.mark.parametrize(
    ("version", "release"), [((1, 20), (1, 20)), ((2, 9), (2, 3)), ((1, 21), (1, 20)), ((1, 9), (1, 13))]
)
def test_a_version_that_the_table_lacks_has_the_options_of_the_one_before_it(version, release):
    assert flink_options.nearest(version) == release


@pytest.mark.parametrize(
    ("text", "ms"), [("200 ms", 200), ("1s", 1_000), ("2 min", 120_000), ("50", 50), ("soon", None)]
)
def test_a_duration_is_read_as_flink_writes_it(text, ms):
    assert flink_options.duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("10485760b", 10 << 20), ("32kb", 32 << 10), ("1 MB", 1 << 20), ("2 gb", 2 << 30), ("50", 50), ("much", None)],
)
def test_a_size_is_read_as_flink_writes_it(text, size):
    assert flink_options.size_bytes(text) == size
