"""Tests of where the migration scripts are found: in a checkout, and in a wheel."""

from __future__ import annotations

import pytest
from alembic.script import ScriptDirectory

from backend.domain.errors import HostError
from backend.store.schema import migrate


def test_in_a_checkout_the_scripts_next_to_the_package_are_used():
    folder = migrate.script_location()
    assert (folder.name, (folder / "versions").is_dir()) == ("migrations", True)
    assert ScriptDirectory(str(folder)).get_current_head()


def test_in_a_wheel_the_scripts_inside_the_package_are_used(tmp_path, monkeypatch):
    module = tmp_path / "site-packages" / "backend" / "store" / "schema" / "migrate.py"
    scripts = module.parents[2] / "_migrations"
    scripts.mkdir(parents=True)
    (scripts / "env.py").touch()
    monkeypatch.setattr(migrate, "__file__", str(module))

    assert migrate.script_location() == scripts


def test_missing_scripts_are_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(migrate, "__file__", str(tmp_path / "backend" / "store" / "schema" / "migrate.py"))

    with pytest.raises(HostError, match="the migration scripts are missing; install Barrierscope again"):
        migrate.script_location()
