"""Tests of the sentence about a package that is not installed."""

from __future__ import annotations

import pytest

from backend.cli import extras
from backend.cli.app import run
from backend.cli.commands import COMMANDS, Entry

_REQUIRES = [
    "numpy<3,>=2.3",
    "prometheus-client<0.27,>=0.26; extra == 'server'",
    'psycopg[binary]<4,>=3.3.9; extra == "server"',
    "pyspark<4.4,>=4.3; extra == 'spark'",
    "pytest<10,>=9; extra == 'dev'",
]


@pytest.mark.parametrize(
    ("module", "cure"),
    [
        ("prometheus_client.core", "barrierscope[server]"),
        ("psycopg", "barrierscope[server]"),
        ("pyspark.sql", "barrierscope[server,spark]"),
        ("numpy", "barrierscope"),
        # It is needed by a package that the server needs.
        ("greenlet", "barrierscope[server]"),
        ("pytest", "barrierscope[server]"),
    ],
)
def test_the_extra_of_a_missing_package_is_named(module, cure, monkeypatch):
    monkeypatch.setattr(extras.metadata, "requires", lambda _: _REQUIRES)

    problem = extras.missing_package(ModuleNotFoundError("no", name=module))

    root = module.partition(".")[0]
    assert str(problem) == f"this needs the package {root}, which is not installed; run `pip install '{cure}'`"


@pytest.mark.parametrize("name", ["backend.nothing", "collectors", None])
def test_a_missing_module_of_our_own_is_a_bug_and_names_no_extra(name):
    assert extras.missing_package(ModuleNotFoundError("no", name=name)) is None


def test_a_command_whose_package_is_missing_is_answered_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(extras.metadata, "requires", lambda _: _REQUIRES)
    monkeypatch.setitem(COMMANDS, "alert", Entry("prometheus_client_absent.cli:alert", "Alert.", "barrierscope alert"))

    assert run(["alert"]) == 1

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "barrierscope: this needs the package prometheus_client_absent, which is not installed;"
        " run `pip install 'barrierscope[server]'`\n",
    )
