"""Parts of the sentences of a verdict."""

from __future__ import annotations

from backend.analysis.words import sentences as say


def test_a_few_hosts_are_all_named_and_of_many_the_first_ones():
    names = [f"taskmanager-{n}" for n in range(19)]
    assert say.hosts(names[:1]) == "taskmanager-0"
    assert say.hosts(names[:4]) == "taskmanager-0, taskmanager-1, taskmanager-2 and taskmanager-3"
    assert say.hosts(names) == "taskmanager-0, taskmanager-1, taskmanager-2, taskmanager-3 and 15 more hosts"
