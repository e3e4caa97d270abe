"""Tests of the list of allowed addresses of targets."""

from __future__ import annotations

import pytest

from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.errors import InvalidInputError
from backend.services.targets.targets import check_host


def test_a_host_that_is_not_listed_is_refused_with_the_list():
    check_host(EVERYWHERE, "127.0.0.1")
    check_host(AddressRules(is_everything_allowed=False, allowed=("my-flink",)), "my-flink")

    with pytest.raises(InvalidInputError) as refused:
        check_host(AddressRules(is_everything_allowed=False, allowed=("my-flink", "10.0.0.0/8")), "127.0.0.1")

    assert refused.value.problems[0].allowed == "my-flink, 10.0.0.0/8"
