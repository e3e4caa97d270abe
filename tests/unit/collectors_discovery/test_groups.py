"""Tests of the lists of Prometheus: which targets they declare, and what is left out with which sentence."""

from __future__ import annotations

import pytest

from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.connection import ConnectionOptions, parse_reference
from backend.domain.discovery import FOUND_MAX, TargetTemplate
from collectors.discovery.groups import AllowedHosts, ListError, found_in
from tests.support.address_forms import ALLOWED, FORMS

ALL = AllowedHosts((), EVERYWHERE)


def found(*groups, template=None, hosts=ALL):
    return found_in([list(groups)], template or TargetTemplate(), hosts)


def test_scheme_and_path_are_honoured_and_other_internal_labels_are_dropped():
    labels = {"__scheme__": "https", "__metrics_path__": "/payments/", "__meta_x": "y", "env": "prod"}
    ((target,), left_out) = (lambda f: (f.targets, f.left_out))(found({"targets": ["Flink:8081"], "labels": labels}))

    assert (target.url, target.name) == ("https://flink:8081/payments", "flink:8081/payments")
    assert target.labels == {"env": "prod"}
    assert left_out == ()


def test_a_target_has_what_its_section_says_and_the_name_of_its_deployment():
    connection = ConnectionOptions(bearer=parse_reference("env:T"))
    template = TargetTemplate(interval_s=5.0, is_paused=True, connection=connection)
    (target,) = found({"targets": ["f:1"], "labels": {"deployment": "payments"}}, template=template).targets

    assert (target.name, target.interval_s, target.is_paused) == ("payments", 5.0, True)
    assert target.connection == connection


def test_the_first_entry_with_an_address_counts():
    targets = found({"targets": ["f:1", "f:1"], "labels": {"a": "1"}}, {"targets": ["F:1"]}).targets

    assert [t.labels for t in targets] == [{"a": "1"}]


@pytest.mark.parametrize(
    ("address", "labels", "words"),
    [
        ("http://f:1", {}, "is not HOST:PORT"),
        ("me:hunter2@f:1", {}, "is not HOST:PORT"),
        ("f:1", {"__scheme__": "ftp"}, "scheme 'ftp'"),
        ("f:1", {"__metrics_path__": "x"}, "does not begin with /"),
        ("f:1", {"__metrics_path__": "/x?y"}, "query"),
        ("f:99999", {}, "is not an address"),
        ("", {}, "has no host"),
        ("f:1", {f"l{n}": "x" for n in range(33)}, "more than 32 labels"),
    ],
)
def test_a_wrong_entry_is_left_out_and_the_others_are_taken(address, labels, words):
    result = found({"targets": [address], "labels": labels}, {"targets": ["good:1"]})

    assert [t.url for t in result.targets] == ["http://good:1"]
    (sentence,) = result.left_out
    assert words in sentence


def test_credentials_with_tls_never_go_over_plain_http():
    template = TargetTemplate(connection=ConnectionOptions(ca=parse_reference("file:/ca.pem")))
    result = found({"targets": ["f:1"]}, {"targets": ["f:2"], "labels": {"__scheme__": "https"}}, template=template)

    assert [t.url for t in result.targets] == ["https://f:2"]
    assert "__scheme__" in result.left_out[0]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "is not a list of groups"),
        (None, "is not a list of groups"),
        ([1], "number 0"),
        ([{"targets": ["a:1"]}, {"targets": "a:1"}], "number 1"),
        ([{"targets": [1]}], "number 0"),
        ([{"targets": ["a:1"], "labels": {"a": 1}}], "not texts by name"),
        ([{"targets": ["a:1"], "labels": []}], None),
        ([{"targets": [f"h{n}:1" for n in range(FOUND_MAX + 1)]}], f"more than {FOUND_MAX}"),
        ([{"targets": ["a:1"] * (FOUND_MAX + 1)}], f"more than {FOUND_MAX}"),
        ([{"targets": ["/"] * (FOUND_MAX + 1)}], f"more than {FOUND_MAX}"),
        ([{"targets": ["a:1"] * FOUND_MAX}], None),
    ],
)
def test_a_list_of_another_form_is_not_taken_at_all(document, words):
    if words is None:
        assert len(found_in([document], TargetTemplate(), ALL).targets) == 1
        return
    with pytest.raises(ListError, match=words):
        found_in([document], TargetTemplate(), ALL)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("limit", ["service", "section"])
def test_no_form_of_a_hostile_address_becomes_a_target(scheme, limit):
    rules = AddressRules(is_everything_allowed=False, allowed=ALLOWED)
    hosts = AllowedHosts((), rules) if limit == "service" else AllowedHosts(ALLOWED, EVERYWHERE)
    assert len(FORMS) >= 300
    for form in FORMS:
        for address, labels in (
            (form, {}),
            (f"{form}:8081", {}),
            ("flink.example", {"__scheme__": f"{scheme}://{form}/?"}),
        ):
            result = found({"targets": [address], "labels": {"__scheme__": scheme} | labels}, hosts=hosts)
            assert result.targets == (), address
            assert len(result.left_out) == 1
    # A path cannot change the host either.
    for form in FORMS:
        labels = {"__metrics_path__": f"/@{form}/x"}
        for target in found({"targets": ["flink.example:1"], "labels": labels}, hosts=hosts).targets:
            assert target.url.startswith("http://flink.example:1/")


def test_the_sentence_on_a_refused_host_names_the_cure():
    (sentence,) = found({"targets": ["a:1"]}, hosts=AllowedHosts((), AddressRules(False, ()))).left_out
    assert "BARRIERSCOPE_ALLOWED_TARGETS" in sentence
    (sentence,) = found({"targets": ["a:1"]}, hosts=AllowedHosts(("b",), EVERYWHERE)).left_out
    assert "`allowed`" in sentence
