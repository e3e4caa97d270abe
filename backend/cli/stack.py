"""The processes of ``up``: starts PostgreSQL and the roles in order, watches them, and stops them in reverse order.

The start has these steps: end the processes that a killed instance left; start the sweeper, which ends everything if
this process is killed; start the runtime, which needs no store; start PostgreSQL; migrate the database; start the API
with the pages; start the collector. When the pages have data, start alerts, rollups and the worker that runs
simulations. All data is in the data folder, so the history is available after the next start. PostgreSQL commits each
checkpoint that the collector stores, so ``kill -9`` at any moment loses no stored checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from backend.cli.instance import Instance, end_processes
from backend.cli.listening import check_port
from backend.cli.log_tail import LogTail
from backend.cli.own_api import OwnApi
from backend.cli.running import announced
from backend.cli.supervisor import Role, Supervisor, role_command
from backend.cli.sweeper import sweeper_command
from backend.domain.errors import DiskFullError, HostError, StoreFullError
from backend.pipeline.java import INSTANCE_VARIABLE
from backend.settings import Settings, child_environment

if TYPE_CHECKING:
    from backend.store.postgres.embedded import EmbeddedPostgres

_WATCH_INTERVAL_S = 0.1
# If a role is not ready after this time, `up` prints that it still waits for the role. The machine may just be slow.
_STILL_STARTING_S = 30.0
# With less free space than this, PostgreSQL may soon fail to extend its write-ahead log, which grows by 16 MiB at a
# time.
_ROOM_MIN_BYTES = 64 * 2**20
_ROOM_INTERVAL_S = 5.0
_FIRST_READING_TIMEOUT_S = 60.0
# If a role ends this many times before it is ready, the whole start fails.
_FAILED_STARTS_MAX = 3
METERED = ("api", "collect", "alert", "lab", "runtime")
"""The roles that serve metrics, in the order of their ports."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``up`` runs, according to the command's options and the settings."""

    folder: Path
    host: str
    port: int
    runtime_port: int | None
    """Port of the runtime that runs the live jobs; None if there are none."""
    runtime_jobs: tuple[str, ...]
    """The live jobs: names of demo jobs, and job files."""
    poll_interval_s: float
    is_verbose: bool
    has_spark_demo: bool
    settings: Settings
    targets_file: Path | None = None
    metrics_port: int | None = None
    """Port of the first role's metrics; None if no metrics are served."""

    @property
    def url(self) -> str:
        """The address of the pages and the API, as seen from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def runtime_url(self) -> str | None:
        """The root of the live runtime's monitoring REST; None if no live jobs run."""
        return None if self.runtime_port is None else f"http://127.0.0.1:{self.runtime_port}/runtime/v1"

    @property
    def token(self) -> str | None:
        """The API's bearer token; None if none is set."""
        return self.settings.token()


class _StoppedError(Exception):
    """Raised when a stop is requested during the start."""


