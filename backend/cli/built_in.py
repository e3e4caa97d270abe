"""Manages the targets that ``up`` adds: the live runtime with the demo jobs, and the demo query on Spark.

The live runtime is registered in the store as a target with the origin ``built-in``. The pushes of the Spark query
create its target, so this module only removes that target. The module writes to the store and not through the API,
because the API refuses addresses of this machine when it listens beyond loopback.
"""

from __future__ import annotations

import contextlib

from backend.domain.clock import Clock
from backend.domain.errors import ConflictError
from backend.domain.target import TargetOrigin

_NAME = "demo"
# A job is identified by deployment and name. With this label, the demo jobs keep their history if their port changes.
_LABELS = {"deployment": "demo"}


async def watch_built_in(database_url: str, root: str | None, clock: Clock) -> None:
    """Make the live runtime at ``root`` the only built-in target. With None, remove the built-in target.

    A name or a pause that a user has set stays. The history of a removed target stays too.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond.
    """
    from backend.store.postgres.connections import create_store_engine
    from backend.store.targets.targets import NewTarget, TargetRepository

    engine = create_store_engine(database_url)
    try:
        targets = TargetRepository(engine)
        known = await targets.list_all()
        for target in known:
            if target.origin is TargetOrigin.BUILT_IN and target.url != root:
                await targets.remove(target.id, at=clock.now(), is_foreign=True)
        if root is not None and root not in {target.url for target in known}:
            # Another replica that starts at the same time may have added the target, so a conflict is no error.
            with contextlib.suppress(ConflictError):
                await targets.add(NewTarget(root, _NAME, TargetOrigin.BUILT_IN, labels=_LABELS), at=clock.now())
    finally:
        await engine.dispose()


async def unwatch_spark_demo(database_url: str, clock: Clock) -> None:
    """Remove the target of the demo query, because ``up`` does not run the query this time. Its history stays.

    A killed query does not report its end, so its target would be shown as silent if it were not removed.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond.
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
