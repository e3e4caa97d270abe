"""Runs under induced faults (runtime.md 7.2). A protocol, a kind of faults and a seed determine a run.

``Case("unaligned", "pair", 17)`` is one run; ``str(case)`` is its name, and ``Case.of`` parses a name. Kinds:
*alone* and *pair* use each failpoint, and each pair of failpoints, in turn. *messages*, *links* and *store*
induce faults in messages, on links and in storage. *storm* combines these. *corrupt* damages the data that a
restart reads. *rescaled* restarts the job at other parallelisms, from checkpoints with in-flight data and from
savepoints. *rescaled-pair* and the other *rescaled-...* kinds add the faults of that kind before, during and
after a rescale.

For every kind, the seed also chooses options that are off by default, except if the name ends in ``/plain``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from backend.runtime.coordinator.rescales import RescaleSpec
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine, JobStatus
from backend.runtime.job import faults
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.cap_decisions import CapAction
from backend.runtime.measure.measures import MeasuredCheckpoint
from tests.simulators.continued_runs import run_continued
from tests.support import rescaled_jobs
from tests.support.invariants import InvariantError, Watch
from tests.support.rescaled_jobs import PARTITIONERS, TARGETS, rescaled_job
from tests.support.runtime_jobs import PROTOCOLS, late_triggers, needs_of, points_of, small_job

RECORDS = 200
FROM_CHECKPOINT, FROM_SAVEPOINT, IN_FLIGHT = "rescale.checkpoint", "rescale.savepoint", "rescale.in-flight"
"""The names of three counters of rescales: from a checkpoint, from a savepoint, and with in-flight data."""
CONTINUED = "continued in another run"
"""The name of the counter of runs that another run continued from a saved checkpoint."""
AT_LEAST_ONCE = "at-least-once"
OF_AT_LEAST_ONCE: dict[str, object] = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
MODES = (*PROTOCOLS, AT_LEAST_ONCE)
CONCURRENT, PARTIAL, ORDER, LOCAL = "concurrent unaligned", "partial cap", "state first", "local recovery"
EVERY_TASK, UNTIL_READ, OVERTAKING = "markers from every task", "log until read", "overtaking markers"
DRAINED = "input drained before the snapshot"
BLOCKING = "marked channels blocked"
INCREMENTS = "incremental backend"
FILES = "files of channel state"
ENDS = "tasks finish"
OPTIONS = (
    CONCURRENT,
    PARTIAL,
    ORDER,
    LOCAL,
    EVERY_TASK,
    UNTIL_READ,
    OVERTAKING,
    DRAINED,
    INCREMENTS,
    FILES,
    ENDS,
    BLOCKING,
)
"""Options that are off in all other jobs of the tests. The result of a run counts each option that it used."""
SIDE_BY_SIDE, OVERTOOK_PARTLY, FROM_COPY = "side by side", "overtook partly", "restored from a copy"
SHARED_FILES, SEGMENTS, FINISHED = "shared files", "restored from segments", "finished"
EFFECTS = {
    CONCURRENT: SIDE_BY_SIDE,
    PARTIAL: OVERTOOK_PARTLY,
    LOCAL: FROM_COPY,
    INCREMENTS: SHARED_FILES,
    FILES: SEGMENTS,
    ENDS: FINISHED,
}
"""The effect that an option can have. The result of a run counts each effect that occurred."""
_LATER_US = 250_000
_RESCALED_US = 80_000
"""The earliest time of a rescale."""
_MESSAGE_ACTIONS = (FaultAction.DROP, FaultAction.DUPLICATE, FaultAction.DELAY)


Kind = Callable[["_Draft", str, Stream, int], None]


@dataclass(slots=True)
class _Draft:
    """The faults of a run, and what they require of its job."""

    plan: list[FaultSpec]
    config: dict[str, object]
    task_managers: int | None = None
    has_timers: bool = False
    is_rescaled: bool = False

    def crash(self, point: str, protocol: str, draws: Stream, *, at_us: int = 0) -> None:
        """Plan a crash at a failpoint, and configure the job so that it reaches this failpoint."""
        needs = needs_of(point, protocol)
        self.config |= needs.config
        self.plan += needs.plan
        self.task_managers = needs.task_managers or self.task_managers
        self.has_timers |= needs.has_timers
        self.plan.append(FaultSpec(point, hit=1 + draws.below(needs.hit_most), at_us=at_us))


def _drawn_backend(draws: Stream) -> dict[str, object]:
    """Return the settings of an incremental backend with short chains and frequent writes."""
    return {
        "runtime.state-backend": ("changelog", "diff", "sst")[draws.below(3)],
        "execution.checkpointing.incremental": True,
        "runtime.full-checkpoint-every": (0, 0, 5)[draws.below(3)],
        "runtime.diff.chain-max": 1 + draws.below(4),
        "runtime.sst.runs-max": 1 + draws.below(4),
        "runtime.changelog.flush-interval": ("0 ms", "7 ms", "30 ms")[draws.below(3)],
        "runtime.changelog.materialize-interval": ("30 ms", "150 ms")[draws.below(2)],
    }


def _drawn_files(draws: Stream) -> dict[str, object]:
    """Return the settings of continuous spilling, or of merged files and incremental channel state."""
    merging = "execution.checkpointing.file-merging."
    size: dict[str, object] = {f"{merging}max-file-size": ("1 kb", "4 kb", "32 mb")[draws.below(3)]}
    if draws.below(3) == 0:
        return size | {"runtime.spilling": "continuous"}
    merges, across = draws.below(4) > 0, draws.below(2) == 1
    return size | {
        "runtime.incremental-channel-state": not merges or draws.below(2) == 1,
        f"{merging}enabled": merges,
        f"{merging}across-checkpoint-boundary": merges and across,
        f"{merging}max-space-amplification": ("1", "1.5", "2")[draws.below(3)],
        "runtime.file-merging.max-subtasks-per-file": 1 + draws.below(4),
    }


def _drawn_options(case: Case) -> dict[str, dict[str, object]]:
    """Return the settings of each option that the seed chooses for a run.

    The options have a random stream of their own, so that they do not change the other choices of the seed.
    """
    draws = Stream(case.seed, f"options of {case.kind} of {case.protocol}")
    takes = {name: draws.below(5) < 2 for name in OPTIONS if name not in (FILES, ENDS, BLOCKING)}
    takes[BLOCKING] = Stream(case.seed, f"blocking of {case.kind} of {case.protocol}").below(5) < 2
    of_files = Stream(case.seed, f"files of {case.kind} of {case.protocol}")
    # A damaged byte may lie in a part of a merged file that the checkpoint does not use, and is then harmless.
    takes[FILES] = of_files.below(5) < 2 and case.kind != "corrupt"
    # The tasks must not finish here, because the damaged checkpoint must be restored before the job ends.
    takes[ENDS] = _end_of(case).below(2) == 0 and case.kind != "corrupt"
    first = "A-S-F" if case.protocol in ("aligned", AT_LEAST_ONCE) else "S-F-L"
    settings: dict[str, dict[str, object]] = {
        CONCURRENT: {
            "runtime.concurrent-unaligned": True,
            "execution.checkpointing.max-concurrent-checkpoints": 2 + draws.below(2),
            "execution.checkpointing.interval": "20 ms",
        },
        PARTIAL: {
            "runtime.inflight-cap.on-cap": "partial",
            "runtime.inflight-cap.bytes": ("1 kb", "3 kb")[draws.below(2)],
        },
        ORDER: {"runtime.phase-order": first, "runtime.cost.sync": ("1 ms", "5 ms")[draws.below(2)]},
        LOCAL: {"execution.state-recovery.from-local": True, "runtime.cost.recovery-bytes-per-s": 100_000},
        EVERY_TASK: {"runtime.chandy-lamport.initiation": "all-tasks", "runtime.cost.trigger": "2 ms"},
        UNTIL_READ: {"runtime.chandy-lamport.log-until": "consumption"},
        OVERTAKING: {"runtime.chandy-lamport.markers-overtake": True},
        # Markers that overtake block nothing (CL-11).
        BLOCKING: {"runtime.chandy-lamport.marked-channels": "process" if takes[OVERTAKING] else "block"},
        DRAINED: {"runtime.unaligned.front-input": "drain"},
        INCREMENTS: _drawn_backend(draws),
        FILES: _drawn_files(of_files),
        ENDS: {"runtime.finish-protocol": "revised"},
    }
    of = {CONCURRENT: "unaligned", PARTIAL: "capped", DRAINED: "last-barrier"} | dict.fromkeys(
        (EVERY_TASK, UNTIL_READ, OVERTAKING, BLOCKING), "chandy-lamport"
    )
    return {name: settings[name] for name in OPTIONS if takes[name] and of.get(name, case.protocol) == case.protocol}


def _end_of(case: Case) -> Stream:
    """Return the random stream that decides whether the tasks of a job finish, and whether one of them then crashes."""
    return Stream(case.seed, f"end of {case.kind} of {case.protocol}")


def _alone(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    points = points_of(protocol)
    draft.crash(points[n % len(points)], protocol, draws)


def _pair(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    points = points_of(protocol)
    count = len(points)
    # The distance from the first point to the second grows by one every ``count`` seeds. In ``count`` rounds of
    # ``count`` seeds, each point follows each other point once.
    draft.crash(points[n % count], protocol, draws)
    draft.crash(points[(n + n // count) % count], protocol, draws, at_us=_LATER_US if draws.below(2) else 0)


def _messages(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    draft.config["execution.checkpointing.timeout"] = "250 ms"
    for _ in range(1 + draws.below(20)):
        draft.plan.append(
            FaultSpec(
                faults.MESSAGE_POINTS[draws.below(len(faults.MESSAGE_POINTS))],
                hit=1 + draws.below(8),
                action=_MESSAGE_ACTIONS[draws.below(3)],
                delay_us=(3_000, 50_000, 300_000)[draws.below(3)],
            )
        )
    # A decline message can be lost only if a task declines its checkpoint. A failed write makes the task decline.
    draft.plan.append(
        FaultSpec("store.write", hit=2 + draws.below(5), action=FaultAction.ERROR, times=1 + draws.below(3))
    )


def _links(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    draft.task_managers = 2
    for _ in range(1 + draws.below(12)):
        action = (FaultAction.DELAY, FaultAction.STALL)[draws.below(2)]
        delay_us = (2_000, 30_000, 400_000)[draws.below(3)]
        draft.plan.append(FaultSpec("link.send", hit=1 + draws.below(60), action=action, delay_us=delay_us))
    if draws.below(2):
        draft.crash("source.after-emit", protocol, draws, at_us=_LATER_US)


def _store(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    hit, at_us = 1 + draws.below(6), draws.below(2) * _LATER_US
    # The seed selects one of six faults: a slow write, one failed write, many failed writes (full storage), no
    # location for a checkpoint, failed metadata, or failed reads.
    draft.plan += (
        [FaultSpec("store.write", hit, at_us, "delay", delay_us=(20_000, 700_000)[draws.below(2)])],
        [FaultSpec("store.write", hit, at_us, "error")],
        [FaultSpec("store.write", hit, at_us, "error", times=10 + draws.below(40))],
        [FaultSpec("coordinator.location", hit, action=FaultAction.ERROR, times=1 + draws.below(3))],
        [FaultSpec("coordinator.metadata", hit, action=FaultAction.ERROR, times=1 + draws.below(3))],
        [FaultSpec("store.read", action=FaultAction.ERROR, times=1 + draws.below(3))],
    )[n % 6]
    if n % 6 == 5 or draws.below(2):
        draft.crash("coordinator.between-notifies", protocol, draws, at_us=_LATER_US)


def _storm(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    points = points_of(protocol)
    for _ in range(2 + draws.below(5)):
        draft.crash(points[draws.below(len(points))], protocol, draws, at_us=draws.below(4) * _LATER_US)
    for add in (_messages, _links, _store):
        add(draft, protocol, draws, draws.below(6))


def _corrupt(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    draft.crash("coordinator.between-notifies", protocol, draws)
    draft.plan.append(FaultSpec("store.read", action=FaultAction.CORRUPT))


def _rescaled(faults_of: Kind) -> Kind:
    """Return a kind of faults that adds a rescale to the faults of the kind ``faults_of``."""

    def rescaled(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
        draft.is_rescaled = True
        faults_of(draft, protocol, draws, n)
        # About half of the crashes wait until the time of the first rescale. They occur while the rescaled job
        # starts, or later.
        draft.plan = [
            replace(f, at_us=_RESCALED_US) if f.action is FaultAction.CRASH and draws.below(2) else f
            for f in draft.plan
        ]

    return rescaled


def _recovering(draft: _Draft, protocol: str, draws: Stream, n: int) -> None:
    """Depending on the seed, add a crash while the rescaled job is restored, or add no crash."""
    points = faults.RECOVERY_POINTS
    if n % (len(points) + 1):
        draft.plan.append(FaultSpec(points[n % len(points)], hit=1 + draws.below(4), at_us=_RESCALED_US))


_FAULTS: dict[str, Kind] = {
    "alone": _alone,
    "pair": _pair,
    "storm": _storm,
    "messages": _messages,
    "links": _links,
    "store": _store,
}
KINDS: dict[str, Kind] = {
    **_FAULTS,
    "corrupt": _corrupt,
    **{f"rescaled-{name}": _rescaled(kind) for name, kind in _FAULTS.items()},
    "rescaled": _rescaled(_recovering),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One simulated run with faults, identified by protocol, kind of fault and seed."""

    protocol: str
    kind: str
    seed: int
    is_plain: bool = False
    """Whether to leave out the options that are off by default."""

    def __str__(self) -> str:
        return f"{self.protocol}/{self.kind}/{self.seed}" + "/plain" * self.is_plain

    @classmethod
    def of(cls, name: str) -> Case:
        """Parse the name of a case.

        Raises:
            ValueError: if the name is not that of a case.
        """
        protocol, kind, seed = name.removesuffix("/plain").split("/")
        if protocol not in MODES or kind not in KINDS:
            raise ValueError(f"{name}: the protocol is one of {[*MODES]}, the kind one of {[*KINDS]}")
        return cls(protocol, kind, int(seed), name.endswith("/plain"))

    @property
    def options(self) -> dict[str, dict[str, object]]:
        """The settings of each option that the seed chose, by the option's name."""
        return {} if self.is_plain else _drawn_options(self)

    def spec(self) -> JobSpec:
        """Return the job with its faults."""
        draws = Stream(self.seed, f"{self.kind} of {self.protocol}")
        is_exact = self.protocol != AT_LEAST_ONCE
        draft = _Draft([], {} if is_exact else dict(OF_AT_LEAST_ONCE))
        # At-least-once mode has the failpoints of aligned checkpoints, because it is aligned without blocking.
        protocol = self.protocol if is_exact else "aligned"
        KINDS[self.kind](draft, protocol, draws, self.seed)
        if draws.below(2):
            draft.plan += late_triggers()
        has_timers = draft.has_timers or draws.below(4) == 0
        draft.config["execution.checkpointing.unaligned.interruptible-timers.enabled"] = draws.below(2) == 1
        draft.config["execution.checkpointing.num-retained"] = 1 + draws.below(2)
        for settings in self.options.values():
            draft.config |= settings
        if ENDS in self.options:
            ending = _end_of(self)
            if ending.below(4):
                point = faults.FINISH_POINTS[ending.below(len(faults.FINISH_POINTS))]
                draft.plan.append(FaultSpec(point, hit=1 + ending.below(6)))
        if draft.is_rescaled:
            return self._rescaled_spec(protocol, draft, has_timers=has_timers)
        return small_job(
            protocol,
            seed=self.seed,
            task_managers=draft.task_managers or 1 + draws.below(2),
            fuzz=draws.below(3) and 1 + self.seed,
            plan=tuple(draft.plan),
            records=self.records,
            record_bytes=(60, 120, 700, 1500)[draws.below(4)],
            parallelism=2 + draws.below(2),
            config=draft.config,
            keyed=_TIMERS if has_timers else None,
        )

    def _rescaled_spec(self, protocol: str, draft: _Draft, *, has_timers: bool) -> JobSpec:
        """Return a job with one to three rescales.

        The first one changes the map's parallelism as in RS-13. The seed chooses all other changes.
        """
        draws = Stream(self.seed, f"rescales of {self.kind} of {self.protocol}")
        before, after = TARGETS[draws.below(len(TARGETS))]
        parallelism = (1 + draws.below(3), before, 1 + draws.below(4))
        rescales = []
        for n in range(1 + draws.below(3)):
            wanted = {"map": after if n == 0 else 1 + draws.below(4)}
            wanted |= {name: 1 + draws.below(4) for name in ("source", "keyed") if draws.below(2)}
            at_us = _RESCALED_US + n * 100_000 + draws.below(150_000)
            rescales.append(RescaleSpec(at_us, wanted, from_savepoint=draws.below(3) == 0))
        if draft.task_managers is not None:
            draft.config["runtime.task-managers"] = draft.task_managers
        job = rescaled_job(
            protocol,
            [*PARTITIONERS][draws.below(len(PARTITIONERS))],
            parallelism,
            seed=self.seed,
            plan=tuple(draft.plan),
            config=draft.config,
            keyed=_TIMERS if has_timers else None,
            record_bytes=(60, 240, 700, 1500)[draws.below(4)],
        )
        return replace(job, rescales=tuple(rescales))

    @property
    def records(self) -> int:
        """The number of records that the job must commit."""
        return rescaled_jobs.RECORDS if self.kind.startswith("rescaled") else RECORDS

    def run(self) -> Counter[str]:
        """Run the case under all invariants.

        Return how often each failpoint struck, how often the job was rescaled, and which options and effects occurred.

        Raises:
            InvariantError: if an invariant was broken.
        """
        engine = JobEngine(self.spec(), keeps_rows=True)
        watch = Watch(engine, records=self.records, is_exact=self.protocol != AT_LEAST_ONCE)
        if self.kind == "corrupt":
            _run_corrupt(watch, is_exact=self.protocol != AT_LEAST_ONCE)
        else:
            watch.run_to_the_end()
        if self.seed % 10 == 0:
            self._run_again(watch)
        found = engine.env.faults.struck + _rescales(engine) + self._effects(engine)
        found[CONTINUED] = self._continue()
        return +found

    def _continue(self) -> bool:
        """Run the job again in two parts, and check that both together commit the same records.

        Return whether the seed chose this, and there was a checkpoint to continue from.
        """
        draws = Stream(self.seed, f"continued {self.kind} of {self.protocol}")
        # A damaged checkpoint ends the job, so that nothing can be continued.
        if draws.below(4) or self.kind == "corrupt":
            return False
        is_exact = self.protocol != AT_LEAST_ONCE
        return run_continued(self.spec(), records=self.records, is_exact=is_exact, draws=draws) is not None

    def _effects(self, engine: JobEngine) -> Counter[str]:
        found = Counter([*self.options])
        acks = [ack.measured.cap for record in engine.coordinator.all_completed for ack in record.acks.values()]
        found[OVERTOOK_PARTLY] = any(cap is not None and cap.action is CapAction.PARTIAL for cap in acks)
        found[FROM_COPY] = any(one.local_bytes for restart in engine.restarts for one in restart.subtasks.values())
        found[SHARED_FILES] = any(record.is_incremental for record in engine.coordinator.all_completed)
        restored = engine.restarts and any(each.restored_id for each in engine.restarts)
        found[SEGMENTS] = bool(restored and engine.env.channel_files.store.created_count)
        found[FINISHED] = engine.status is JobStatus.FINISHED
        found[SIDE_BY_SIDE] = _are_side_by_side(engine.coordinator.all_completed)
        return +found

    def _run_again(self, watch: Watch) -> None:
        """Check that a run without observation and with every step as an event has the same trace (INV-12, INV-13)."""
        again = JobEngine(self.spec(), is_stepwise=True)
        again.run_until(watch.ended_at_us)
        if again.trace_hash != watch.hash_at_end:
            raise InvariantError("INV-13", "the trace differs from that of the observed run")


