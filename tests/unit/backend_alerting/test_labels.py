"""Tests of the fingerprints of labels, and of the matchers that a silence may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.alerting.labels import RESERVED, Matcher, check_matchers, fingerprint, fits_all, renamed, without_reserved
from backend.domain.errors import InvalidInputError

LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5)


@given(LABELS, LABELS)
def test_a_fingerprint_depends_on_the_labels_and_not_on_their_order(one, other):
    assert fingerprint(one) == fingerprint(dict(reversed(list(one.items()))))
    assert (fingerprint(one) == fingerprint(other)) is (one == other)


@given(st.lists(st.builds(Matcher, st.sampled_from("ab"), st.sampled_from(["", "x"]), st.booleans()), max_size=4))
def test_no_accepted_silence_hides_an_alert_without_labels(matchers):
    try:
        check_matchers(matchers)
    except InvalidInputError:
        return
    assert not fits_all(matchers, {})


@pytest.mark.parametrize(
    ("matchers", "field"),
    [
        ([], "matchers"),
        ([Matcher("job name", "x")], "matchers[0].name"),
        ([Matcher("job", "x" * 2000)], "matchers[0].value"),
        ([Matcher("job", "x", is_equal=False)], "matchers"),
    ],
)
def test_invalid_matchers_are_refused_by_field(matchers, field):
    with pytest.raises(InvalidInputError) as refused:
        check_matchers(matchers)

    assert [p.field for p in refused.value.problems] == [field]


def test_labels_that_an_earlier_version_stored_are_read_under_the_current_names():
    old = {"alertname": "CheckpointStuck", "job": "orders", "job_id": "j1", "target": "production"}

    assert renamed(old) == {"alertname": "CheckpointStuck", "job_name": "orders", "target": "production"}
    assert renamed(renamed(old)) == renamed(old)


def test_a_label_that_a_target_calls_job_is_not_taken_for_a_stored_name_of_a_job():
    assert renamed({"job": "kafka", "target": "production"}) == {"job": "kafka", "target": "production"}


def test_the_labels_of_a_target_never_have_the_names_that_prometheus_sets():
    own = without_reserved({"job": "kafka", "instance": "a:1", "namespace": "prod"})

    assert own == {"target_job": "kafka", "target_instance": "a:1", "namespace": "prod"}
    assert not RESERVED & set(own)
