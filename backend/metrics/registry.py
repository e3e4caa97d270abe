"""The metrics of this process. A role declares its metrics here, each with one call.

Every name begins with ``barrierscope_`` and ends with its unit. A time is a timestamp and not an age, because an age
stops growing when the process that exports it does. Label values must come from a set that does not grow: no subtask,
no checkpoint except the path of a job's newest one, and no text of a user except the names of targets and jobs and the
labels of targets. A value that is not known has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

PREFIX: Final = "barrierscope_"
FORBIDDEN: Final = frozenset({"job", "instance"})
"""The labels that Prometheus sets on everything that it scrapes."""
SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of durations, in seconds."""

# Without this, each counter has a second series with the time at which it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry(auto_describe=False)
"""The metrics of this process."""
_is_described = False

Read = Callable[[], Iterable[Metric]]


class _Reading:
    """A source of metrics that are read at each scrape."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        return ()


def counter(name: str, words: str, labels: Sequence[str] = ()) -> Counter:
    """Declare a counter of this process. The exposition adds ``_total`` to its name."""
    return Counter(_checked(name, labels), words, labels, registry=REGISTRY)


def gauge(name: str, words: str, labels: Sequence[str] = ()) -> Gauge:
    """Declare a value of this process that can rise and fall."""
    return Gauge(_checked(name, labels), words, labels, registry=REGISTRY)


def histogram(name: str, words: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> Histogram:
    """Declare the distribution of durations in seconds, with the upper bounds of its buckets."""
    return Histogram(_checked(name, labels), words, labels, registry=REGISTRY, buckets=buckets)


def summary(name: str, words: str, labels: Sequence[str] = ()) -> Summary:
    """Declare a number of events and the sum of their durations in seconds."""
    return Summary(_checked(name, labels), words, labels, registry=REGISTRY)


def register(read: Read, registry: CollectorRegistry = REGISTRY) -> Callable[[], None]:
    """Read these metrics at each scrape, in a thread. Return a function that ends this.

    ``read`` must not wait for anything: it returns what the process knows already.
    """
    source = _Reading(read)
    registry.register(source)
    return lambda: registry.unregister(source)


def describe_process(role: str, version: str, registry: CollectorRegistry = REGISTRY) -> None:
    """Add what is known of the process itself: its role, its version, its memory, files and processor time.

    Further calls change nothing.
    """
    global _is_described
    if registry is REGISTRY:
        if _is_described:
            return
        _is_described = True
    info = GaugeMetricFamily(PREFIX + "build_info", "Always 1. The role and the version.", labels=("role", "version"))
    info.add_metric((role, version), 1)
    register(lambda: (info,), registry)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)


def _checked(name: str, labels: Sequence[str]) -> str:
    if not name.startswith(PREFIX):
        raise ValueError(f"the metric {name!r} does not begin with {PREFIX!r}")
    if clash := FORBIDDEN.intersection(labels):
        raise ValueError(f"the metric {name!r} has a label that Prometheus sets: {', '.join(sorted(clash))}")
    return name
