"""Tests of the registry: what a role may declare, and what the process says of itself."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from backend.metrics.registry import FORBIDDEN, REGISTRY, counter, describe_process, gauge, register


@pytest.mark.parametrize("label", sorted(FORBIDDEN))
def test_a_metric_with_a_label_that_prometheus_sets_is_refused(label):
    with pytest.raises(ValueError, match=label):
        gauge("barrierscope_refused", "x", ("target", label))


def test_a_metric_of_another_name_is_refused():
    with pytest.raises(ValueError, match="does not begin"):
        counter("polls", "x")


def test_a_source_is_read_at_each_scrape_until_it_is_unregistered():
    registry, values = CollectorRegistry(auto_describe=False), iter((1, 2, 3))
    end = register(lambda: [GaugeMetricFamily("barrierscope_x", "x", value=next(values))], registry)

    assert b"barrierscope_x 1.0" in generate_latest(registry)
    assert b"barrierscope_x 2.0" in generate_latest(registry)
    end()
    assert generate_latest(registry) == b""


def test_a_process_says_its_role_its_version_and_its_memory():
    registry = CollectorRegistry(auto_describe=False)
    describe_process("collect", "1.2.3", registry)

    text = generate_latest(registry).decode()
    assert 'barrierscope_build_info{role="collect",version="1.2.3"} 1.0' in text
    assert "process_resident_memory_bytes " in text


def test_a_process_that_is_described_twice_has_each_series_once():
    describe_process("api", "1.2.3")
    describe_process("api", "1.2.3")

    assert generate_latest(REGISTRY).decode().count("\nprocess_resident_memory_bytes ") == 1


def test_counters_have_no_second_series_with_their_beginning():
    counted = counter("barrierscope_counted_in_a_test", "x")
    counted.inc()

    text = generate_latest(REGISTRY).decode()
    REGISTRY.unregister(counted)
    assert "barrierscope_counted_in_a_test_total 1.0" in text
    assert "_created" not in text
