"""Tests that every protocol that Flink does not have has names of its own."""

from __future__ import annotations

import pytest

from backend.domain.protocols import TRAITS, Protocol


def test_every_protocol_has_traits_and_words_of_its_own():
    assert set(TRAITS) == set(Protocol)
    assert len({traits.words for traits in TRAITS.values()}) == len(Protocol)
    assert len({traits.meaning for traits in TRAITS.values()}) == len(Protocol)


@pytest.mark.parametrize("protocol", Protocol)
def test_only_markers_keep_their_place_among_the_data(protocol):
    assert protocol.overtakes or TRAITS[protocol].has_markers
