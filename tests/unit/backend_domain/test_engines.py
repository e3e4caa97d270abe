"""Tests of an engine's capabilities: they follow from the version, and the store does not change them."""

from __future__ import annotations

import pytest

from backend.domain.engines import FLINK, RUNTIME, SPARK, EngineCapabilities, described, flink
from backend.domain.stored_form import engine_from
from backend.store.schema.documents import capabilities_document

TOY = EngineCapabilities(kind="toy", name="Toy", source="a toy", has_subtasks=True)


@pytest.mark.parametrize(
    ("version", "key", "file", "has_timeout"),
    [
        ("1.13.6", "execution.checkpointing.unaligned", "conf/flink-conf.yaml", False),
        ("1.15.4", "execution.checkpointing.unaligned", "conf/flink-conf.yaml", False),
        ("1.16.3", "execution.checkpointing.unaligned", "conf/flink-conf.yaml", True),
        ("1.18.1", "execution.checkpointing.unaligned.enabled", "conf/flink-conf.yaml", True),
        ("1.19.0", "execution.checkpointing.unaligned.enabled", "conf/config.yaml", True),
        ("2.3.0", "execution.checkpointing.unaligned.enabled", "conf/config.yaml", True),
        ("odd", "execution.checkpointing.unaligned.enabled", "conf/config.yaml", True),
        (None, "execution.checkpointing.unaligned.enabled", "conf/config.yaml", True),
    ],
)
def test_flink_has_the_settings_of_its_version(version, key, file, has_timeout):
    engine = flink(version)

    assert (engine.settings.unaligned, engine.settings_file) == (key, file)
    assert engine.has_aligned_timeout is has_timeout
    assert engine.has_buffer_debloating is (version != "1.13.6")
    assert not engine.has_in_flight_cap


@pytest.mark.parametrize("engine", [FLINK, flink("1.13.6"), RUNTIME, SPARK, TOY], ids=lambda e: e.kind)
def test_an_engine_comes_back_from_the_store_as_it_was_handed_in(engine):
    document = capabilities_document(engine)

    assert engine_from(document, engine.kind, None) == engine
    assert "has_unique_run_ids" not in document or engine.has_unique_run_ids


def test_a_row_without_capabilities_is_described_by_kind_and_version():
    assert engine_from(None, "flink", "1.13.6") == flink("1.13.6")
    assert [described(k) for k in ("flink", "runtime", "spark")] == [FLINK, RUNTIME, SPARK]
    assert described("other") == EngineCapabilities(kind="other", name="other", source="other")


def test_what_a_newer_version_wrote_is_dropped_if_it_is_not_known():
    document = {**capabilities_document(TOY), "has_wings": True, "restore_rules": "of-tomorrow"}

    assert engine_from(document, "toy", None) == TOY
