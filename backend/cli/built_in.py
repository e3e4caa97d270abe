"""The targets that ``up`` adds: the live runtime with the demo jobs, registered in the store as ``built-in``, and the
demo query on Spark, whose pushes create its target. The target of the query is removed here.

This does not go through the API, which refuses addresses of this machine when it listens beyond loopback.
"""

from __future__ import annotations

import contextlib

from backend.domain.clock import Clock
from backend.domain.errors import ConflictError
from backend.domain.target import TargetOrigin

_NAME = "demo"
# Deployment and name identify a job. With this label the demo jobs keep their history when their port changes.
_LABELS = {"deployment": "demo"}


async def watch_built_in(database_url: str, root: str | None, clock: Clock) -> None:
    """Make the live runtime at ``root`` the only built-in target; with None, remove the built-in target.

    A name or a pause that a user has set stays. The history of a removed target stays too.

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
            if target.origin is TargetOrigin.BUILT_IN and target.url != root:
                await targets.remove(target.id, at=clock.now())
        if root is not None and root not in {target.url for target in known}:
            # Another replica that starts at the same time may have added it.
            with contextlib.suppress(ConflictError):
                await targets.add(NewTarget(root, _NAME, TargetOrigin.BUILT_IN, labels=_LABELS), at=clock.now())
    finally:
        await engine.dispose()


async def unwatch_spark_demo(database_url: str, clock: Clock) -> None:
    """Remove the target of the demo query, because the query does not run this time. Its history stays.

    A killed query pushes no end, so its target would appear as silent.

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
