"""Saves a checkpoint of a run, and begins another run from it.

The next run continues at the virtual time at which the earlier one ended, with the same seed, so that its sources read
the same log. It has the external system of the earlier run, so that what both committed is exactly the output of one
run without interruption.
"""

from __future__ import annotations

from backend.domain.errors import PlanError, UnknownEntityError
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState
from backend.runtime.operators.sinks import held_transactions
from backend.runtime.snapshot.checked import as_corrupt
from backend.runtime.snapshot.completed import Completed
from backend.runtime.snapshot.saved import Handover, RestoreOptions, SavedCheckpoint


def newest_of(engine: JobEngine) -> Completed | None:
    """Return the newest checkpoint or savepoint of a run, or None if none is complete."""
    kept = [*engine.coordinator.completed, *engine.coordinator.savepoints.values()]
    return max(kept, key=lambda each: each.record.id, default=None)


def kept_checkpoint(engine: JobEngine, checkpoint_id: int, *, is_at_own_risk: bool = False) -> Completed:
    """Return a complete checkpoint or savepoint of a run, if another run may begin from it.

    Raises:
        UnknownEntityError: the run has no such checkpoint, or it is not known any more.
        PlanError: it is not complete or not kept, or a newer one has committed its output (CO-8).
    """
    coordinator = engine.coordinator
    kept = {each.record.id: each for each in (*coordinator.completed, *coordinator.savepoints.values())}
    newest = coordinator.newest
    if checkpoint_id not in kept:
        record = next((each for each in coordinator.history if each.id == checkpoint_id), None)
        if record is None:
            raise UnknownEntityError(kind="checkpoint", id=checkpoint_id)
        fix = f"start from checkpoint {max(kept)}" if kept else "start without a checkpoint"
        if record.state is CheckpointState.COMPLETED:
            raise PlanError(
                f"checkpoint {checkpoint_id} was dropped after newer ones were complete",
                rule="CO-12",
                vertex=None,
                fix=fix,
            )
        raise PlanError(f"checkpoint {checkpoint_id} failed", rule="CO-7", vertex=None, fix=fix)
    if newest is not None and checkpoint_id < newest.record.id and not is_at_own_risk:
        raise PlanError(
            f"checkpoint {newest.record.id} has committed output since, which would be committed a second time",
            rule="CO-8",
            vertex=None,
            fix=f"start from checkpoint {newest.record.id}, or at your own risk",
        )
    return kept[checkpoint_id]


def save(engine: JobEngine, kept: Completed) -> SavedCheckpoint:
    """Return a checkpoint or savepoint of a run, with what a run needs to continue from it."""
    snapshots = kept.snapshots.values()
    held = {name: None for s in snapshots for operator in s.operators for name in held_transactions(operator)}
    attempt = max(engine.attempt, engine.ledger.newest_attempt)
    handover = Handover(engine.now_us, attempt, engine.ledger.state(list(held)))
    return SavedCheckpoint(engine.spec.name, engine.seed, kept.stored(kept.record.graph), handover)


def begin(
    spec: JobSpec,
    saved: SavedCheckpoint,
    options: RestoreOptions,
    *,
    is_size_only: bool = False,
    keeps_rows: bool = False,
) -> JobEngine:
    """Set up a run that continues from a saved checkpoint. The flags are those of ``JobEngine``.

    Raises:
        PlanError: the checkpoint cannot be restored into the graph (see ``JobEngine``), or operators at data in flight
            have changed and ``options`` do not allow that (GR-2).
        CorruptCheckpointError: the checkpoint is not what a job writes.
    """
    with as_corrupt():
        engine = JobEngine(
            spec,
            seed=saved.seed,
            restore=saved.stored,
            options=options,
            handover=saved.handover,
            is_size_only=is_size_only,
            keeps_rows=keeps_rows,
        )
    if engine.at_own_risk and not options.is_at_own_risk:
        raise PlanError(
            "its operators changed, and the checkpoint has data in flight for them, which nothing checks",
            rule="GR-2",
            vertex=engine.at_own_risk[0],
            fix="change the job from a savepoint or an aligned checkpoint, or restore at your own risk",
        )
    return engine
