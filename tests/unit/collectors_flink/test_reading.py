"""Tests of what the collector remembers about a run: a poll that fails changes nothing of it."""

from __future__ import annotations

from dataclasses import fields

from collectors.flink.reading import RunMemory


def test_a_copy_shares_no_collection_that_a_poll_changes() -> None:
    memory = RunMemory()
    copied = memory.copy()

    collections = [f.name for f in fields(memory) if isinstance(getattr(memory, f.name), dict | set)]
    assert "failed_commits" in collections
    # A poll replaces this one and never changes it.
    assert [name for name in collections if getattr(copied, name) is getattr(memory, name)] == ["ended_counts"]
