"""How Chandy-Lamport checkpoints are triggered: by messages to the sources, or by messages to all tasks.

An idle job shows the cost, as the number of tasks grows. A job under backpressure and a chain of tasks with synchronous
work show what the messages save, because a marker then takes long to pass a task.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from backend.experiments.measuring import (
    CHANDY_LAMPORT,
    CP,
    THREAD,
    Job,
    Variant,
    busy_job,
    chain_job,
    comparison,
)
from backend.experiments.model import Ordering, about_equal, at_most, below, every
from backend.runtime.engine.jobfile import JobSpec, load_job_document

INITIATIONS: Final = {"sources": "sources", "all tasks": "all-tasks"}
PARALLELISMS: Final = (2, 8, 32)


def wide_job(seed: int, *, parallelism: int) -> JobSpec:
    """Return an idle job of three vertices with Chandy-Lamport checkpoints.

    Sending a trigger message takes the coordinator 1 ms.
    """
    common = {"parallelism": parallelism, "record_bytes": 100, "cost_us": 10}
    document = {
        "name": "triggering",
        "seed": seed,
        "config": {
            f"{CP}interval": "1 h",
            "runtime.chandy-lamport.enabled": True,
            "runtime.cost.trigger": "1 ms",
            "runtime.fuzz-schedule": 1 + seed,
        },
        "vertex": [
            {"id": "source", "kind": "source", "rate": 20 * parallelism, **common},
            {"id": "map", "kind": "map", **common},
            {"id": "sink", "kind": "keyed+sink", "state_bytes": 2_000, **common},
        ],
        "edge": [
            {"from": "source", "to": "map", "partitioner": "rebalance"},
            {"from": "map", "to": "sink", "partitioner": "hash"},
        ],
        "store": {"latency": "20 ms", "bytes_per_s": "100 mb"},
    }
    return load_job_document(document)


def _idle(parallelism: int) -> str:
    return f"idle, {3 * parallelism} tasks"


_JOBS: Final[dict[str, Job]] = {
    **{_idle(p): partial(wide_job, parallelism=p) for p in PARALLELISMS},
    "backpressure": busy_job,
    "sync work, S-F-L": partial(chain_job, sync="100 ms", order="S-F-L"),
    "sync work, F-S-L": partial(chain_job, sync="100 ms", order="F-S-L"),
}
_MANY: Final = _idle(PARALLELISMS[-1])
_BOTH: Final = tuple(INITIATIONS)

TRIGGERING: Final = comparison(
    "triggering",
    "Chandy-Lamport: messages to the sources or to all tasks",
    "What triggering every task costs the coordinator and the store, and what it saves if tasks are busy.",
    variants={
        name: Variant(CHANDY_LAMPORT | {"runtime.chandy-lamport.initiation": value, "runtime.cost.trigger": "1 ms"})
        for name, value in INITIATIONS.items()
    },
    jobs=_JOBS,
    measures=("messages", "other messages waited", "writes at once", "start delay", "duration", "persisted"),
    orderings=(
        Ordering(
            "Triggering all tasks takes as many messages as there are tasks: three times those to the sources here.",
            f"{THREAD}, Zhijiang",
            every(*(below("messages", _idle(p), "sources", "all tasks", times=2.9) for p in PARALLELISMS)),
            says="it might bring more heavy loads for JobMaster broadcasting this checkpoint RPC to all the tasks in"
            " large scale job",
        ),
        Ordering(
            "Other messages of the coordinator wait at least twice as long if all tasks are triggered.",
            f"{THREAD}, Zhijiang",
            below("other messages waited", _MANY, "sources", "all tasks", times=2),
            says="it would also cause other important RPC to be executed delay to bring potentail timeout risks",
        ),
        Ordering(
            "Under backpressure, triggering all tasks makes at least twice as many of them write to the store at once.",
            f"{THREAD}, P. Carbone, I.2.c",
            below("writes at once", "backpressure", "sources", "all tasks", times=2),
            says="Lots of IO will be invoked at the same time on the backend store from all tasks.",
        ),
        Ordering(
            "In an idle job, triggering the sources makes less than half of the tasks write to the store at once.",
            f"{THREAD}, P. Carbone, I.1",
            at_most("writes at once", _MANY, ("sources",), 3 * PARALLELISMS[-1] / 2),
            "In an idle job, markers reach every task within milliseconds, before the first write has ended, so both"
            " ways make most tasks write at once.",
            says="only a small subset of tasks is running progressively the protocol at a time",
        ),
        Ordering(
            "If synchronous work comes before the marker, triggering all tasks is at least three times faster.",
            f"{THREAD}, P. Nowojski",
            below("duration", "sync work, S-F-L", "all tasks", "sources", times=3),
            says="I like the idea of simultaneously starting the checkpoint everywhere via RPC call (especially in"
            " cases where Tasks are busy doing some synchronous operations for example for tens of milliseconds. In"
            " that case every network exchange adds tens of milliseconds of delay in propagating the checkpoint).",
        ),
        Ordering(
            "If the marker is forwarded first, synchronous work adds nothing to its way, so both ways take as long.",
            f"{THREAD}, P. Nowojski",
            about_equal("duration", "sync work, F-S-L", _BOTH, share=0.05),
            says="It feels to me like this would decouple propagation of checkpoints from costs of synchronous"
            " snapshots",
        ),
        Ordering(
            "In an idle job, triggering all tasks is not faster.",
            f"{THREAD}, S. Ewen",
            below("duration", _MANY, "sources", "all tasks", or_equal=True),
            says='I don\'t see the benefit of a "trigger all tasks via RPC concurrently" approach.',
        ),
        Ordering(
            "Under backpressure, triggering all tasks is not faster either: both durations are within 10 %.",
            f"{THREAD}, S. Ewen",
            about_equal("duration", "backpressure", _BOTH, share=0.1),
            "Markers that do not overtake wait behind the queued data of one shuffle after the other if the sources are"
            " triggered, and behind that of all shuffles at the same time if all tasks are.",
            says="I believe that the checkpoint time is more determined by the state checkpoint writing, and the global"
            " coordination and metadata commit, than by the difference in alignment time",
        ),
        Ordering(
            "Under backpressure, triggering all tasks logs at least twice as much data.",
            f"{THREAD}, P. Nowojski, 2.b",
            below("persisted", "backpressure", "sources", "all tasks", times=2),
            says="for any input channel for which it hasn't yet received checkpoint barrier, the data are being added"
            " to the checkpoint",
        ),
    ),
)
