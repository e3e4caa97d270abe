"""Tests of the jobs and the settings of two sides of a comparison."""

from __future__ import annotations

from dataclasses import replace

from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import FLINK
from backend.domain.topology import Topology
from backend.services.checkpoints.compared_jobs import ComparedJob, job_out, names_of, settings_out
from tests.support.observations import TOPOLOGY

UNALIGNED = CheckpointConfig(timeout_ms=60_000, is_unaligned_enabled=True, aligned_timeout_ms=500)
JOB = ComparedJob("j1", "orders", "flink", FLINK, "1.20.0", UNALIGNED, TOPOLOGY)


def _settings(a, b, only=((), ())):
    return {s.name: (s.a, s.b, s.is_different, s.is_known) for s in settings_out(a, b, only)}


def test_settings_that_neither_side_reports_are_left_out_and_differences_are_marked():
    b = replace(JOB, config=CheckpointConfig(timeout_ms=60_000, is_unaligned_enabled=False), topology=Topology(()))

    assert _settings(JOB, b) == {
        "alignment": ("aligned-with-timeout", "aligned", True, True),
        "timeout_ms": (60_000, 60_000, False, True),
        "is_unaligned_enabled": (True, False, True, True),
        "aligned_timeout_ms": (500, None, True, True),
        "engine": ("Flink", "Flink", False, True),
        "engine_version": ("1.20.0", "1.20.0", False, True),
        "parallelism of Source: orders": (3, None, False, False),
        "parallelism of Sink: ledger": (3, None, False, False),
    }


def test_settings_that_are_not_stored_for_a_side_are_not_known_and_no_difference():
    found = _settings(replace(JOB, config=None, engine_version=None), JOB)

    assert found["timeout_ms"] == (None, 60_000, False, False)
    assert found["aligned_timeout_ms"] == (None, 500, False, False), "the side has no settings, so it is not off"
    assert found["engine_version"] == (None, "1.20.0", False, False)
    assert not any(is_different for _, _, is_different, _ in found.values())


def test_a_setting_that_an_engine_does_not_report_is_not_known():
    b = replace(JOB, config=replace(UNALIGNED, state_backend="rocksdb"))

    assert _settings(JOB, b)["state_backend"] == (None, "rocksdb", False, False)


def test_a_vertex_that_only_one_side_has_is_named_and_has_no_parallelism_to_compare():
    only = TOPOLOGY.vertices[1:]
    b = replace(JOB, topology=Topology(TOPOLOGY.vertices[:1]))

    assert "parallelism of Sink: ledger" not in _settings(JOB, b, (only, ()))
    assert (job_out(JOB, only).only_vertices, job_out(JOB, only).only_vertex_count) == (["Sink: ledger"], 1)


def test_two_jobs_are_called_by_what_distinguishes_them():
    assert names_of(JOB, JOB) is None
    assert names_of(JOB, replace(JOB, id="j2", name="payments")) == ("orders", "payments")
    assert names_of(JOB, replace(JOB, id="j2", target_name="eu")) == ("flink", "eu")
    assert names_of(JOB, replace(JOB, id="j2")) == ("j1", "j2")
