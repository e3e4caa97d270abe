"""The PostgreSQL server that ``up`` starts: unusual folders, other users, kills, and two instances in one folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from backend.domain.errors import DiskFullError, HostError
from backend.store.postgres import embedded
from backend.store.postgres.account import PRIVATE_UIDS
from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.postgres.leftovers import end_leftovers
from tests.support.clusters import copy_cluster, python_with_server
from tests.support.waiting import PATIENCE_S

_NOBODY = 65534
_LINUX = Path("/proc/self/cwd").exists()


@pytest.fixture
def folder(made_cluster, tmp_path):
    return copy_cluster(made_cluster, tmp_path / "postgres")


@pytest.fixture
def server(folder):
    made = EmbeddedPostgres(folder)
    yield made
    made.stop()


def _kept(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number FROM kept").fetchall()


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def _line(error):
    words = str(error.value)
    assert "\n" not in words
    return words


def test_the_server_runs_at_a_long_odd_path_and_changes_no_parent_folder(made_cluster):
    assert len(str(made_cluster)) > 230
    modes = {p: (p.stat().st_mode, p.stat().st_uid) for p in made_cluster.parents}
    users = Path("/etc/passwd").read_bytes()
    server = EmbeddedPostgres(made_cluster)

    url = server.start()
    try:
        assert _kept(url) == [(1,)]
    finally:
        server.stop()

    assert not (made_cluster / "data.new").exists()
    assert modes == {p: (p.stat().st_mode, p.stat().st_uid) for p in made_cluster.parents}
    assert Path("/etc/passwd").read_bytes() == users
    assert modes[made_cluster.parents[2]][0] & 0o777 == 0o700


def test_starting_twice_gives_one_server_and_stopping_twice_is_no_error(server):
    assert server.start() == server.start()
    assert server.is_running

    server.stop()
    server.stop()

    assert not server.is_running
    assert server.pid is None


def test_the_environment_of_the_caller_does_not_affect_the_server(server, monkeypatch):
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("LC_ALL", "xx_XX.nonsense")
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGGSSENCMODE", "require")

    with psycopg.connect(server.start()) as connection:
        shown = {n: connection.execute(f"SHOW {n}").fetchone() for n in ("fsync", "synchronous_commit", "timezone")}

    assert shown == {"fsync": ("on",), "synchronous_commit": ("on",), "timezone": ("UTC",)}


def test_a_connection_needs_the_password(server):
    url = server.start()
    password = (server._folder / "password").read_text()

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url.replace(password, "wrong"))
    assert (server._folder / "password").stat().st_mode & 0o077 == 0


def test_a_folder_without_its_password_file_is_refused_in_one_line(server, folder):
    (folder / "password").unlink()

    with pytest.raises(HostError, match="is not the password of its data; restore that file, or") as error:
        server.start()

    _line(error)
    assert not server.is_running


def test_a_second_server_in_the_same_folder_is_refused_and_harms_nothing(server, folder):
    url = server.start()

    with pytest.raises(HostError) as error:
        EmbeddedPostgres(folder).start()

    assert _line(error) == (
        f"the folder {folder} is in use by another instance; stop that one, or pass another folder with --data-dir"
    )
    assert _kept(url) == [(1,)]


def test_of_two_processes_that_start_in_one_folder_one_is_refused(folder):
    then = (
        "import backend.domain.errors as e\n"
        "try: server.start(); print('started', flush=True)\n"
        "except e.HostError as error: print('refused', error, flush=True)\n"
        "sys.stdin.read()"
    )
    with python_with_server(folder, then) as one, python_with_server(folder, then) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        answers = sorted((one.stdout.readline(), other.stdout.readline()))

    assert [a.split()[0] for a in answers] == ["refused", "started"]
    assert "is in use by another instance" in answers[0]


@pytest.mark.skipif(not _LINUX, reason="needs Linux")
def test_the_server_ends_when_its_process_is_killed_and_the_folder_is_free(folder, server):
    then = "server.start(); print(server.pid, flush=True); sys.stdin.read()"
    with python_with_server(folder, then) as other:
        assert other.stdout is not None
        pid = int(other.stdout.readline())
        other.kill()
        other.wait(PATIENCE_S)

        assert _kept(server.start()) == [(1,)]

    assert not _is_alive(pid)


@pytest.mark.skipif(not _LINUX, reason="needs Linux")
def test_a_server_that_outlived_its_instance_is_ended_before_the_next_start(folder, server):
    # The process replaces itself with another program. This releases its lock, but its server keeps running.
    then = "import os; server.start(); os.execvp('sh', ['sh', '-c', f'echo {server.pid}; exec sleep 600'])"
    with python_with_server(folder, then) as other:
        assert other.stdout is not None
        pid = int(other.stdout.readline())
        assert _is_alive(pid)

        assert _kept(server.start()) == [(1,)]

        assert not _is_alive(pid)
        assert other.poll() is None


@pytest.mark.skipif(not _LINUX, reason="needs Linux")
def test_a_stale_pid_file_with_the_process_id_of_another_program_does_not_matter(folder, server):
    # The other program runs as the server's user, and the pid file holds its process id in the format that a server
    # writes.
    user = (folder / "data").stat().st_uid
    with subprocess.Popen(["sleep", "600"], **({"user": user} if os.geteuid() == 0 else {})) as stranger:
        stale = f"{stranger.pid}\n/proc/self/cwd\n1700000000\n5432\n\n127.0.0.1\n  5432001         0\nready   \n"
        (folder / "data" / "postmaster.pid").write_text(stale)
        try:
            assert _kept(server.start()) == [(1,)]
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_program_that_only_has_the_folder_as_its_working_directory_is_not_ended(folder):
    with subprocess.Popen(["sleep", "600"], cwd=folder / "data") as stranger:
        try:
            assert end_leftovers(folder / "data") == 0
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_server_that_was_killed_is_started_again_at_the_same_address(server):
    url = server.start()
    os.killpg(server.pid, signal.SIGKILL)
    server._process.wait(PATIENCE_S)

    assert not server.is_running
    assert server.start() == url
    assert _kept(url) == [(1,)]


def test_a_server_whose_port_was_taken_while_it_was_down_is_started_at_another_port(server):
    url = server.start()
    os.killpg(server.pid, signal.SIGKILL)
    server._process.wait(PATIENCE_S)
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", server._port))
        taker.listen()

        other = server.start()

    assert other != url
    assert _kept(other) == [(1,)]


@pytest.mark.skipif(not _LINUX, reason="needs Linux")
def test_processes_of_a_killed_postmaster_are_killed_without_a_wait(server, folder, monkeypatch):
    with psycopg.connect(server.start()) as connection:
        backend = connection.info.backend_pid
        # A suspended process does not react to the end of its postmaster, nor to a request to stop.
        os.kill(backend, signal.SIGSTOP)
        server._process.kill()
        server._process.wait(PATIENCE_S)
        sent, kill = set(), os.kill
        monkeypatch.setattr(os, "kill", lambda pid, number: (sent.add(number), kill(pid, number)))

        assert end_leftovers(folder / "data", grace_s=PATIENCE_S) >= 1

    assert sent == {signal.SIGKILL}
    assert not _is_alive(backend)


def test_if_the_port_is_taken_at_the_last_moment_another_port_is_tried(server, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        free = embedded._free_port
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(embedded, "_free_port", lambda: ports.pop() if ports else free())

        assert _kept(server.start()) == [(1,)]


@pytest.fixture
def small_disk(tmp_path):
    """Yield a folder on a disk of 160 MiB. It is mounted, so only root can create it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount a disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def _fill(file):
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as written:
        while True:
            written.write(b"x" * 2**16)


