"""The collector for a kind of target comes from an entry point. A kind without one is an error of the target."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from backend.domain.errors import ConflictError, TargetUnavailableError
from collectors import kinds
from collectors.base import CollectorKind
from collectors.flink.kind import FLINK
from collectors.kinds import find_kind
from collectors.probe import probe
from collectors.settings import change_settings

pytestmark = pytest.mark.anyio
URL = "http://target:1234"
PUSHED = CollectorKind(kind="pushed", engines=())


@pytest.fixture
def installed(monkeypatch):
    """Return a function that installs entry points of the group; each value is the object reference of one name."""

    def install(**points: str) -> None:
        found = EntryPoints(EntryPoint(n, v, kinds.GROUP) for n, v in points.items())
        monkeypatch.setattr(kinds.metadata, "entry_points", lambda group: found.select(group=group))

    return install


def test_the_entry_point_of_that_name_is_the_collector(installed):
    installed(flink="collectors.flink.kind:FLINK", spark="collectors.spark.kind:SPARK")

    assert find_kind("flink", url=URL) is FLINK
    assert find_kind("spark", url=URL).open is None


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
    ],
)
def test_a_collector_that_cannot_be_loaded_is_an_error_on_the_target(leads_to, words, installed):
    installed(toy=leads_to)

    with pytest.raises(TargetUnavailableError) as raised:
        find_kind("toy", url=URL)
    assert words in str(raised.value)


async def test_targets_of_a_pushed_kind_can_be_neither_tested_nor_changed(installed):
    installed(pushed=f"{__name__}:PUSHED")

    with pytest.raises(TargetUnavailableError, match="of kind 'pushed' cannot be tested"):
        await probe(URL, 1.0, kind="pushed")
    with pytest.raises(ConflictError, match="take settings when they start"):
        await change_settings(URL, "run", {"a": "b"}, 1.0, None, kind="pushed")
