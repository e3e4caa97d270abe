"""Each unit test file has the path of the module that it tests, as tests/README.md requires."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.wheel_environment import ROOT

_UNIT = ROOT / "tests" / "unit"
# Each folder of tests/unit, and the folder with the modules that it tests.
_PACKAGES = {
    **{f"backend_{folder.name}": folder for folder in (ROOT / "backend").iterdir() if folder.is_dir()},
    **{f"collectors_{folder.name}": folder for folder in (ROOT / "collectors").iterdir() if folder.is_dir()},
    "backend": ROOT / "backend",
    "collectors": ROOT / "collectors",
    "dashboard": ROOT / "dashboard",
    "simulators": ROOT / "tests" / "simulators",
    "support": ROOT / "tests" / "support",
}


def _tested(test: Path) -> Path:
    """Return the path of the module or package that ``test`` should test, without its suffix."""
    package, *folders, name = test.relative_to(_UNIT).parts
    return _PACKAGES.get(package, ROOT / package).joinpath(*folders, name.removeprefix("test_").removesuffix(".py"))


def test_each_unit_test_file_has_the_path_of_a_module():
    files = sorted(_UNIT.rglob("test_*.py"))
    without = [
        str(file.relative_to(ROOT))
        for file in files
        if not (_tested(file).with_suffix(".py").is_file() or (_tested(file) / "__init__.py").is_file())
    ]

    assert len(files) > 80
    assert without == []
