"""A request for a simulation is checked before it is queued, and a refusal names the limit and what to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.contracts.simulations import SimulationIn, simulation_id_of
from backend.domain.errors import InvalidInputError, TooLargeError
from backend.runtime.core.elements import SnapshotType
from backend.runtime.demo import demo_names, demo_path
from backend.runtime.engine.jobfile import load_job
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.config import KEYS, FinishProtocol, Initiation, StateBackend
from backend.runtime.job.setting_words import SettingGroup
from backend.runtime.protocols.registry import MODES, mode_of
from backend.services.simulations.catalog import LIMITS, catalog, plan, record_steps_per_s
from backend.services.simulations.offered_settings import COMMON

_INTERVAL = "execution.checkpointing.interval"
_AT_ONCE = "execution.checkpointing.max-concurrent-checkpoints"


def _request(**changed):
    return SimulationIn(**{"shape": "backpressured", "protocol": "aligned", "duration_s": 20.0} | changed)


def test_each_protocol_of_the_runtime_can_be_chosen():
    chosen = [plan(_request(protocol=p.name))[0].spec.config for p in catalog().protocols]

    assert {mode_of(config, SnapshotType.CHECKPOINT).name for config in chosen} == {mode.name for mode in MODES}
    assert {config.state_backend for config in chosen if config.is_incremental} == {*StateBackend} - {StateBackend.FULL}
    assert {config.initiation for config in chosen if config.is_chandy_lamport} == {*Initiation}


def test_each_way_to_finish_can_be_chosen_and_the_other_protocols_keep_that_of_the_job():
    chosen = {p.name: plan(_request(protocol=p.name, shape="bounded"))[0].spec.config for p in catalog().protocols}

    for finish in (FinishProtocol.REVISED, FinishProtocol.LEGACY):
        assert chosen[f"finish-{finish}"].finish_protocol is finish
    assert chosen["aligned"].finish_protocol is FinishProtocol.REVISED


def test_each_setting_of_the_runtime_is_open_or_decided_by_the_protocols():
    found = catalog()
    decided = {key for p in found.protocols for key in p.settings}

    assert {s.key for s in found.settings} | decided == set(KEYS)
    assert {s.group for s in found.settings} <= set(SettingGroup)


def test_a_protocol_offers_only_what_has_an_effect_with_it_and_its_own_amount_but_not_its_own_kind():
    users = {s.key: s.protocols for s in catalog().settings}

    assert users["runtime.chandy-lamport.log-until"] == ["chandy-lamport", "chandy-lamport-all"]
    assert users["runtime.inflight-cap.bytes"] == users["runtime.inflight-cap.on-cap"] == ["capped"]
    assert users["runtime.unaligned.front-input"] == ["last-barrier"]
    assert users["runtime.phase-order"] is None
    assert not {"runtime.chandy-lamport.enabled", "runtime.unaligned.starts-with", "runtime.state-backend"} & set(users)


@pytest.mark.parametrize("protocol", [p.name for p in catalog().protocols])
def test_each_setting_of_a_protocol_can_be_at_its_default(protocol):
    used = [s for s in catalog().settings if s.protocols is None or protocol in s.protocols]
    for setting in used:
        if setting.key not in COMMON:
            plan(_request(protocol=protocol, settings={setting.key: setting.default}))


def test_a_contradiction_is_a_sentence_at_the_setting_that_the_request_has():
    with pytest.raises(InvalidInputError) as caught:
        plan(_request(protocol="unaligned", settings={_AT_ONCE: "2", _INTERVAL: "2 s"}))
    (problem,) = caught.value.problems

    assert problem.field == f"settings.{_AT_ONCE}"
    assert problem.problem.startswith("unaligned checkpoints run one at a time; set ")


def test_names_and_titles_of_protocols_are_distinct():
    protocols = catalog().protocols

    assert len({p.name for p in protocols}) == len({p.title for p in protocols}) == len(protocols)
    assert all(p.sentence.endswith(".") for p in protocols)


def test_every_demo_job_has_the_graph_of_a_shape():
    graphs = [plan(_request(shape=shape.name))[0].spec.graph for shape in catalog().shapes]

    assert all(load_job(demo_path(name)).graph in graphs for name in demo_names())


def test_the_order_of_settings_does_not_change_the_id_and_every_field_does():
    one = _request(settings={_INTERVAL: "2 s", "execution.checkpointing.timeout": "9 s"})
    other = _request(settings={"execution.checkpointing.timeout": "9 s", _INTERVAL: "2 s"})
    changes = (
        {"seed": 8},
        {"protocol": "unaligned"},
        {"second_protocol": "capped"},
        {"parallelism": 2},
        {"settings": {}},
    )

    assert simulation_id_of(one) == simulation_id_of(other)
    ids = {simulation_id_of(one.model_copy(update=change)) for change in changes}
    assert len(ids | {simulation_id_of(one)}) == len(changes) + 1


def test_a_setting_of_one_protocol_does_not_change_the_other_one():
    key = "execution.checkpointing.aligned-checkpoint-timeout"
    first, second = plan(_request(second_protocol="aligned-timeout", settings={key: "3 s"}))

    assert second.spec.config.aligned_timeout_us == 3_000_000
    assert first.spec.config.aligned_timeout_us == 0


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"shape": "none"}, "shape"),
        ({"protocol": "none"}, "protocol"),
        ({"second_protocol": "aligned"}, "second_protocol"),
        ({"settings": {"runtime.spiling": "ad-hoc"}}, "settings.runtime.spiling"),
        ({"settings": {"runtime.state-backend": "sst"}}, "settings.runtime.state-backend"),
        ({"settings": {"runtime.phase-order": "S-L-F"}}, "settings.runtime.phase-order"),
        ({"settings": {_INTERVAL: "soon"}}, f"settings.{_INTERVAL}"),
        ({"settings": {"runtime.inflight-cap.bytes": "1 kb"}}, "settings.runtime.inflight-cap.bytes"),
        ({"shape": "middle-straggler", "parallelism": 1}, "parallelism"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(changed, field):
    with pytest.raises(InvalidInputError) as caught:
        plan(_request(**changed))

    assert [p.field for p in caught.value.problems] == [field]
    assert caught.value.problems[0].allowed or "; set " in caught.value.problems[0].problem


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"duration_s": 601.0}, "duration_s", "600 s"),
        ({"parallelism": 33}, "parallelism", "99 subtasks are more than 96"),
        ({"duration_s": 150.0, "settings": {_INTERVAL: "500 ms"}}, "duration_s", "300 checkpoints"),
        ({"duration_s": 400.0}, "duration_s", "run at most"),
    ],
)
def test_a_simulation_that_is_too_large_is_refused_with_the_limit_and_what_to_change(changed, field, words):
    with pytest.raises(TooLargeError) as caught:
        plan(_request(**changed))

    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.fix in str(caught.value)


def test_two_protocols_count_twice():
    duration_s = 0.6 * LIMITS.record_steps_max / record_steps_per_s(plan(_request())[0].spec.graph)
    plan(_request(duration_s=duration_s))

    with pytest.raises(TooLargeError):
        plan(_request(duration_s=duration_s, second_protocol="unaligned"))


@pytest.mark.parametrize("shape", [s.name for s in catalog().shapes])
def test_the_estimate_of_the_records_is_close_to_what_a_run_processes(shape):
    spec = plan(_request(shape=shape))[0].spec
    duration_us = max(10_000_000, *(v.burst_period_us for v in spec.graph.vertices))
    vertices = simulate(spec, duration_us=duration_us, is_size_only=True).to_json()["vertices"]
    processed = sum(sum(v["records_in"]) or sum(v["records_out"]) for v in vertices)

    # The estimate ignores skew, stragglers and ends of inputs, which reduce the number of records in a run.
    assert 0.8 * processed < duration_us / 1_000_000 * record_steps_per_s(spec.graph) < 1.7 * processed


def test_limits_can_be_smaller():
    with pytest.raises(TooLargeError):
        plan(_request(), replace(LIMITS, virtual_max_s=10.0))
