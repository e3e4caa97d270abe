"""The targets that ``up`` brings along: the live runtime with the demo jobs, registered in the store as ``built-in``,
and the demo query on Spark, whose target is made by what it pushes and removed here.

Not through the API: while that listens beyond loopback, it refuses an address of this machine, as it should.
"""

from __future__ import annotations

import contextlib

from backend.domain.clock import Clock
from backend.domain.errors import ConflictError

_NAME = "demo"
# A job is its deployment and its name: with this label the demo jobs keep their history when their port changes.
_LABELS = {"deployment": "demo"}


async def watch_built_in(database_url: str, root: str | None, clock: Clock) -> None:
    """Make the live runtime at ``root`` the one built-in target; None: there is none this time.

    What a person changed on it (its name, a pause) stays. History of one that is gone stays as well.

    Raises:
        StoreUnavailableError: PostgreSQL does not answer.

    """
    from backend.store.postgres.connections import create_store_engine
    from backend.store.targets.targets import NewTarget, TargetRepository

    engine = create_store_engine(database_url)
    try:
        targets = TargetRepository(engine)
        known = await targets.list_all()
        for target in known:
            if target.origin == "built-in" and target.url != root:
                await targets.remove(target.id, at=clock.now())
        if root is not None and root not in {target.url for target in known}:
            # Of several replicas that start at once, one was first.
            with contextlib.suppress(ConflictError):
                await targets.add(NewTarget(root, _NAME, "built-in", labels=_LABELS), at=clock.now())
    finally:
        await engine.dispose()


async def unwatch_spark_demo(database_url: str, clock: Clock) -> None:
    """The demo query does not run this time: its target goes, as one that pushes no more; its history stays.

    One that was killed could not tell of its end, and would be taken for one that went silent.

    Raises:
        StoreUnavailableError: PostgreSQL does not answer.

    """
    from backend.contracts.spark import DEMO_DEPLOYMENT, PUSH_URL_ROOT
    from backend.store.postgres.connections import create_store_engine
    from backend.store.targets.targets import TargetRepository

    engine = create_store_engine(database_url)
    try:
        targets = TargetRepository(engine)
        for target in await targets.list_all():
            if target.url == PUSH_URL_ROOT + DEMO_DEPLOYMENT:
                await targets.remove(target.id, at=clock.now())
    finally:
        await engine.dispose()
