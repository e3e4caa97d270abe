"""Models built from recordings of a real Flink 1.20.5, whose job arguments are known.

The jobs have records of 1000 bytes and 4000 keys, of which subtask 2 of the last stage gets 23.8 %.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.model import JobModel, Partitioning
from backend.advisor.twin.model.outcomes import Simulated
from backend.advisor.twin.tiers import calibration, formulas
from backend.advisor.twin.tiers.calibration import calibrated
from backend.analysis.measures.evidence import JobEvidence
from backend.domain import spelling
from backend.domain.advice import Mode
from backend.domain.checkpoint import Checkpoint
from backend.domain.engines import SPARK, flink
from backend.domain.errors import NotModelledError
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.protocols import Protocol
from tests.support.twin_evidence import recorded_evidence

FLINK = flink("1.20.5")


def model_of(name: str) -> JobModel:
    return build(recorded_evidence(name), engine=FLINK, version="1.20.5")


def test_a_back_pressured_job_has_the_service_time_and_record_size_of_its_arguments():
    model = model_of("B2")
    source, middle, last = model.vertices

    assert last.service_us == pytest.approx([4000.0] * 4, rel=0.05)
    assert max(source.service_us + middle.service_us) < 20.0
    assert [e.record_bytes for e in model.edges] == pytest.approx([1029.0] * 2, rel=0.005)
    assert {e.partitioning for e in model.edges} == {Partitioning.HASH}
    assert last.input_shares[2] == min(last.input_shares) == pytest.approx(0.238, abs=0.004)
    # Full subtasks read less than their share; the unevenness of the keys shows in the job without backpressure.
    assert last.input_shares == pytest.approx(model_of("A").vertices[2].input_shares, abs=0.003)
    assert middle.output_ratio == pytest.approx(1.0, abs=0.02)
    assert source.source is not None
    assert source.source.rate_per_s is None
    assert (model.settings.mode, model.settings.interval_ms) == (Mode.ALIGNED, 5000.0)
    assert model.network.segment_bytes == 32 * 1024
    assert {a.subject for a in model.assumptions} == {
        "outage after a failure",
        "speed of the store",
        "rate of Source: main-source",
        "input shares of stage-1",
        "state",
    }


def test_a_job_without_back_pressure_has_the_rate_of_its_source():
    model = model_of("A")

    assert model.vertices[0].source is not None
    assert model.vertices[0].source.rate_per_s == pytest.approx(2000.0, rel=0.01)
    assert model.vertices[2].service_us == pytest.approx([500.0] * 4, rel=0.05)
    assert sum(model.vertices[2].state_bytes) == pytest.approx(844_000, rel=0.05)


def test_an_unaligned_job_and_one_whose_checkpoints_expire_are_modelled():
    assert model_of("C2").settings.mode is Mode.UNALIGNED
    assert model_of("E").vertices[2].service_us == pytest.approx([4100.0] * 4, rel=0.1)


def test_what_is_missing_is_named_with_what_would_help():
    evidence = recorded_evidence("B2")

    def reason(**changes: object) -> str:
        changed = replace(evidence, **changes)  # type: ignore[arg-type]
        with pytest.raises(NotModelledError) as refused:
            build(changed, engine=FLINK, version="1.20.5")
        assert refused.value.fix
        return refused.value.problem

    assert "fewer than two readings" in reason(pressure=evidence.pressure[:3])
    assert "only 2 of the newest checkpoints" in reason(checkpoints=evidence.checkpoints[:2])
    assert "settings" in reason(config=None)
    assert evidence.config is not None
    markers = replace(evidence.config, protocol=Protocol.CHANDY_LAMPORT)
    assert "chandy-lamport" in reason(config=markers)
    assert "checkpoint barriers" in reason(is_micro_batched=True)
    doubled = [replace(r, records_in_count=tuple(3 * (n or 0) for n in r.records_in_count)) for r in evidence.pressure]
    assert "records/s read" in reason(pressure=tuple(doubled))
    _, middle, last = (v.id for v in evidence.topology.vertices)
    idle = {"busy_ratio": (0.0,) * 4, "backpressured_ratio": (0.0,) * 4, "idle_ratio": (1.0,) * 4}

    def unread(vertex_id: VertexId) -> tuple[VertexPressure, ...]:
        return tuple(
            replace(r, records_in_count=(5,) * 4, **idle) if r.vertex_id == vertex_id else r for r in evidence.pressure
        )

    assert "records/s sent and stage-1 0 records/s read" in reason(pressure=unread(middle))
    assert "are the same in its last" in reason(pressure=unread(last))
    tenth = dict.fromkeys(idle, (0.1,) * 4)
    assert "busy, back-pressured or idle for 30 % of the time in all" in reason(
        pressure=tuple(replace(r, **tenth) for r in evidence.pressure)
    )
    longest = max(c.header.end_to_end_duration_ms or 0 for c in evidence.checkpoints)
    aligned = [
        replace(c, details=tuple(replace(d, alignment_duration_ms=(2 * longest,) * d.subtask_count) for d in c.details))
        for c in evidence.checkpoints
    ]
    assert f"an alignment of {spelling.duration(2 * longest)}" in reason(checkpoints=tuple(aligned))
    with pytest.raises(NotModelledError, match="let the collector read"):
        build(evidence, engine=FLINK, version=None)
    with pytest.raises(NotModelledError, match="reports '<unknown>' as its version"):
        build(evidence, engine=FLINK, version="<unknown>")
    with pytest.raises(NotModelledError, match="barriers"):
        build(evidence, engine=SPARK, version="4.0")


@pytest.mark.parametrize(("version", "assumed"), [("2.3.0", []), ("2.4-rc1", ["as in 2.3"]), ("10.0", ["as in 2.3"])])
def test_a_version_newer_than_any_compared_one_is_named_among_the_assumptions(version, assumed):
    model = build(recorded_evidence("B2"), engine=flink(version), version=version)
    assert [a.taken for a in model.assumptions if a.subject == "rules of Flink"] == assumed


def test_a_calibration_scores_later_checkpoints_that_the_model_has_not_seen():
    evidence = recorded_evidence("B2")
    simulated: list[JobModel] = []

    def simulate(model: JobModel) -> list[Simulated]:
        simulated.append(model)
        return [formulas.simulate(model)]

    model = calibrated(evidence, engine=FLINK, version="1.20.5", simulate=simulate)

    found = model.calibration
    assert found is not None
    assert max(found.fitted_ids) < min(found.scored_ids)
    assert [e.sample_count for e in found.errors if e.measure == "duration_ms"] == [len(found.scored_ids)]
    (duration,) = (e for e in found.errors if e.measure == "duration_ms")
    assert 5000 < duration.measured < 6000
    (expired,) = (e for e in found.errors if e.measure == "expired_ratio")
    assert (expired.unit, expired.measured, expired.sample_count) == ("ratio", 0.0, len(found.scored_ids))
    # The model that was scored knows nothing of the later part: its counts are lower, and so is its confidence.
    (fitted,) = simulated
    assert fitted.vertices[2].input_shares != model.vertices[2].input_shares
    assert replace(model, calibration=None) == build(evidence, engine=FLINK, version="1.20.5")


def test_the_model_that_is_scored_was_built_from_nothing_of_the_later_window(monkeypatch: pytest.MonkeyPatch):
    evidence = recorded_evidence("B2")
    built: list[JobEvidence] = []

    def remembering(one: JobEvidence, **more: Any) -> JobModel:
        built.append(one)
        return build(one, **more)

    monkeypatch.setattr(calibration, "build", remembering)
    model = calibrated(evidence, engine=FLINK, version="1.20.5", simulate=lambda m: [formulas.simulate(m)])

    assert model.calibration is not None
    whole, past = built
    assert whole == evidence
    later = next(c for c in evidence.checkpoints if c.header.checkpoint_id == min(model.calibration.scored_ids))
    until = later.header.triggered_at
    assert {c.header.checkpoint_id for c in past.checkpoints} == set(model.calibration.fitted_ids)
    assert max(r.observed_at for r in past.pressure) <= past.now == until
    assert len(past.pressure) < len(evidence.pressure)


def test_too_few_checkpoints_to_divide_leave_a_model_without_calibration():
    evidence = recorded_evidence("B2")

    model = calibrated(replace(evidence, checkpoints=evidence.checkpoints[:4]), engine=FLINK, version="1.20.5")

    assert model.calibration is None


def test_a_job_whose_state_grows_is_modelled_as_it_is_and_the_growth_is_said():
    evidence = recorded_evidence("A")
    last = evidence.topology.vertices[-1]

    def grown(number: int, checkpoint: Checkpoint) -> Checkpoint:
        details = (
            replace(d, full_state_size_bytes=tuple((v or 0) + number * 1_000_000 for v in d.full_state_size_bytes))
            if d.vertex_id == last.id
            else d
            for d in checkpoint.details
        )
        return replace(checkpoint, details=tuple(details))

    growing = replace(evidence, checkpoints=tuple(grown(n, c) for n, c in enumerate(evidence.checkpoints)))
    said = [
        [a for a in build(e, engine=FLINK, version="1.20.5").assumptions if a.subject.startswith("state of")]
        for e in (evidence, growing)
    ]

    assert said[0] == []
    assert [a.subject for a in said[1]] == [f"state of {last.name}"]
    # Four subtasks grow by 1 MB every 5 s: 69 GB a day.
    assert "it grew by 69." in said[1][0].reason
