"""A what-if becomes changes of the engine's settings; what no setting can make is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.lifecycle import is_in_force
from backend.advisor.twin.asking.applying import application, headline_of
from backend.advisor.twin.asking.asking import asked_of
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import FLINK, RUNTIME, flink
from tests.support.twin_models import three_vertices

MODEL = replace(three_vertices(rate_per_s=1000.0), engine=RUNTIME)
_CP = "execution.checkpointing."


def plan_of(settings, model=MODEL):
    return application(model, asked_of(model, settings).what_if, model.engine)


def test_a_change_of_settings_is_written_in_the_engines_keys():
    plan = plan_of({"mode": "unaligned", "interval": "30 s", "in-flight-cap": "64 kb", "debloating": "1 s"})

    assert plan.is_live
    assert plan.how_to.patch == {
        f"{_CP}unaligned.enabled": "true",
        f"{_CP}aligned-checkpoint-timeout": "0 ms",
        f"{_CP}interval": "30000 ms",
        "runtime.inflight-cap.bytes": "65536",
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "1000 ms",
    }
    assert headline_of(plan) == (
        "Change the mode to unaligned, the interval to 30 s, the debloating target to 1 s"
        " and the cap on in-flight data to 65536 bytes"
    )


def test_the_change_is_in_force_when_the_engine_reports_all_of_it():
    proposed = plan_of({"mode": "unaligned", "interval": "30 s"}).proposed
    reported = CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=0, interval_ms=30_000)

    assert is_in_force(proposed, reported) is True
    assert is_in_force(proposed, replace(reported, interval_ms=5_000)) is False
    assert is_in_force(proposed, replace(reported, interval_ms=None)) is None


@pytest.mark.parametrize(
    ("settings", "words", "is_question"),
    [
        ({"parallelism.sink": "8"}, "Change the parallelism of sink from 4 to 8", False),
        ({"load": "2"}, "2 times as much", True),
        ({"without-skew": "true"}, "No setting removes the skew", True),
    ],
)
def test_what_is_no_setting_is_named(settings, words, is_question):
    plan = plan_of(settings)

    assert words in plan.by_hand[0]
    assert (plan.changes, plan.is_live, plan.is_question) == ((), False, is_question)


def test_an_engine_that_reads_settings_at_the_start_needs_a_restart():
    plan = plan_of({"mode": "unaligned"}, replace(MODEL, engine=FLINK))

    assert not plan.is_live
    assert plan.how_to.needs_restart
    assert plan.how_to.lines == (f"{_CP}unaligned.enabled: true", f"{_CP}aligned-checkpoint-timeout: 0 ms")


def test_values_that_stay_as_they_are_change_nothing():
    plan = plan_of({"mode": "aligned", "interval": "3 s"})

    assert (plan.changes, plan.proposed.mode) == ((), None)
    assert MODEL.settings.mode is Mode.ALIGNED


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.16.3", "setParallelism(8)"),
        ("1.18.1", "from the cluster's configuration only"),
        ("1.20.5", "Set pipeline.jobvertex-parallelism-overrides to sink:8."),
        ("2.3.0", "PUT the whole answer back"),
    ],
)
def test_another_parallelism_is_made_in_the_way_of_the_version(version, words):
    plan = plan_of({"parallelism.sink": "8"}, replace(MODEL, engine=flink(version)))

    assert plan.by_hand[0].startswith("Change the parallelism of sink from 4 to 8")
    assert any(words in text for text in plan.by_hand[1:])
    assert any("overrides does not help" in text for text in plan.by_hand) is (version in ("1.16.3", "2.3.0"))


def test_a_what_if_is_written_in_the_keys_of_the_version():
    settings = {"mode": "unaligned", "interval": "30 s"}
    found = {
        v: [c.key for c in plan_of(settings, replace(MODEL, engine=flink(v))).changes] for v in ("1.13.6", "2.3.0")
    }

    assert found["1.13.6"] == [f"{_CP}unaligned", f"{_CP}alignment-timeout", f"{_CP}interval"]
    assert found["2.3.0"] == [f"{_CP}unaligned.enabled", f"{_CP}aligned-checkpoint-timeout", f"{_CP}interval"]
