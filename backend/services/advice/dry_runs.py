"""Says what a change of a running job would send where, and what would refuse it. Nothing changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from backend.contracts.advice import ChangeOut, DryRunOut
from backend.services.targets.changing import JobChanger
from backend.store.jobs.reader import JobRecord


async def dry_run_of(
    changer: JobChanger,
    record: JobRecord,
    patch: Mapping[str, str],
    changes: Sequence[ChangeOut],
    refusals: Sequence[str],
    now: datetime,
) -> DryRunOut:
    """Return what sending ``patch`` would do now. The target is asked only if there are no ``refusals`` before that.

    ``changes`` has the values before. If nothing can be sent, because ``patch`` is empty, they are what would change.

    Raises:
        UnknownEntityError: the target was removed.
    """
    known = {c.key: c for c in changes}
    sent = []
    for key, value in patch.items():
        change = known.get(key)
        # A roll back sends the current value of the card, and finds the proposed one in force.
        before = None if change is None else (change.current if value == change.proposed else change.proposed)
        sent.append(ChangeOut(key=key, current=before, proposed=value))
    target, found, is_checked = None, list(refusals), False
    if not found:
        tried = await changer.try_out(record.run, patch)
        target, is_checked = tried.target, tried.is_checked
        found += [tried.refusal] if tried.refusal is not None else []
    else:
        target = await changer.target_of(record.run)
    return DryRunOut(
        job_id=record.id,
        target=target.name,
        url=target.url,
        engine_run_id=record.run.engine_run_id,
        changes=sent or list(changes),
        is_accepted=not found,
        is_checked=is_checked,
        refusals=found,
        as_of=now,
    )
