"""Tests of how PostgreSQL's programs for dumps are started."""

from __future__ import annotations

import subprocess

import pytest

from backend.store.postgres import dumps


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://someone@db.example/barrierscope", "from-the-environment"),
        ("postgresql://someone:from-the-url@db.example/barrierscope", "from-the-url"),
    ],
)
def test_the_password_is_in_the_environment_of_the_program_and_not_on_its_command_line(
    monkeypatch, tmp_path, url, password
):
    started = []

    def run(command, *, env, **_):
        started.append(([str(word) for word in command], env))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(dumps.subprocess, "run", run)
    monkeypatch.setenv("PGPASSWORD", "from-the-environment")
    monkeypatch.setenv("PGSSLROOTCERT", "/etc/ca.pem")
    monkeypatch.setenv("BARRIERSCOPE_TOKEN", "secret")

    dumps.dump(url, tmp_path / "file")

    ((command, environment),) = started
    assert environment["PGPASSWORD"] == password
    assert environment["PGSSLROOTCERT"] == "/etc/ca.pem"
    assert "BARRIERSCOPE_TOKEN" not in environment
    assert not any("from-the" in word for word in command)
