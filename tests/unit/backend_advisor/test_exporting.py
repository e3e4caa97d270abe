"""Tests of the forms in which changed settings are exported: another reader of each form finds the same settings."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest
import yaml

from backend.advisor.advice import Change
from backend.advisor.exporting import exports_of
from backend.domain.engines import RUNTIME, SPARK, SettingsFormat, flink

_CP = "execution.checkpointing."
_PLAIN = {f"{_CP}unaligned.enabled": "true", f"{_CP}interval": "30000 ms"}
_HARD = {f"{_CP}dir": "s3://bucket/a b'c\"d: #e", f"{_CP}mode": "$HOME; rm"}
_CLUSTER = {"taskmanager.network.memory.buffer-debloat.enabled": "true"}


def _texts(engine, settings):
    changes = [Change(key, None, value) for key, value in settings.items()]
    return {export.format: export for export in exports_of(engine, changes)}


@pytest.mark.parametrize("settings", [_PLAIN, _HARD, _PLAIN | _CLUSTER])
def test_yaml_is_read_back(settings):
    found = _texts(flink("2.0.0"), settings)

    in_file = yaml.safe_load(found[SettingsFormat.CONFIG_YAML].text)
    assert {k: "true" if v is True else v for k, v in in_file.items()} == settings
    patch = yaml.safe_load(found[SettingsFormat.FLINK_DEPLOYMENT].text)
    # The operator's resource takes only texts.
    assert patch == {"spec": {"flinkConfiguration": settings}}


@pytest.mark.parametrize("settings", [_PLAIN, _HARD])
def test_options_are_read_back_by_a_shell(settings):
    def pairs(words):
        return dict(word.split("=", 1) for word in words)

    options = shlex.split(_texts(flink("2.0.0"), settings)[SettingsFormat.FLINK_OPTIONS].text)
    assert pairs(word.removeprefix("-D") for word in options) == settings
    of_spark = {f"spark.{key}": value for key, value in settings.items()}
    for engine, wanted, flag, given in (
        (SPARK, SettingsFormat.SPARK_OPTIONS, "--conf", of_spark),
        (RUNTIME, SettingsFormat.SIMULATE_OPTIONS, "--set", settings),
    ):
        words = shlex.split(_texts(engine, given)[wanted].text)
        assert set(words[::2]) == {flag}
        assert pairs(words[1::2]) == given


@pytest.mark.parametrize("settings", [_PLAIN, _HARD])
def test_sql_and_job_files_are_read_back(settings):
    sql = _texts(flink("2.0.0"), settings)[SettingsFormat.FLINK_SQL].text
    found = re.findall(r"^SET '((?:[^']|'')*)' = '((?:[^']|'')*)';$", sql, re.MULTILINE)
    assert {k: v.replace("''", "'") for k, v in found} == settings
    document = tomllib.loads(_texts(RUNTIME, settings)[SettingsFormat.JOB_FILE].text)
    flat = {}
    _flatten(document["config"], "", flat)
    assert flat == settings


def _flatten(part, prefix, flat):
    for key, value in part.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{key}.", flat)
        else:
            flat[f"{prefix}{key}"] = value


def test_settings_of_the_cluster_are_not_options_of_a_job_and_the_export_says_so():
    found = _texts(flink("2.0.0"), _PLAIN | _CLUSTER)

    for wanted in (SettingsFormat.FLINK_SQL, SettingsFormat.FLINK_OPTIONS):
        assert "taskmanager" not in found[wanted].text
        assert "not for taskmanager.network.memory.buffer-debloat.enabled" in found[wanted].where
    only = _texts(flink("2.0.0"), _CLUSTER)
    assert list(only) == [SettingsFormat.CONFIG_YAML, SettingsFormat.FLINK_DEPLOYMENT]


def test_settings_in_the_code_of_a_query_are_no_options_and_the_export_says_so():
    shuffle, trigger = SPARK.settings.parallelism, SPARK.settings.interval

    found = _texts(SPARK, {shuffle: "64", trigger: "5 s"})[SettingsFormat.SPARK_OPTIONS]
    assert found.text == f"--conf {shuffle}=64"
    assert f"not for {trigger}" in found.where
    assert _texts(SPARK, {trigger: "5 s"}) == {}


def test_the_file_follows_the_version_and_nothing_changed_is_no_export():
    assert SettingsFormat.FLINK_CONF in _texts(flink("1.18.1"), _PLAIN)
    assert SettingsFormat.CONFIG_YAML in _texts(flink("1.19.0"), _PLAIN)
    assert _texts(flink(), {}) == {}
