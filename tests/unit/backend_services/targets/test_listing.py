"""Tests of the list of targets for Prometheus: its form, and that another Barrierscope finds the same targets in it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from backend.domain.address_rules import EVERYWHERE
from backend.domain.connection import ConnectionOptions, parse_reference
from backend.domain.discovery import TargetTemplate
from backend.domain.ids import target_id
from backend.domain.target import TargetOrigin
from backend.services.targets.listing import groups_of
from backend.store.targets.targets import TargetRecord
from collectors.discovery.groups import AllowedHosts, found_in

AT = datetime(2026, 11, 21, tzinfo=UTC)


def record(url, *, kind="flink", labels=None, origin=TargetOrigin.API, is_enabled=True):
    connection = ConnectionOptions(bearer=parse_reference("env:SECRET_TOKEN"))
    return TargetRecord(
        target_id(url=url), url, "a name", kind, labels or {}, origin, is_enabled, AT, connection=connection
    )


URLS = ["http://flink:8081", "https://flink/payments/x", "http://[2001:db8::1]:81", "https://flink", "http://flink"]


def test_what_is_listed_is_found_again():
    groups = [g.model_dump() for g in groups_of([record(u, labels={"deployment": "pay"}) for u in URLS])]
    found = found_in([groups], TargetTemplate(), AllowedHosts((), EVERYWHERE))

    assert sorted(t.url for t in found.targets) == sorted(URLS)
    assert {t.id for t in found.targets} == {target_id(url=u) for u in URLS}
    assert {t.labels["deployment"] for t in found.targets} == {"pay"}
    assert found.left_out == ()
    assert "SECRET_TOKEN" not in str(groups)


def test_an_address_has_a_port_because_prometheus_requires_it():
    assert {g.targets[0] for g in groups_of(map(record, URLS))} == {
        *("flink:8081", "flink:443", "[2001:db8::1]:81", "flink:80"),
    }


def test_paused_targets_and_those_that_push_are_not_listed_and_a_kind_limits_the_list():
    records = [
        record("http://a"),
        record("http://b", is_enabled=False),
        record("spark://c", origin=TargetOrigin.PUSH),
        record("http://d", kind="spark"),
    ]

    assert [g.targets for g in groups_of(records)] == [["a:80"], ["d:80"]]
    assert [g.targets for g in groups_of(records, kind="spark")] == [["d:80"]]


def test_a_folder_is_not_listed_because_it_has_no_address():
    records = [record("file:///srv/spark-events", kind="spark"), record("http://a")]

    assert [g.targets for g in groups_of(records)] == [["a:80"]]


@pytest.mark.parametrize("name", ["a-b", "9lives", "", "übung", "a.b/c", "__scheme__", "__meta_barrierscope_target"])
def test_every_name_of_a_label_is_one_of_prometheus_and_hides_none_of_ours(name):
    (group,) = groups_of([record("http://a", labels={name: "x"})])

    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) for label in group.labels)
    assert group.labels["__scheme__"] == "http"
    assert group.labels["__meta_barrierscope_target"] == target_id(url="http://a")
