"""The console command ``barrierscope``. It composes the packages in lower import layers and contains no rules.

* ``app``         the root of the command tree; turns every error into one line and an exit code
* ``commands``    the table of the commands, which ``lazy_group`` imports when they are used
* ``roles``       commands that run one process each: ``api``, ``runtime``, ``collect``, ``migrate``
* ``diagnose``    reads a target once, without a store
* ``simulate``    runs the reference runtime as fast as possible
* ``targets``     manages targets through the running API
* ``export``      writes stored rows to a CSV or Parquet file
* ``up``          decides what to run on one machine; ``stack`` runs it: order, readiness, stop
* ``built_in``    the demo jobs as a target
* ``own_api``     readiness checks of ``up`` through the API
* ``listening``   ports, and serving an ASGI app until a stop is requested
* ``entry_points``, ``database``, ``options``   what several commands share
* ``supervisor``  child processes: start, restart with backoff, orderly stop
* ``instance``    the data folder: lock, leftovers of a killed instance, logs
* ``liveness``    ends a child process when its parent ends
* ``sweeper``     ends the processes that a killed ``up`` left, suspended ones too
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from backend.cli.app import run

    sys.exit(run(arguments))
