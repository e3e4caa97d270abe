"""Settings as people and engines write them become a what-if, and what is wrong with them is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.twin.asking.asking import asked_of, names_of, problems_of_every_job, settings_of, varied
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.domain.advice import Mode
from backend.domain.engines import FLINK, RUNTIME, flink
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import VertexId
from tests.support.twin_models import three_vertices

MODEL = replace(three_vertices(rate_per_s=1000.0), engine=RUNTIME)
_CP = "execution.checkpointing."


@pytest.mark.parametrize(
    ("settings", "what_if"),
    [
        ({}, WhatIf()),
        ({"mode": "unaligned"}, WhatIf(mode=Mode.UNALIGNED)),
        ({f"{_CP}unaligned.enabled": "true"}, WhatIf(mode=Mode.UNALIGNED)),
        ({f"{_CP}unaligned.enabled": "false"}, WhatIf(mode=Mode.ALIGNED)),
        (
            {f"{_CP}unaligned.enabled": "true", f"{_CP}aligned-checkpoint-timeout": "1 s"},
            WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=1000.0),
        ),
        ({"aligned-timeout": "0"}, WhatIf(mode=Mode.UNALIGNED, aligned_timeout_ms=0.0)),
        ({"in-flight-cap": "64 kb"}, WhatIf(inflight_cap_bytes=65_536)),
        ({"in-flight-cap": "off"}, WhatIf(is_uncapped=True)),
        ({"debloating": "1 s"}, WhatIf(debloat_target_ms=1000.0)),
        ({"taskmanager.network.memory.buffer-debloat.enabled": "false"}, WhatIf(is_debloat_off=True)),
        ({"interval": "30s", "min-pause": "100"}, WhatIf(interval_ms=30_000.0, min_pause_ms=100.0)),
        ({f"{_CP}timeout": "10 min"}, WhatIf(timeout_ms=600_000.0)),
        ({"load": "150 %"}, WhatIf(load_factor=1.5)),
        ({"without-skew": "true", "without-slow-host": "false"}, WhatIf(without_skew=True)),
        ({"parallelism.sink": "8"}, WhatIf(parallelism=((VertexId("sink"), 8),))),
    ],
)
def test_settings_become_a_what_if(settings, what_if):
    assert asked_of(MODEL, settings).what_if == what_if


def test_the_same_what_if_has_the_same_settings():
    ours = asked_of(MODEL, {"mode": "aligned-with-timeout", "aligned-timeout": "1000"})
    engines = asked_of(MODEL, {f"{_CP}unaligned.enabled": "true", f"{_CP}aligned-checkpoint-timeout": "1 s"})

    assert ours == engines
    assert ours.settings == {"mode": "aligned-with-timeout", "aligned-timeout": "1000 ms"}
    assert asked_of(MODEL, ours.settings) == ours


def test_everything_that_is_wrong_is_listed():
    wrong = {"colour": "red", "mode": "fast", "interval": "soon", "load": "-1", "parallelism.none": "2",
             "parallelism.sink": "many", "without-skew": "maybe"}  # fmt: skip
    with pytest.raises(InvalidInputError) as caught:
        asked_of(MODEL, wrong)

    assert [p.field for p in caught.value.problems] == [f"settings.{key}" for key in wrong]
    assert "aligned-with-timeout" in caught.value.problems[1].allowed
    assert "parallelism.sink (sink)" in caught.value.problems[4].allowed


def test_a_setting_under_two_names_is_refused():
    with pytest.raises(InvalidInputError, match="is set twice"):
        asked_of(MODEL, {"interval": "1 s", f"{_CP}interval": "2 s"})


def test_a_range_is_divided_by_ratios_if_it_is_wide_and_by_differences_otherwise():
    wide = varied(MODEL, "interval", "1 s", "100 s", 3)
    narrow = varied(MODEL, "load", "1", "2", 3)

    assert [v["interval"] for v in wide] == ["1000 ms", "10000 ms", "100000 ms"]
    assert [v["load"] for v in narrow] == ["1", "1.5", "2"]
    assert [v["parallelism.sink"] for v in varied(MODEL, "parallelism.sink", "2", "4", 9)] == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("key", "low", "high", "words"),
    [
        ("mode", "aligned", "unaligned", "has no range"),
        ("without-skew", "false", "true", "has no range"),
        ("interval", "5 s", "5 s", "is not above"),
        ("interval", "x", "5 s", "cannot be read"),
        ("interval", "5 s", "366 d", "longer than a year"),
        ("colour", "1", "2", "is not a setting"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(key, low, high, words):
    with pytest.raises(InvalidInputError, match=words):
        varied(MODEL, key, low, high, 5)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("intervall", "interval"),
        ("checkpoint_timeout", "checkpoint-timeout"),
        ("aligned-timout", "aligned-timeout"),
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("aligned-checkpoint-timeout", "execution.checkpointing.aligned-checkpoint-timeout"),
    ],
)
def test_a_mistyped_setting_is_answered_with_the_nearest_names(key, nearest):
    with pytest.raises(InvalidInputError) as refused:
        asked_of(MODEL, {key: "1 s"})

    (problem,) = refused.value.problems
    assert problem.allowed.startswith(nearest)
    assert problem.allowed.endswith("; barrierscope whatif --help lists all names")
    assert problem.allowed.count(",") <= 2


def test_a_setting_that_resembles_none_is_answered_with_our_names():
    with pytest.raises(InvalidInputError) as refused:
        asked_of(MODEL, {"colour": "red"})

    assert refused.value.problems[0].allowed == (
        "mode, aligned-timeout, in-flight-cap, debloating, interval, min-pause, checkpoint-timeout, load, without-skew,"
        " without-slow-host, parallelism.VERTEX; or the engine's own keys of these"
    )


def test_the_settings_have_their_current_value_among_their_values():
    found = {s.name: s for s in settings_of(MODEL)}

    assert found["interval"].current == "3000 ms"
    assert all(s.current in s.values for s in found.values() if s.current is not None)
    assert found["parallelism.sink"].vertex_id == "sink"
    assert found["without-slow-host"].why_not == "no slow host was found in this job"
    assert found["load"].why_not is None


def test_settings_that_do_not_apply_say_why():
    of_flink = {s.name: s.why_not for s in settings_of(replace(three_vertices(), engine=FLINK))}

    assert of_flink["in-flight-cap"] == "Flink has no limit for in-flight data of checkpoints"
    assert "rate of a source is not known" in of_flink["load"]


def test_problems_of_a_what_if_get_the_names_of_the_settings():
    problems = [FieldProblem("load_factor", "p"), FieldProblem("parallelism[sink]", "q")]

    named = [p.field for p in names_of(problems, {"load": "2", "parallelism.sink": "8"})]

    assert named == ["settings.load", "settings.parallelism.sink"]


_REFUSED = [
    ({"interval": "soon"}, "interval", "'soon' cannot be read"),
    ({"interval": "1 ms"}, "interval", "is too small"),
    ({"interval": "366 d"}, "interval", "longer than a year"),
    ({f"{_CP}interval": "0"}, "interval", "is too small"),
    ({"checkpoint-timeout": "9 ms"}, "checkpoint-timeout", "is too small"),
    ({"min-pause": "-1 s"}, "min-pause", "cannot be read"),
    ({"mode": "fast"}, "mode", "is not a mode"),
    ({"load": "101"}, "load", "out of bounds"),
    ({"load": "0"}, "load", "cannot be read"),
    ({"in-flight-cap": "much"}, "in-flight-cap", "cannot be read"),
    ({"mode": "aligned", "in-flight-cap": "1 mb"}, "in-flight-cap", "persist no in-flight data"),
    ({"debloating": "0"}, "debloating", "is too small"),
    ({"without-skew": "maybe"}, "without-skew", "neither true nor false"),
    ({f"{_CP}unaligned.enabled": "maybe"}, f"{_CP}unaligned.enabled", "neither true nor false"),
    ({"parallelism.sink": "0"}, "parallelism.sink", "is not a number of subtasks"),
    ({"parallelism.sink": "5000"}, "parallelism", "would have 5000 subtasks"),
    ({"parallelism.": "2"}, "parallelism.", "names no vertex"),
    ({"mode": "aligned", "aligned-timeout": "1 s"}, "aligned-timeout", "have no aligned timeout"),
    ({"mode": "unaligned", "aligned-timeout": "1 s"}, "aligned-timeout", "do not wait"),
    ({"mode": "aligned-with-timeout", "aligned-timeout": "0"}, "aligned-timeout", "makes every checkpoint unaligned"),
    ({f"{_CP}unaligned.enabled": "false", "in-flight-cap": "1 mb"}, "in-flight-cap", "persist no in-flight data"),
    ({"interval": "1 s", f"{_CP}interval": "2 s"}, f"{_CP}interval", "is set twice"),
    ({"colour": "red"}, "colour", "is not a setting"),
]


@pytest.mark.parametrize(("settings", "field", "words"), _REFUSED, ids=[str(row[0]) for row in _REFUSED])
def test_what_every_job_refuses_is_found_without_a_job(settings, field, words):
    (problem,) = problems_of_every_job(settings, where="--set")

    assert problem.field in (f"--set.{field}", field)
    assert words in problem.problem
    # The job that the setting is meant for refuses it too.
    with pytest.raises(InvalidInputError):
        changed(MODEL, asked_of(MODEL, settings).what_if)


@pytest.mark.parametrize(
    "settings",
    [
        {"interval": "10 ms", "checkpoint-timeout": "365 d", "min-pause": "0"},
        {"mode": "aligned-with-timeout", "aligned-timeout": "1 s", "in-flight-cap": "off", "debloating": "off"},
        {f"{_CP}unaligned.enabled": "true", "in-flight-cap": "64 kb"},
        # The key of Flink before 1.19.
        {f"{_CP}unaligned": "true", f"{_CP}aligned-checkpoint-timeout": "1 s"},
        {"runtime.inflight-cap.bytes": "64 kb", f"{_CP}interval": "5 s"},
        {"load": "150 %", "without-skew": "true", "without-slow-host": "false", "parallelism.any vertex": "4096"},
        # Each of these depends on the present mode of the job.
        {"in-flight-cap": "1 mb"},
        {"mode": "aligned-with-timeout"},
        {"aligned-timeout": "0"},
    ],
    ids=str,
)
def test_what_some_job_may_take_is_not_refused_without_a_job(settings):
    assert problems_of_every_job(settings) == []


@pytest.mark.parametrize("version", ["1.13.6", "1.16.3", "1.18.1", "2.3.0"])
def test_a_setting_of_flink_is_read_under_each_of_its_names(version):
    model = replace(MODEL, engine=flink(version))
    names = ({f"{_CP}unaligned": "true"}, {f"{_CP}unaligned.enabled": "true"})

    assert [asked_of(model, n).what_if for n in names] == [WhatIf(mode=Mode.UNALIGNED)] * 2
    zero = ({"aligned-timeout": "0"}, {f"{_CP}alignment-timeout": "0"}, {f"{_CP}aligned-checkpoint-timeout": "0"})
    assert {asked_of(model, n).what_if.aligned_timeout_ms for n in zero} == {0.0}
    with pytest.raises(InvalidInputError, match="is set twice"):
        asked_of(model, {**names[0], **names[1]})


@pytest.mark.parametrize("version", ["1.13.6", "1.15.4"])
def test_an_aligned_timeout_that_stops_at_the_senders_is_refused_with_the_reason(version):
    model = replace(MODEL, engine=flink(version))
    (setting,) = [s for s in settings_of(model) if s.name == "aligned-timeout"]

    assert "FLINK-27251" in setting.why_not
    changed(model, asked_of(model, {"aligned-timeout": "0"}).what_if)
    with pytest.raises(InvalidInputError, match="FLINK-27251"):
        changed(model, asked_of(model, {"aligned-timeout": "1 s"}).what_if)
    changed(replace(MODEL, engine=flink("1.16.3")), asked_of(MODEL, {"aligned-timeout": "1 s"}).what_if)
