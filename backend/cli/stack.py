"""The processes of ``up``: starts PostgreSQL and the roles in order, watches them, and stops them in reverse order.

Order of the start: end the processes that a killed instance left; start the runtime, which needs no store; start
PostgreSQL; migrate; start the API with the pages; start the collector. When the pages have data, alerts and rollups
start. All data is in the data folder, so the next start has the history. PostgreSQL commits each stored checkpoint,
so ``kill -9`` at any moment loses no stored checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from backend.cli.instance import Instance, end_processes
from backend.cli.listening import check_port
from backend.cli.log_tail import LogTail
from backend.cli.own_api import OwnApi
from backend.cli.supervisor import Role, Supervisor, role_command
from backend.domain.errors import HostError
from backend.settings import Settings, child_environment

if TYPE_CHECKING:
    from backend.store.postgres.embedded import EmbeddedPostgres

_WATCH_INTERVAL_S = 0.1
_READY_TIMEOUT_S = 120.0
_FIRST_READING_TIMEOUT_S = 60.0
# A role that ends this often before it is ready makes the start fail.
_FAILED_STARTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, from the options and the settings."""

    folder: Path
    host: str
    port: int
    runtime_port: int | None
    """None if the demo jobs do not run."""
    poll_interval_s: float
    is_verbose: bool
    has_spark_demo: bool
    settings: Settings

    @property
    def url(self) -> str:
        """The address of the pages and the API on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def runtime_url(self) -> str | None:
        """Root of the live runtime's monitoring REST."""
        return None if self.runtime_port is None else f"http://127.0.0.1:{self.runtime_port}/runtime/v1"

    @property
    def token(self) -> str | None:
        """The API's bearer token."""
        return self.settings.token()


class _StoppedError(Exception):
    """A stop was requested during the start."""


