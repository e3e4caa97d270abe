"""Tests of the field for the viewer's name."""

from __future__ import annotations

import pytest

from dashboard.components import viewer_name


@pytest.mark.parametrize(("text", "name"), [(" ann ", "ann"), (" ", None), ("", None), (None, None)])
def test_a_name_without_letters_is_no_name(text, name):
    assert viewer_name.given(text) == name


def test_the_state_of_a_field_is_that_of_its_input():
    (_, field) = viewer_name.field("advice").children
    state = viewer_name.typed("advice")

    assert (field.id, "value") == (state.component_id, state.component_property)
