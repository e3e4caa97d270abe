"""Builds the model of a job from its evidence, and says what had to be assumed.

The model is built from two kinds of readings: counts, busy times and queues of each subtask (``flows``), and the phases
of its checkpoints (``snapshots``). A value that neither shows is assumed, and the model lists it with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.twin.model import snapshots
from backend.advisor.twin.model.bursts import with_hidden_heights
from backend.advisor.twin.model.callbacks import Callback, callback_of, with_callback
from backend.advisor.twin.model.exchanges import ExchangeModels
from backend.advisor.twin.model.flows import slow_host_factors
from backend.advisor.twin.model.hung_writes import hangs_assumption, hangs_of
from backend.advisor.twin.model.input_shares import InputShares
from backend.advisor.twin.model.model import JobModel, StoreModel
from backend.advisor.twin.model.observed import ObservedJob
from backend.advisor.twin.model.outages import LOST_WORKER_MS, RESTART_MS, Outages, outages_of
from backend.advisor.twin.model.vertices import VertexModels, service_times
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.engines import EngineCapabilities
from backend.domain.verdict import Basis

_UNKNOWN_TRIGGER: Final = Interval(5.0, 1.0, 50.0)


def build(evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None) -> JobModel:
    """Return the model of the job, without calibration.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence; the message has what is missing, and what
            would help.
    """
    job = ObservedJob(evidence, engine, version)
    # The order of these steps is that of the assumptions in the model.
    callback = callback_of(evidence, job.recorded, job.flows)
    store, is_store_measured = _store(job)
    services = service_times(job)
    exchanges = ExchangeModels(job)
    network = exchanges.network()
    busy = {v.id: np.nan_to_num(job.flows[v.id].busy) for v in job.topology.vertices}
    slow = slow_host_factors(services, busy, evidence.placements)
    has_callback = isinstance(callback, Callback)
    models = VertexModels(job, store, InputShares(job, network, services), services, has_callback=has_callback)
    vertices = tuple(models.vertex(v, slow.get(v.id)) for v in job.topology.vertices)
    if isinstance(callback, Callback):
        vertices = with_callback(vertices, callback, busy[callback.vertex_id])
        job.assumptions.append(callback.assumption(job.name(callback.vertex_id)))
    elif callback is not None:
        job.assumptions.append(callback)
    edges = tuple(exchanges.edge(e.source, e.target, e.ship_strategy) for e in job.topology.edges)
    state = snapshots.state_assumption(vertices)
    job.assumptions += [] if state is None else [state]
    trigger, outage = _trigger_delay(job), _outage(job)
    model = JobModel(
        vertices=vertices,
        edges=edges,
        network=network,
        store=store,
        settings=job.settings,
        trigger_delay_ms=trigger,
        assumptions=tuple(job.assumptions),
        bases=_bases(is_store_measured=is_store_measured, is_outage_known=outage is not None),
        age_ms=1000 * max(f.age_s for f in job.flows.values()),
        outage_ms=None if outage is None else outage.outage_ms,
        is_outage_of_lost_worker=outage is not None and outage.is_worker_lost,
        engine=engine,
    )
    held = {v: float(np.nan_to_num(job.flows[v].backpressured).mean()) for v in models.bursts}
    return with_hidden_heights(model, models.bursts, held)


def _store(job: ObservedJob) -> tuple[StoreModel, bool]:
    """Return the store, with the writes that hang, and whether its speed was measured."""
    store, is_measured = snapshots.store_of(job.recorded, job.hung, job.topology, job.evidence.config)
    if not is_measured:
        job.assume(
            "speed of the store",
            f"{store.bytes_per_ms / 1000:.0f} MB/s for each subtask",
            "no upload was large enough to measure it",
        )
    if job.engine.is_flink_release:  # Small state is in the metadata, and incremental state in several files.
        store = replace(store, small_bytes_per_ms=None)
    store = replace(store, hangs=hangs_of(job.recorded, job.hung, job.settings.schedule))
    job.assumptions += hangs_assumption(store.hangs)
    return store, is_measured


def _trigger_delay(job: ObservedJob) -> Interval:
    sources = [v.id for v in job.topology.vertices if job.is_source(v.id)]
    trigger = snapshots.trigger_delay_of(job.recorded, sources)
    if trigger is None:
        trigger = _UNKNOWN_TRIGGER
        job.assume("trigger delay", f"{trigger.value:g} ms", "no checkpoint reports the start delay of a source")
    return trigger


def _outage(job: ObservedJob) -> Outages | None:
    outage = outages_of(job.recorded, job.evidence.exceptions, job.evidence.config)
    if outage is None:
        taken = (
            f"{RESTART_MS.low / 1000:g} to {RESTART_MS.high / 1000:g} s, and the time to read the state; about"
            f" {LOST_WORKER_MS.value / 1000:.0f} s more if a worker dies, until that is noticed"
        )
        job.assume("outage after a failure", taken, "no checkpoint that a failure delayed is stored")
    return outage


def _bases(*, is_store_measured: bool, is_outage_known: bool) -> tuple[tuple[str, Basis], ...]:
    """Return how each value of the model is known."""
    measured, assumed = Basis.MEASURED, Basis.PREDICTED
    return (
        ("service_us", Basis.RECONSTRUCTED),
        ("input_shares", measured),
        ("source", measured),
        ("record_bytes", measured),
        ("sync_ms", measured),
        ("upload_bytes", measured),
        ("store", Basis.RECONSTRUCTED if is_store_measured else assumed),
        ("network", assumed),
        ("trigger_delay_ms", measured),
        ("outage_ms", Basis.RECONSTRUCTED if is_outage_known else assumed),
    )