class Stack:
    """One run of PostgreSQL and all roles. ``run`` returns after an orderly stop."""

    def __init__(self, plan: Plan, instance: Instance, stop: threading.Event) -> None:
        self._plan = plan
        self._instance = instance
        self._stop = stop
        self._began_s = time.monotonic()
        self._tail = LogTail(instance.log_folder)
        self._supervisor = Supervisor(instance.log_folder, self._say, instance.record)
        self._postgres: EmbeddedPostgres | None = None
        self._database_url = ""

    def run(self) -> None:
        """Start everything, watch it until a stop is requested, then stop it.

        Raises:
            HostError: a port, a folder or a program of this machine prevents it. Every started process is stopped.

        """
        left = self._instance.leftovers()
        end_processes(left)
        # Checked before anything is printed, so that a port in use gives one line only.
        self._check_ports()
        print(f"Barrierscope {metadata.version('barrierscope')}, data in {self._plan.folder}", flush=True)
        if left:
            self._say(f"ended {len(left)} processes left by a killed instance")
        try:
            self._start()
            while not self._stop.wait(_WATCH_INTERVAL_S):
                self._watch()
        except _StoppedError:
            pass
        finally:
            self._end()

    def _start(self) -> None:
        if self._plan.runtime_port is not None:
            self._say("starting the demo jobs of the live runtime")
            self._supervisor.start(self._role("runtime", runtime_port=str(self._plan.runtime_port)))
        self._start_postgres()
        self._migrate()
        self._supervisor.start(self._api_role())
        self._supervisor.start(self._collect_role())
        with OwnApi(self._plan.url, self._plan.token) as api:
            self._await("api", api.is_ready)
            if (root := self._plan.runtime_url) is not None:
                self._await("runtime", lambda: api.is_runtime_ready(root))
                self._await_first_reading(api, root)
        # Started later, because they would slow down the roles that the start waits for.
        self._supervisor.start(self._alert_role())
        self._supervisor.start(self._pipeline_role())
        if self._plan.has_spark_demo:
            # Started last, and the start does not wait for it: Spark is slow to start and uses much of the machine.
            self._supervisor.start(self._spark_demo_role())
        self._say(f"ready: open {self._plan.url} (Ctrl-C stops everything; the history is kept)")

    def _end(self) -> None:
        self._say("stopping")
        try:
            self._supervisor.stop()
            if self._postgres is not None:
                self._postgres.stop()
        except KeyboardInterrupt:
            # The second Ctrl-C does not wait. PostgreSQL ends with this process, and recovers at the next start.
            self._supervisor.kill()
            raise
        self._say("stopped")

    # --- the steps ------------------------------------------------------------------------------------------------

    def _check_ports(self) -> None:
        check_port(self._plan.host, self._plan.port, option="--port")
        if self._plan.runtime_port is not None:
            check_port("127.0.0.1", self._plan.runtime_port, option="--runtime-port")

    def _start_postgres(self) -> None:
        from backend.store.postgres.embedded import EmbeddedPostgres

        self._check_stop()
        self._say("starting PostgreSQL")
        self._postgres = EmbeddedPostgres(self._plan.folder / "postgres")
        self._database_url = self._postgres.start()
        self._say("PostgreSQL is ready")

    def _migrate(self) -> None:
        plan = self._plan
        brought = {"built_in_target": plan.runtime_url or "", "built_in_spark_demo": str(plan.has_spark_demo).lower()}
        role = self._role("migrate", database_url=self._database_url, **brought)
        code = self._supervisor.run_once(role, self._stop.is_set)
        self._check_stop()
        if code != 0:
            words = self._supervisor.last_words("migrate")
            raise HostError(f"the database could not be migrated ({words})", fix=self._see_log("migrate"))

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        while not is_ready():
            self._watch()
            if self._supervisor.failures(name) >= _FAILED_STARTS_MAX or time.monotonic() > deadline_s:
                words = self._supervisor.last_words(name)
                raise HostError(f"{name} did not become ready ({words})", fix=self._see_log(name))
            if self._stop.wait(_WATCH_INTERVAL_S):
                raise _StoppedError
        self._say(f"{name} is ready")

    def _await_first_reading(self, api: OwnApi, root: str) -> None:
        deadline_s = time.monotonic() + _FIRST_READING_TIMEOUT_S
        while not api.has_read(root):
            self._watch()
            if time.monotonic() > deadline_s:
                self._say(f"the demo jobs have not been read yet; {self._see_log('collect')}")
                return
            if self._stop.wait(_WATCH_INTERVAL_S):
                raise _StoppedError

    def _watch(self) -> None:
        self._supervisor.watch()
        if self._postgres is not None and not self._postgres.is_running:
            self._restart_postgres(self._postgres)
        if self._plan.is_verbose:
            for line in self._tail.new_lines():
                print(line, flush=True)

    def _restart_postgres(self, postgres: EmbeddedPostgres) -> None:
        self._say("PostgreSQL ended unexpectedly; starting it again")
        self._database_url = postgres.start()
        # It listens on another port now.
        for role in (self._api_role(), self._collect_role(), self._alert_role(), self._pipeline_role()):
            if self._supervisor.has(role.name):
                self._supervisor.replace(role)
        self._say("PostgreSQL is ready")

    # --- the roles ------------------------------------------------------------------------------------------------

    def _api_role(self) -> Role:
        plan = self._plan
        return self._role("api", database_url=self._database_url, host=plan.host, port=str(plan.port))

    def _collect_role(self) -> Role:
        interval = f"{self._plan.poll_interval_s:g}"
        return self._role("collect", database_url=self._database_url, poll_interval_s=interval)

    def _alert_role(self) -> Role:
        base_url = self._plan.settings.public_url or self._plan.url
        return self._role("alert", database_url=self._database_url, public_url=base_url)

    def _pipeline_role(self) -> Role:
        values = child_environment(database_url=self._database_url, data_dir=str(self._plan.folder))
        return Role("pipeline", role_command("pipeline", "schedule"), values)

    def _spark_demo_role(self) -> Role:
        places = {"api_url": self._plan.url, "data_dir": str(self._plan.folder)}
        role = self._role("spark-demo", database_url=self._database_url, **places)
        # The query needs time to stop, and then its JVM.
        return replace(role, stop_timeout_s=15.0)

    def _role(self, name: str, **settings: str) -> Role:
        # Settings go into the environment, because other users can read a command line.
        return Role(name, role_command(name), child_environment(**settings))

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _StoppedError

    def _see_log(self, name: str) -> str:
        return f"see {self._instance.log_folder / name}.log"

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)