class Stack:
    """One run of PostgreSQL and all roles."""

    def __init__(self, plan: Plan, instance: Instance, stop: threading.Event) -> None:
        self._plan = plan
        self._instance = instance
        self._stop = stop
        self._began_s = time.monotonic()
        self._tail = LogTail(instance.log_folder)
        self._supervisor = Supervisor(instance.log_folder, self._say, instance.record)
        # The sweeper has a supervisor of its own, because it must be the last process that ends.
        self._last = Supervisor(instance.log_folder, self._say, lambda _: None)
        self._announcement = ExitStack()
        self._postgres: EmbeddedPostgres | None = None
        self._database_url = ""
        self._is_waiting_for_room = False
        self._look_for_room_s = 0.0
        self._is_postgres_down = False
        self._start_postgres_at_s = 0.0

    def run(self) -> None:
        """Start everything, watch it until a stop is requested, then stop it and return.

        Raises:
            HostError: a port, a folder or a program of this machine is not usable. Every started process is stopped.
        """
        left = self._instance.leftovers()
        end_processes(left)
        # The ports are checked before anything is printed, so that the error is the only output if a port is in use.
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
        folder = str(self._plan.folder)
        environment = dict(os.environ) | {INSTANCE_VARIABLE: folder}
        self._last.start(Role("sweeper", sweeper_command(self._plan.folder), environment))
        if self._plan.runtime_port is not None:
            self._say("starting the live jobs of the reference runtime")
            jobs = [part for name in self._plan.runtime_jobs for part in ("--job", name)]
            self._supervisor.start(self._role("runtime", *jobs, runtime_port=str(self._plan.runtime_port)))
        self._start_postgres()
        self._migrate()
        self._supervisor.start(self._api_role())
        self._supervisor.start(self._collect_role())
        with OwnApi(self._plan.url, self._plan.token) as api:
            self._await("api", api.is_ready)
            root = self._plan.runtime_url
            announcement = announced(self._plan.url, self._plan.folder, self._plan.settings, runtime_url=root)
            self._announcement.enter_context(announcement)
            if root is not None:
                self._await("runtime", lambda: api.is_runtime_ready(root))
                self._await_first_reading(api, root)
        # These roles start later, because they would slow down the roles that the start waits for.
        self._supervisor.start(self._alert_role())
        self._supervisor.start(self._pipeline_role())
        self._supervisor.start(self._lab_role())
        if self._plan.has_spark_demo:
            # The demo starts last and the start does not wait for it, because Spark is slow to start and uses much of
            # the machine.
            self._supervisor.start(self._spark_demo_role())
        self._say(f"ready: open {self._plan.url} (Ctrl-C stops everything; the history is kept)")

    def _end(self) -> None:
        self._announcement.close()
        self._say("stopping")
        try:
            self._supervisor.stop()
            if self._postgres is not None:
                self._postgres.stop()
            self._last.stop()
        except KeyboardInterrupt:
            # On a second Ctrl-C, kill the roles without waiting. PostgreSQL ends with this process, and recovers at
            # the next start. The sweeper ends what then still runs.
            self._supervisor.kill()
            raise
        self._say("stopped")

    # --- the steps ------------------------------------------------------------------------------------------------

    def _check_ports(self) -> None:
        check_port(self._plan.host, self._plan.port, option="--port")
        if self._plan.runtime_port is not None:
            check_port("127.0.0.1", self._plan.runtime_port, option="--runtime-port")
        if self._plan.metrics_port is not None:
            for number, _ in enumerate(METERED):
                check_port(self._plan.settings.metrics_host, self._plan.metrics_port + number, option="--metrics-port")

    def _start_postgres(self) -> None:
        from backend.store.postgres.embedded import EmbeddedPostgres

        self._check_stop()
        self._say("starting PostgreSQL")
        postgres = EmbeddedPostgres(self._plan.folder / "postgres")
        while (url := self._try_postgres(postgres)) is None:
            self._pause()
        self._postgres, self._database_url = postgres, url

    def _try_postgres(self, postgres: EmbeddedPostgres) -> str | None:
        """Start PostgreSQL and return its URL. Return None if the disk is full.

        After a failure, calls return None without an attempt until it is time for the next attempt.
        """
        if time.monotonic() < self._start_postgres_at_s:
            return None
        try:
            url = postgres.start()
        except DiskFullError as error:
            self._wait_for_room(f"PostgreSQL starts when there is room ({error.what})")
            self._start_postgres_at_s = time.monotonic() + _ROOM_INTERVAL_S
            return None
        self._say("PostgreSQL is ready")
        return url

    def _wait_for_room(self, what: str) -> None:
        if not self._is_waiting_for_room:
            self._say(f"the disk of {self._plan.folder} is full: {what}")
        self._is_waiting_for_room = True

    def _look_for_room(self) -> None:
        if time.monotonic() < self._look_for_room_s:
            return
        self._look_for_room_s = time.monotonic() + _ROOM_INTERVAL_S
        free_bytes = shutil.disk_usage(self._plan.folder).free
        if free_bytes < _ROOM_MIN_BYTES:
            self._wait_for_room(f"it has {free_bytes // 2**20} MiB left; what cannot be stored waits for room")
        elif self._is_waiting_for_room and not self._is_postgres_down and free_bytes > 2 * _ROOM_MIN_BYTES:
            self._is_waiting_for_room = False
            self._say("there is room on the disk again")

    def _pause(self) -> None:
        """Wait a moment while the roles that run are watched. Raise an error if a stop is requested."""
        self._watch_roles()
        if self._stop.wait(_WATCH_INTERVAL_S):
            raise _StoppedError

    def _migrate(self) -> None:
        plan = self._plan
        brought = {"built_in_target": plan.runtime_url or "", "built_in_spark_demo": str(plan.has_spark_demo).lower()}
        role = self._role("migrate", database_url=self._database_url, **brought)
        while self._supervisor.run_once(role, self._stop.is_set) != 0:
            self._check_stop()
            words = self._supervisor.last_words("migrate")
            if StoreFullError.summary in words:
                self._wait_for_room(f"the database is migrated when there is room ({words})")
                if self._stop.wait(_ROOM_INTERVAL_S):
                    raise _StoppedError
                continue
            raise HostError(f"the database could not be migrated ({words})", fix=self._see_log("migrate"))

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        began_s = say_at_s = time.monotonic()
        while not is_ready():
            self._watch()
            words = self._supervisor.last_words(name)
            if self._supervisor.failures(name) >= _FAILED_STARTS_MAX and not self._is_waiting_for_room:
                raise HostError(f"{name} did not become ready ({words})", fix=self._see_log(name))
            # The start has no deadline, because a role that still runs may merely be slow, and the user can stop the
            # start at any time.
            if time.monotonic() - say_at_s > _STILL_STARTING_S:
                say_at_s = time.monotonic()
                tail = f": {words}" if words else ""
                self._say(f"{name} is still starting after {say_at_s - began_s:.0f} s{tail}")
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

    def _watch_roles(self) -> None:
        self._supervisor.watch()
        self._last.watch()

    def _watch(self) -> None:
        self._watch_roles()
        self._look_for_room()
        if self._postgres is not None and not self._postgres.is_running:
            self._restart_postgres(self._postgres)
        if self._plan.is_verbose:
            for line in self._tail.new_lines():
                _print(line)

    def _restart_postgres(self, postgres: EmbeddedPostgres) -> None:
        if not self._is_postgres_down:
            self._say("PostgreSQL ended unexpectedly; starting it again")
        self._is_postgres_down = True
        url, before = self._try_postgres(postgres), self._database_url
        if url is None:
            return
        self._is_postgres_down = False
        if url == before:
            # The roles reconnect by themselves and keep what they have not yet stored.
            return
        # Another program has taken the port of the server, so the roles that use the server need its new address.
        self._database_url = url
        roles = [self._api_role(), self._collect_role(), self._alert_role(), self._pipeline_role(), self._lab_role()]
        if self._plan.has_spark_demo:
            roles.append(self._spark_demo_role())
        for role in roles:
            if self._supervisor.has(role.name):
                self._supervisor.replace(role)

    # --- the roles ------------------------------------------------------------------------------------------------

    def _api_role(self) -> Role:
        plan = self._plan
        return self._role("api", database_url=self._database_url, host=plan.host, port=str(plan.port))

    def _collect_role(self) -> Role:
        interval = f"{self._plan.poll_interval_s:g}"
        places = {"database_url": self._database_url, "spool_dir": str(self._plan.folder / "spool")}
        if self._plan.targets_file is not None:
            places["targets_file"] = str(self._plan.targets_file.absolute())
        return self._role("collect", host=self._plan.host, poll_interval_s=interval, **places)

    def _alert_role(self) -> Role:
        base_url = self._plan.settings.public_url or self._plan.url
        return self._role("alert", database_url=self._database_url, host=self._plan.host, public_url=base_url)

    def _pipeline_role(self) -> Role:
        places = {"database_url": self._database_url, "data_dir": str(self._plan.folder)}
        return replace(self._role("pipeline", **places), command=role_command("pipeline", "schedule"))

    def _lab_role(self) -> Role:
        return self._role("lab", database_url=self._database_url)

    def _spark_demo_role(self) -> Role:
        places = {"api_url": self._plan.url, "data_dir": str(self._plan.folder)}
        role = self._role("spark-demo", database_url=self._database_url, **places)
        # The query needs time to stop, and so does its JVM after it.
        return replace(role, stop_timeout_s=15.0)

    def _role(self, name: str, *options: str, **settings: str) -> Role:
        # The settings are passed in the environment, because other users of the machine can read a command line.
        port = self._plan.metrics_port
        own = port + METERED.index(name) if port is not None and name in METERED else ""
        values = child_environment(metrics_port=str(own), **settings) | {INSTANCE_VARIABLE: str(self._plan.folder)}
        return Role(name, role_command(name, *options), values)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _StoppedError

    def _see_log(self, name: str) -> str:
        return f"see {self._instance.log_folder / name}.log"

    def _say(self, text: str) -> None:
        _print(f"{time.monotonic() - self._began_s:6.1f} s  {text}")


def _print(line: str) -> None:
    # The terminal or the reader of the pipe may be gone, or the disk may be full. The line is then lost, and `up` goes
    # on: it must still stop its roles in order.
    with contextlib.suppress(OSError):
        print(line, flush=True)
