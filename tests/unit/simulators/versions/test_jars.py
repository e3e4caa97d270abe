"""The versions of Flink that ``make test-versions`` knows."""

from __future__ import annotations

import pytest

from tests.simulators.versions.jars import VERSIONS, chosen, is_before, minor


def test_versions_are_chosen_by_their_first_two_numbers_or_whole_and_all_without_a_choice():
    assert chosen("1.15 2.3.0") == ("1.15.4", "2.3.0")
    assert chosen("2.2,1.13") == ("1.13.6", "2.2.1")
    assert chosen("") == VERSIONS
    with pytest.raises(SystemExit, match=r"1\.12"):
        chosen("1.12")


def test_versions_are_ordered_by_number():
    assert is_before("1.9.0", "1.13")
    assert not is_before("1.20.5", "1.20")
    assert list(VERSIONS) == sorted(VERSIONS, key=lambda v: [int(n) for n in v.split(".")])
    assert minor("1.20.5") == "1.20"
