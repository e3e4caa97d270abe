"""Which channels a task reads while a checkpoint runs, and which barrier starts it.

*prioritized-inputs* reads the channels whose barrier is missing first. *block-then-process* does not read those whose
marker was read. *last-barrier* starts with the last barrier behind an operator that emits many records for each input.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.measuring import (
    CHANDY_LAMPORT,
    LAST_BARRIER,
    THREAD,
    UNALIGNED,
    Job,
    Settings,
    Variant,
    busy_job,
    chain_job,
    comparison,
    even_job,
    late,
    uneven_job,
    with_vertex,
)
from backend.experiments.model import Ordering, about_equal, below, every
from backend.runtime.engine.jobfile import JobSpec

_EVEN, _SKEWED = "even load", "skewed load"
_LOADS: Final[dict[str, Job]] = {_EVEN: even_job, _SKEWED: uneven_job}
_MISSING_FIRST: Final[Settings] = {"runtime.prioritize-missing": True}

PRIORITIZED_INPUTS: Final = comparison(
    "prioritized-inputs",
    "Reading the channels without a barrier first",
    "Barriers that overtake do not wait to be read, and markers do: durations with and without the priority.",
    variants={
        "unaligned": Variant(UNALIGNED),
        "unaligned, missing first": Variant(UNALIGNED | _MISSING_FIRST),
        "chandy-lamport": Variant(CHANDY_LAMPORT),
        "chandy-lamport, missing first": Variant(CHANDY_LAMPORT | _MISSING_FIRST),
    },
    jobs={**_LOADS, "skewed load, one late trigger": late(uneven_job, hit=3)},
    measures=("duration", "persisted", "processed meanwhile"),
    orderings=(
        Ordering(
            "With markers that wait to be read, the priority makes checkpoints under skew shorter.",
            f"{THREAD}, Y. Gao",
            below("duration", _SKEWED, "chandy-lamport, missing first", "chandy-lamport"),
            says="It seems prioritizing inputs should be able to accelerate the checkpoint without other bad effects.",
        ),
        Ordering(
            "Its other effects are none: throughput and stored data stay within 5 %.",
            f"{THREAD}, Y. Gao",
            every(
                *(
                    about_equal(measure, load, ("chandy-lamport", "chandy-lamport, missing first"), share=0.05)
                    for measure in ("persisted", "processed meanwhile")
                    for load in _LOADS
                )
            ),
            says="It seems prioritizing inputs should be able to accelerate the checkpoint without other bad effects.",
        ),
        Ordering(
            "With barriers that overtake, the priority changes no duration by more than 5 %.",
            f"{THREAD}, Zhijiang",
            every(
                *(
                    about_equal("duration", load, ("unaligned", "unaligned, missing first"), share=0.05)
                    for load in (*_LOADS, "skewed load, one late trigger")
                )
            ),
            says="I think we will not have an adverse effect if not prioritizing the inputs w/o barriers in this case.",
        ),
        Ordering(
            "With barriers that overtake, reading without priority makes the checkpoint longer.",
            f"{THREAD}, S. Ewen",
            below("duration", _SKEWED, "unaligned, missing first", "unaligned"),
            "A barrier needs no credit and is handled on arrival, so the data in front of it need not be read.",
            says="not prioritizing the inputs from which barriers are still missing can also have an adverse effect",
        ),
    ),
)

_EVERY_TASK: Final = CHANDY_LAMPORT | {"runtime.chandy-lamport.initiation": "all-tasks"}
_BLOCK: Final[Settings] = {"runtime.chandy-lamport.marked-channels": "block"}
_LIGHT_LATE: Final = "skewed load, the light source is late"
_SYNC: Final = "sync work, S-F-L"

BLOCK_THEN_PROCESS: Final = comparison(
    "block-then-process",
    "Chandy-Lamport: blocking the channels whose marker was read",
    "A message triggers each task. It blocks a channel behind its marker until the data of all others is processed.",
    variants={
        "process": Variant(_EVERY_TASK),
        "block": Variant(_EVERY_TASK | _BLOCK),
        "block, from the sources": Variant(CHANDY_LAMPORT | _BLOCK),
    },
    jobs={
        **_LOADS,
        _LIGHT_LATE: late(uneven_job, hit=1, times=2, delay_us=300_000),
        _SYNC: partial(chain_job, sync="100 ms", order="S-F-L"),
    },
    measures=("duration", "persisted", "processed meanwhile"),
    orderings=(
        Ordering(
            "Under skew, blocking the light channel makes the checkpoint shorter.",
            f"{THREAD}, T. Weise",
            below("duration", _SKEWED, "block", "process"),
            says="there is also a benefit of to not continue reading I1 since that could speed up retrieval from I2",
        ),
        Ordering(
            "Blocking wastes time if the channels without a marker have little to read: at least a tenth is lost.",
            f"{THREAD}, P. Nowojski, 4",
            below("processed meanwhile", _LIGHT_LATE, "block", "process", times=1.1),
            says="can we keep processing some data (in order to not waste CPU cycles) after we have taking the snapshot"
            " of the Task. I think we could.",
        ),
        Ordering(
            "Under skew, blocking lowers the throughput, because a blocked channel holds up its sender.",
            f"{THREAD}, P. Nowojski",
            below("processed meanwhile", _SKEWED, "block", "process"),
            says="Currently, during the alignment and blocking of the input channels, we might be wasting CPU cycles of"
            " up stream tasks.",
        ),
        Ordering(
            "The messages make the duration that of the slowest task, not the sum: at least three times shorter.",
            f"{THREAD}, P. Nowojski",
            below("duration", _SYNC, "block", "block, from the sources", times=3),
            says="total checkpointing time is not sum of checkpointing times of all Tasks one by one, but more or less"
            " max of the slowest Tasks",
        ),
        Ordering(
            "Tasks that block store as much as tasks that continue, within 1 %: their logs are the same.",
            f"{THREAD}, P. Nowojski, 2.b",
            every(*(about_equal("persisted", load, ("block", "process"), share=0.01) for load in _LOADS)),
            says="for any input channel for which it hasn't yet received checkpoint barrier, the data are being added"
            " to the checkpoint",
        ),
    ),
)

_FIRST, _LAST = "first barrier", "last barrier"
FAN_OUTS: Final = (1, 10, 100)
_CHECKPOINTS: Final = 20
"""How many checkpoints a run measures. What is in flight varies much, because the output of a record is a burst."""


def fan_out_job(seed: int, fan_out: int) -> JobSpec:
    """Return a job that keeps up, in which a map emits ``fan_out`` records of 200 bytes for each input record."""
    changes: dict[str, dict[str, Any]] = {
        "source": {"rate": 200, "record_bytes": 200},
        "map": {"fan_out": fan_out, "output_bytes": 200},
    }
    spec = slow_sink_job("aligned", seed=seed, slow_us=50)
    for vertex, fields in changes.items():
        spec = with_vertex(spec, vertex, **fields)
    return spec


def _fan(fan_out: int) -> str:
    return f"{fan_out} for each record"


_FULL: Final = "1 for each record, backpressure"
_ONE, _MANY = _fan(FAN_OUTS[0]), _fan(FAN_OUTS[-1])

FIRST_OR_LAST: Final = comparison(
    "last-barrier",
    "Unaligned checkpoints that start at the first or at the last barrier, behind a fan-out",
    "A map emits 1, 10 or 100 records for each input, and one source is triggered 45 ms late.",
    variants={
        _FIRST: Variant(UNALIGNED),
        _LAST: Variant(LAST_BARRIER),
    },
    jobs={
        **{_fan(n): late(partial(fan_out_job, fan_out=n), times=_CHECKPOINTS) for n in FAN_OUTS},
        _FULL: late(busy_job, times=_CHECKPOINTS),
    },
    checkpoints=_CHECKPOINTS,
    measures=("duration", "persisted input", "persisted"),
    orderings=(
        Ordering(
            "A fan-out of 100 makes a checkpoint that starts at the first barrier at least five times larger.",
            f"{THREAD}, A. Heise",
            below("persisted", _ONE, _FIRST, _FIRST, times=5, other=_MANY),
            says="all of these output records need to be stored into the state for the unaligned checkpoint, which may"
            " increase the state size by orders of magnitudes",
        ),
        Ordering(
            "Without a fan-out, starting at the last barrier stores less.",
            f"{THREAD}, A. Heise",
            below("persisted", _ONE, _LAST, _FIRST),
            says="to address the flatMap issue, there will be an option to trigger the unaligned checkpoints on the"
            " last barrier of all input channels instead of the first",
        ),
        Ordering(
            "With a fan-out of 100, starting at the last barrier stores less.",
            f"{THREAD}, A. Heise",
            below("persisted", _MANY, _LAST, _FIRST),
            says="to address the flatMap issue, there will be an option to trigger the unaligned checkpoints on the"
            " last barrier of all input channels instead of the first",
        ),
        Ordering(
            "Under backpressure, starting at the last barrier stores at most half as much.",
            f"{THREAD}, A. Heise",
            below("persisted", _FULL, _LAST, _FIRST, times=2),
            "If all channels are full, little leaves them between the first and the last barrier, and the input that"
            " the task processes meanwhile becomes output that the barrier overtakes.",
            says="to address the flatMap issue, there will be an option to trigger the unaligned checkpoints on the"
            " last barrier of all input channels instead of the first",
        ),
        Ordering(
            "The wait for the last barrier adds at most a fifth to the duration.",
            f"{THREAD}, A. Heise",
            every(*(below("duration", _fan(n), _LAST, _FIRST, times=1 / 1.2) for n in FAN_OUTS)),
            says="there is still an alignment phase but it should be rather quick as checkpoint barriers are still"
            " inserted at the head of the output buffer queue",
        ),
    ),
)
