"""Tests of finding a target's collector by its entry point. If there is none, the target gets an error."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from backend.domain.connection import ANYWHERE
from backend.domain.errors import ConflictError, TargetUnavailableError
from backend.domain.target import COLLECTOR_GROUP
from collectors import kinds
from collectors.base import CollectorKind
from collectors.flink.kind import FLINK
from collectors.kinds import find_kind
from collectors.probe import probe
from collectors.settings import change_settings
from collectors.spark.kind import SPARK

pytestmark = pytest.mark.anyio
URL = "http://target:1234"
PUSHED = CollectorKind(kind="pushed", engines=())


@pytest.fixture
def installed(monkeypatch):
    """Return a function that installs entry points of the collectors' group, as NAME="object reference"."""

    def install(**points: str) -> None:
        found = EntryPoints(EntryPoint(n, v, COLLECTOR_GROUP) for n, v in points.items())
        monkeypatch.setattr(kinds.metadata, "entry_points", lambda group: found.select(group=group))

    return install


def test_the_entry_point_of_that_name_is_the_collector(installed):
    installed(flink="collectors.flink.kind:FLINK", spark="collectors.spark.kind:SPARK")

    assert find_kind("flink", url=URL) is FLINK
    assert find_kind("spark", url=URL) is SPARK


def test_a_kind_that_is_not_installed_is_an_error_on_the_target_that_lists_the_installed_ones(installed):
    installed(spark="collectors.spark.kind:SPARK", flink="collectors.flink.kind:FLINK")

    with pytest.raises(TargetUnavailableError) as raised:
        find_kind("toy", url=URL)
    expected = f"{URL}: no collector for targets of kind 'toy' is installed (installed kinds: flink, spark)"
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("leads_to", "words"),
    [
        ("collectors.no_such_module:X", "cannot be loaded (ModuleNotFoundError"),
        ("collectors.kinds:NO_SUCH_NAME", "cannot be loaded (AttributeError"),
        ("collectors.kinds:find_kind", "is not a CollectorKind"),
        ("collectors.flink.kind:FLINK", "is the collector for kind 'flink'"),
    ],
)
def test_a_collector_that_cannot_be_loaded_is_an_error_on_the_target(leads_to, words, installed):
    installed(toy=leads_to)

    with pytest.raises(TargetUnavailableError) as raised:
        find_kind("toy", url=URL)
    assert words in str(raised.value)


def test_two_packages_that_offer_collectors_for_the_same_kind_are_an_error_on_the_target(monkeypatch):
    offered = ("collectors.flink.kind:FLINK", "another.package:FLINK", "collectors.flink.kind:FLINK")
    found = EntryPoints(EntryPoint("flink", value, COLLECTOR_GROUP) for value in offered)
    monkeypatch.setattr(kinds.metadata, "entry_points", lambda group: found.select(group=group))

    with pytest.raises(TargetUnavailableError) as raised:
        find_kind("flink", url=URL)
    assert str(raised.value).endswith(": another.package:FLINK and collectors.flink.kind:FLINK")


async def test_targets_of_a_pushed_kind_can_be_neither_tested_nor_changed(installed):
    installed(pushed=f"{__name__}:PUSHED")

    with pytest.raises(TargetUnavailableError, match="of kind 'pushed' cannot be tested"):
        await probe(URL, 1.0, kind="pushed", reach=ANYWHERE)
    with pytest.raises(ConflictError, match="take settings when they start"):
        await change_settings(URL, "run", {"a": "b"}, 1.0, None, kind="pushed", reach=ANYWHERE)