def _rescales(engine: JobEngine) -> Counter[str]:
    done = [rescale for rescale in engine.rescales if rescale.stopped_at_us is not None]
    found = Counter(FROM_SAVEPOINT if rescale.from_savepoint else FROM_CHECKPOINT for rescale in done)
    found[IN_FLIGHT] = sum(rescale.persisted_bytes > 0 for rescale in done)
    return found


def _are_side_by_side(completed: Iterable[MeasuredCheckpoint]) -> bool:
    """Return whether a checkpoint was triggered before an older one had completed."""
    done = sorted(completed, key=lambda record: record.id)
    ends = [record.triggered_at_us + (record.end_to_end_us or 0) for record in done]
    return any(later.triggered_at_us < end_us for end_us, later in zip(ends, done[1:], strict=False))


_TIMERS: dict[str, object] = {"kind": "timer+sink", "hold": "15 ms", "cost_us": 1800, "timer_cost_us": 200}


def _run_corrupt(watch: Watch, *, is_exact: bool) -> None:
    """Check that the damage is found and ends the job, and that committed records are neither lost nor repeated."""
    engine = watch.engine
    watch.run_until(3_000_000)
    watch.mark_end()
    if not engine.env.faults.struck["store.read"]:
        raise InvariantError("T-1", "nothing was read")
    if engine.status != "FAILED" or engine.exceptions[0].name != "CorruptCheckpointError":
        raise InvariantError("CK-3", f"a damaged checkpoint was restored; the job is {engine.status}")
    origins = [row.origin for row in engine.ledger.rows]
    if is_exact and len(set(origins)) != len(origins):
        raise InvariantError("INV-5", "committed records are repeated")
