"""Tests of the names in requests about advice."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from backend.contracts.advice import ApplyIn, DecisionIn


def test_a_person_may_give_a_name_or_none():
    assert ApplyIn().author is None
    assert DecisionIn(author="ann \u202e").author.startswith("ann")


@pytest.mark.parametrize("name", ["the service", " The Service ", "", "   "])
def test_no_person_is_called_as_the_service_or_nothing(name):
    with pytest.raises(ValidationError):
        DecisionIn(author=name)
