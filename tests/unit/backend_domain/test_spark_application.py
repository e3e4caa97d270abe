"""Tests of what a SparkApplication says of its driver: its address, its identity, and when it can be read."""

from __future__ import annotations

import pytest

from backend.domain.kubernetes_cluster import UnreadableError
from backend.domain.spark_application import application_of
from tests.support.address_forms import FORMS
from tests.support.kubernetes_server import spark_application


def test_the_address_is_the_service_and_the_port_of_the_status_and_not_computed():
    long = spark_application("a" * 80, info={"webUIServiceName": "a-12ab34-ui-svc", "webUIPort": 4055})

    found = application_of(long)
    assert found.url == "http://a-12ab34-ui-svc.spark.svc:4055"
    assert (found.attempt, found.submission, found.is_between) == (1, "8f2b", False)


def test_the_runs_of_a_schedule_have_its_identity():
    first, second = (application_of(spark_application(f"nightly-{n}", schedule="nightly")) for n in (1, 2))

    assert (first.owner, second.owner) == ("nightly", "nightly")
    assert application_of(spark_application("orders")).owner == "orders"


@pytest.mark.parametrize("state", ["", "COMPLETED", "FAILED", "UNKNOWN"])
def test_without_a_driver_there_is_nothing_to_read(state):
    assert application_of(spark_application("a", state=state)) is None


@pytest.mark.parametrize("state", ["PENDING_RERUN", "FAILING", "SUCCEEDING", "SUBMITTED", "SUSPENDED"])
def test_between_two_attempts_the_driver_is_known_and_not_read(state):
    assert application_of(spark_application("a", state=state)).is_between
    assert application_of(spark_application("a", state=state, info={"webUIServiceName": ""})) is None


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"webUIServiceName": ""}, "controller.uiService.enable"),
        ({"webUIPort": None}, "is no port"),
        ({"webUIPort": 0}, "is no port"),
        ({"webUIPort": 65_536}, "is no port"),
        ({"webUIPort": True}, "is no port"),
        ({"webUIPort": "80@169.254.169.254"}, "is no port"),
    ],
)
def test_a_driver_without_a_usable_service_is_refused_with_the_cure(info, words):
    with pytest.raises(UnreadableError, match=words):
        application_of(spark_application("a", info=info))


def test_no_form_of_a_hostile_address_can_be_a_service_or_a_namespace():
    assert len(FORMS) >= 300
    for form in FORMS:
        for document in (
            spark_application("a", info={"webUIServiceName": form}),
            spark_application("a", form),
            spark_application("a", info={"webUIServiceName": f"a.{form}"}),
        ):
            try:
                url = application_of(document).url
            except UnreadableError:
                continue
            # A word of letters and digits is a label of the name, and never a host of its own.
            assert url.endswith(".svc:4040")
            assert url.count("/") == 2
            assert url.isascii()
            assert "@" not in url
