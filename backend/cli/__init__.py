"""Floor 6: the console command ``barrierscope``. It composes the floors below and holds no rules.

* ``app``         the command tree; turns every error into one line and an exit code
* ``roles``       one process each: ``api``, ``runtime``, ``collect``, ``migrate``; and ``diagnose``
* ``simulate``    the reference runtime, as fast as possible
* ``targets``     targets, through the running API
* ``up``          everything on one machine: decides what to run; ``stack`` runs it: order, readiness, stop
* ``built_in``    the demo jobs as a target
* ``own_api``     readiness checks of ``up`` through the API
* ``listening``   ports, and serving an ASGI app until a stop is requested
* ``entry_points``, ``database``, ``options``   what several commands share
* ``supervisor``  child processes: start, restart with backoff, orderly stop
* ``instance``    the data folder: lock, leftovers of a killed instance, logs
* ``liveness``    ends a child process with its parent
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from backend.cli.app import run

    sys.exit(run(arguments))
