"""Tests of stored JSON documents and blobs: they are read back unchanged, even documents of other versions."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import orjson
import pytest

from backend.domain import stored_form
from backend.domain.checkpoint import CheckpointConfig, RestoredFrom
from backend.domain.engines import FLINK, RUNTIME, SPARK, EngineCapabilities, SettingKeys, flink
from backend.domain.topology import Topology
from backend.store.postgres.encoding import dump
from backend.store.schema import documents
from tests.support.observations import CONFIG, NOW, SOURCE, TOPOLOGY, barrier_events, detail, in_progress, job, progress


def _stored(document):
    return orjson.loads(dump(document))


def test_graph_settings_placements_and_counts_are_read_back():
    seen = job()
    assert seen.counts is not None
    assert stored_form.topology_from(_stored(documents.topology_document(TOPOLOGY))) == TOPOLOGY
    assert stored_form.config_from(_stored(documents.config_document(CONFIG))) == CONFIG
    assert stored_form.placements_from(_stored(seen.placements)) == seen.placements
    assert stored_form.counts_from(_stored(seen.counts)) == seen.counts
    origin = RestoredFrom(7, False, "runtime:/a/chk-7", "orders", "aligned checkpoint", True, ("work:keyed",), 3)
    for restored_from in (origin, RestoredFrom(3, True)):
        counts = replace(seen.counts, restored=1, restored_at=NOW, restored_from=restored_from)
        assert stored_form.counts_from(_stored(counts)) == counts


def test_a_document_that_was_never_stored_is_missing():
    assert stored_form.topology_from(None) == Topology(())
    assert stored_form.config_from(None) is None
    assert stored_form.counts_from(None) is None
    assert stored_form.placements_from(None) == ()
    assert documents.details_from({}) == ()


def test_in_a_document_of_another_version_absent_fields_are_missing_and_unknown_ones_ignored():
    older = {"interval_ms": 5, "of_a_later_version": 1}
    assert stored_form.config_from(older) == CheckpointConfig(interval_ms=5)


@pytest.mark.parametrize("engine", [FLINK, flink("1.13.6"), flink("1.17.2"), RUNTIME, SPARK], ids=lambda e: e.name)
def test_an_engine_is_read_back_with_its_capabilities(engine):
    read = stored_form.engine_from(_stored(documents.capabilities_document(engine)), engine.kind, None)

    assert read == engine
    # A member of an enumeration equals its text, but is asked for by identity.
    assert {f.name: type(getattr(read, f.name)) for f in fields(read)} == {
        f.name: type(getattr(engine, f.name)) for f in fields(engine)
    }


def test_an_engine_whose_collector_left_its_texts_empty_is_shown_by_its_kind():
    stored = _stored(documents.capabilities_document(EngineCapabilities(kind="toy", name="", source="")))

    assert stored_form.engine_from(stored, "toy", None) == EngineCapabilities(kind="toy", name="toy", source="toy")


def test_an_engine_whose_stored_settings_are_not_a_mapping_has_no_settings():
    read = stored_form.engine_from({"name": "Toy", "settings": "none"}, "toy", None)

    assert (read.name, read.settings) == ("Toy", SettingKeys())


def test_progress_is_read_back_with_its_details():
    seen = progress(4, 5, NOW)
    details = (detail(SOURCE, 4, missing=(1,)),)
    document = _stored(documents.progress_document(seen, details))

    back = replace(seen, **documents.progress_parts(document))

    assert asdict(back) == asdict(seen) | {"late_barriers": ()}
    assert documents.details_from(document) == details
    assert documents.details_from(_stored(documents.progress_document(None, in_progress(1).details))) == ()


def test_barrier_events_are_read_back_in_order_and_stored_compactly():
    events = barrier_events(500)
    blob = documents.barriers_blob(events)

    assert documents.barriers_from(blob) == events
    assert len(blob) < 20 * len(events)