def test_on_a_full_disk_the_server_is_refused_as_such_and_starts_when_there_is_room(made_cluster, small_disk):
    folder = copy_cluster(made_cluster, small_disk / "postgres")
    new, server = EmbeddedPostgres(small_disk / "new"), EmbeddedPostgres(folder)
    for started in (server, new):
        started._prepare_folder()
        _fill(small_disk / "other files")

        with pytest.raises(DiskFullError, match=r"No space left on device.*; make room on the disk") as error:
            started.start()

        _line(error)
        (small_disk / "other files").unlink()
    try:
        assert _kept(server.start()) == [(1,)]
        assert not (small_disk / "new" / "data.new").exists()
    finally:
        server.stop()


@pytest.mark.parametrize("place", ["/proc/barrierscope/postgres", "/dev/null/postgres"])
def test_a_folder_that_cannot_be_made_is_reported_in_one_line(place):
    with pytest.raises(HostError) as error:
        EmbeddedPostgres(place).start()

    assert f"{place} cannot be written (" in _line(error)
    assert _line(error).endswith("; pass another folder with --data-dir")


def test_a_file_in_place_of_the_folder_is_reported_in_one_line(tmp_path):
    (tmp_path / "postgres").write_text("not a folder")

    with pytest.raises(HostError, match="cannot be written") as error:
        EmbeddedPostgres(tmp_path / "postgres").start()
    _line(error)


