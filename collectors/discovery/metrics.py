"""The metrics of the sources of targets: the file, and each section in it."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from collectors.discovery.section import SectionState
from collectors.targets_file import WatchState


def source_metrics(file: WatchState, sections: Mapping[str, SectionState]) -> list[Metric]:
    """Return what this process knows of each source. A source that was never read has no time of its reading."""
    up = GaugeMetricFamily("barrierscope_target_source_up", "Whether the newest content was taken.", labels=["source"])
    count = GaugeMetricFamily(
        "barrierscope_target_source_targets", "The targets that the source declares.", labels=["source"]
    )
    read = GaugeMetricFamily(
        "barrierscope_target_source_last_read_timestamp_seconds",
        "When the source was last read without a problem.",
        labels=["source"],
    )
    failures = CounterMetricFamily(
        "barrierscope_target_source_failures", "How often the source could not be read.", labels=["source"]
    )
    left_out = GaugeMetricFamily(
        "barrierscope_target_source_left_out",
        "The entries that are no targets and the namespaces that may not be read.",
        labels=["source"],
    )
    states: dict[str, WatchState | SectionState] = {file.source: file, **sections}
    for source, state in states.items():
        up.add_metric([source], float(state.problem is None and state.read_at is not None))
        count.add_metric([source], state.target_count)
        failures.add_metric([source], state.failure_count)
        if state.read_at is not None:
            read.add_metric([source], state.read_at.timestamp())
    for source, section in sections.items():
        left_out.add_metric([source], section.left_out_count)
    return [up, count, read, failures, left_out]
