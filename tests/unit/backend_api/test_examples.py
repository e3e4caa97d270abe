"""Tests that every example in the OpenAPI document is a valid value of its contract."""

from __future__ import annotations

from importlib import resources

import pytest

from backend.api import examples
from tests.support.api_examples import MODELS, example


def test_every_example_has_a_model():
    files = {entry.name for entry in resources.files(examples).iterdir() if entry.name.endswith(".json")}

    assert files == {f"{name}.json" for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_an_example_fits_its_model(name):
    assert example(name)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.endswith("_in")])
def test_an_example_of_an_answer_is_written_as_the_api_writes_it(name):
    assert example(name).model_dump(mode="json", exclude_unset=True) == examples.read(name)