def test_data_of_another_major_version_is_refused_in_one_line_with_a_remedy_and_stays_unchanged(folder):
    (folder / "data" / "PG_VERSION").write_text("17\n")
    before = sorted(os.listdir(folder / "data"))

    with pytest.raises(HostError) as error:
        EmbeddedPostgres(folder).start()

    assert "is of PostgreSQL 17, but this version contains 18; export it with pg_dump of PostgreSQL 17" in _line(error)
    assert sorted(os.listdir(folder / "data")) == before


def test_a_server_that_cannot_start_says_why_in_one_line_and_leaves_the_folder_free(folder, server):
    control = folder / "data" / "global" / "pg_control"
    kept = control.read_bytes()
    control.write_bytes(b"\0" * 100)

    with pytest.raises(HostError, match=r"PostgreSQL did not start \(.*(FATAL|PANIC): .*\); see ") as error:
        server.start()
    _line(error)

    control.write_bytes(kept)
    assert _kept(server.start()) == [(1,)]


_INTRUDER = """
import os, sys
pid, folder = int(sys.argv[1]), sys.argv[2]
places = [f"/proc/{pid}/{name}" for name in ("cwd/PG_VERSION", "cwd/pg_hba.conf", "cwd/../password", "environ", "mem")]
for path in (*places, f"{folder}/password", f"{folder}/data/PG_VERSION"):
    try:
        open(path, "rb").close()
        print(path)
    except OSError:
        pass
try:
    os.kill(pid, 0)
    print("signal")
except OSError:
    pass
"""


def _reached_by(user, server, folder):
    """Return what a process of ``user`` can read of the server and its folder, and whether it can send a signal."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", _INTRUDER, str(server.pid), str(folder)],
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(os.geteuid() != 0 or not _LINUX, reason="needs root on Linux")
def test_as_root_no_process_of_another_user_reaches_the_server_or_its_data(server, folder):
    url = server.start()
    user = os.stat(f"/proc/{server.pid}").st_uid

    assert _kept(url) == [(1,)]
    assert user in PRIVATE_UIDS
    assert _reached_by(_NOBODY, server, folder) == []
    assert len(_reached_by(user, server, folder)) > 3, "the intruder works"
    assert (folder / "password").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0 or not _LINUX, reason="needs root on Linux")
def test_as_root_the_data_of_an_earlier_version_is_taken_from_nobody_and_keeps_its_new_user(server, folder):
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)

    assert _kept(server.start()) == [(1,)]
    user = os.stat(f"/proc/{server.pid}").st_uid
    server.stop()

    assert user in PRIVATE_UIDS
    assert {path.stat().st_uid for path in (folder / "data").rglob("*")} == {user}
    assert (folder / "password").stat().st_uid == 0
    server.start()
    assert os.stat(f"/proc/{server.pid}").st_uid == user


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_root_the_server_runs_as_the_user_that_starts_it():
    user = next(u.pw_uid for u in pwd.getpwall() if u.pw_uid not in {0, _NOBODY})
    interpreter = _interpreter_of(user)
    if interpreter is None:
        pytest.skip("no Python here that another user may run")
    # Pytest's folder cannot be used, because only its owner may enter it.
    above = Path(tempfile.mkdtemp(prefix="barrierscope-test-"))
    os.chown(above, user, user)
    folder = above / "postgres"
    packages = os.pathsep.join(p for p in sys.path if p)
    then = (
        "import os, psycopg; url = server.start(); connection = psycopg.connect(url)\n"
        "connection.execute('CREATE TABLE t (n int)'); connection.commit(); connection.close(); server.stop()\n"
        "with psycopg.connect(server.start()) as c: print(c.execute('SELECT count(*) FROM t').fetchone()[0])\n"
        "print(os.stat(f'/proc/{server.pid}').st_uid, flush=True); server.stop()"
    )
    try:
        with python_with_server(
            folder, then, interpreter=[interpreter], environment={"PYTHONPATH": packages}, user=user
        ) as other:
            out, err = other.communicate(timeout=PATIENCE_S)
        assert (out.split(), err) == (["0", str(user)], "")
        assert (folder / "data").stat().st_uid == user
    finally:
        shutil.rmtree(above)


def test_a_user_id_without_a_name_is_reported_in_one_line(tmp_path, monkeypatch):
    def nameless(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nameless)

    with pytest.raises(HostError, match=r"user id \d+ has no name on this machine") as error:
        EmbeddedPostgres(tmp_path / "postgres").start()
    _line(error)


def _interpreter_of(user):
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            shown = subprocess.run(
                [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                cwd="/",
                user=user,
                group=user,
                extra_groups=[],
                check=False,
                timeout=PATIENCE_S,
            ).stdout.strip()
        except OSError:
            continue
        if shown == wanted:
            return candidate
    return None
