"""Tests of the address of the Lab page: it contains the whole request, and an error names the wrong value in it."""

from __future__ import annotations

import pytest

from backend.contracts.simulations import EXAMPLE, SimulationIn
from dashboard import lab_address, routes

_INTERVAL = "execution.checkpointing.interval"


def test_an_address_without_a_request_offers_the_first_one():
    chosen = routes.parse("/ui/lab").lab

    assert chosen.wanted == EXAMPLE
    assert isinstance(lab_address.request_of(chosen.wanted), SimulationIn)


def test_a_request_comes_back_from_its_address():
    wanted = dict(EXAMPLE) | {
        "second_protocol": None, "seed": 2**53 - 1, "parallelism": 3, "duration_s": 12.5, "settings": {_INTERVAL: "2 s"}
    }  # fmt: skip

    assert lab_address.parse(lab_address.query_of(wanted)).wanted == wanted
    found = lab_address.parse(lab_address.query_of(wanted) + "&checkpoint=4&t=812&tz=UTC")
    assert (found.wanted, found.checkpoint, found.at_ms) == (wanted, 4, 812)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?shape=backpressured&protocol=aligned&seed=abc", "'abc' of seed"),
        ("?shape=backpressured&protocol=aligned&parallelism=2.5", "2.5"),
        ("?shape=NO!&protocol=aligned", "'NO!' of shape"),
        ("?shape=backpressured&protocol=", "protocol"),
        ("?shape=backpressured&protocol=aligned&seed=99999999999999999", "seed"),
    ],
)
def test_a_wrong_value_is_named(query, words):
    said = lab_address.request_of(lab_address.parse(query).wanted)

    assert isinstance(said, str)
    assert words in said


def test_the_caps_of_the_curve_are_kept_as_they_were_written():
    assert lab_address.parse("?shape=healthy&protocol=capped&caps=0%2C+8+kb").caps == "0, 8 kb"
    assert lab_address.parse("?shape=healthy&protocol=capped").caps == ""
    assert len(lab_address.parse("?caps=" + "1" * 5_000).caps) == 200
