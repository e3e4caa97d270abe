"""The commands in ``docs/backup.md`` dump and restore a whole database, or leave it as it was."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from backend.cli.app import run
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.postgres.embedded import EmbeddedPostgres, running_url
from backend.store.retention import apply_retention
from backend.store.schema import migrate
from backend.store.schema.partitions import Retention, list_partitions
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.packaging.wheel_environment import ROOT
from tests.support import observations as made
from tests.support.clusters import copy_cluster
from tests.support.observations import NOW, SINK, SteppingClock, completed, job, observation
from tests.support.serving import api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
_DAY = timedelta(days=1)
_BLOCKS = re.findall(r"^```sh\n(.*?)```$", (ROOT / "docs" / "backup.md").read_text(), re.M | re.S)


@pytest.fixture
def server(made_cluster):
    """Yield a data folder of `up`, and the URL and the object of a server that runs in it."""
    above = Path(tempfile.mkdtemp(prefix="barrierscope-test-"))
    started = EmbeddedPostgres(copy_cluster(made_cluster, above / "postgres"))
    try:
        yield above, started.start(), started
    finally:
        started.stop()
        assert running_url(above / "postgres") is None
        shutil.rmtree(above, ignore_errors=True)


def _run(commands, where, **variables):
    """Run shell commands of the document. Return what they print."""
    before = 'set -eu; barrierscope() { python -m backend.cli "$@"; }; python() { \'' + sys.executable + '\' "$@"; }\n'
    for name, value in variables.items():
        before += f"export {name}='{value}'\n"
    done = subprocess.run(
        ["/bin/sh", "-c", before + commands],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _contents(url):
    """Return every row of every table, and the definitions of partitions, indexes, constraints and comments."""
    found = {}
    with psycopg.connect(url) as connection:
        names = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        for (name,) in connection.execute(names).fetchall():
            rows = connection.execute(f'SELECT t::text FROM "{name}" t ORDER BY 1').fetchall()
            comment = connection.execute("SELECT obj_description(%s::regclass)", [f'"{name}"']).fetchone()
            found[name] = (rows, comment)
        for key, query in (
            ("indexes", "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"),
            (
                "constraints",
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
            ),
            ("bounds", "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class WHERE relispartition ORDER BY 1"),
        ):
            found[key] = (connection.execute(query).fetchall(), None)
    return found


async def _write(url, *, at, checkpoints):
    engine = create_store_engine(url)
    clock = SteppingClock(at)
    new = NewTarget(url="http://flink:8081", name="flink", origin=TargetOrigin.API, labels={"team": "é'\\ %"})
    targets = await TargetRepository(engine).list_all()
    target_id = targets[0].id if targets else (await TargetRepository(engine).add(new, at=at)).id
    seen = replace(
        job(checkpoints),
        started_at=NOW - 9 * _DAY,
        pressure=(made.pressure(SINK, at),),
        barriers=tuple((c.header.checkpoint_id, made.barrier_events(4)) for c in checkpoints),
        exceptions=((at, "an exception"),),
    )
    await IngestWriter(engine, clock=clock).write(observation(target_id, seen, at=at))
    return engine


async def _written(url):
    """Migrate and fill a database: five checkpoints of a day that is down-sampled, and one of today."""
    migrate.upgrade(url)
    old = NOW - 4 * _DAY
    engine = await _write(url, at=old, checkpoints=[completed(n, triggered_at=old) for n in range(1, 6)])
    await engine.dispose()
    engine = await _write(url, at=NOW, checkpoints=[completed(7)])
    assert (await apply_retention(engine, Retention(), NOW)).downsampled
    await engine.dispose()


async def _check_restored(before, url):
    """Check that the database at ``url`` has the contents ``before``, and that it accepts new rows."""
    after = _contents(url)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == set()
    # Retention does not repeat what it did before the dump.
    engine = await _write(url, at=NOW + timedelta(minutes=1), checkpoints=[completed(8)])
    assert (await apply_retention(engine, Retention(), NOW)).downsampled == ()
    assert any(p.removed for p in await list_partitions(engine))
    await engine.dispose()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (7,)


async def _responses(url):
    """Return what the API returns for the fleet board, and for a checkpoint with its subtasks."""
    engine = create_store_engine(url)
    async with asking(api_over(engine, SteppingClock(NOW))) as client:
        jobs = await client.get("/api/v1/jobs")
        with psycopg.connect(url) as connection:
            [(job_id, run_id)] = connection.execute("SELECT job_id, id FROM runs").fetchall()
        path = f"/api/v1/jobs/{job_id}/runs/{run_id}/checkpoints/7"
        checkpoint = await client.get(path)
        assert len(jobs.json()["items"]) == 1
        assert checkpoint.json()["vertices"]
    await engine.dispose()
    return jobs.json(), checkpoint.json()


async def test_a_dump_is_restored_into_a_data_folder_and_into_a_server_of_ones_own(server, tmp_path):
    folder, url, _ = server
    backup, restore, binaries, load, _ = _BLOCKS
    assert running_url(folder / "postgres") == url
    await _written(url)
    # The API stores the findings that it computes.
    responses = await _responses(url)
    before = _contents(url)
    assert "bytes" in _run(backup, tmp_path, BARRIERSCOPE_DATA_DIR=folder)

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
    new_url = url.replace("/barrierscope?", "/restored?")
    bin_folder = _run(binaries + 'printf "%s" "$bin"', tmp_path)
    assert "up to date" in _run(load, tmp_path, bin=bin_folder, new_url=new_url)
    await _check_restored(before, new_url)

    new = tmp_path / "new"
    command, start = restore.splitlines()
    assert start.startswith("barrierscope up")
    assert "up --data-dir" in _run(command, tmp_path, folder=new)
    restored = EmbeddedPostgres(new / "postgres")
    try:
        assert await _responses(restored.start()) == responses
        await _check_restored(before, restored.start())
    finally:
        restored.stop()


# This program runs the command, and hangs at the point at which the loaded database would replace the other one.
_RESTORE = """
import signal, sys
from backend.cli.app import run
from backend.store.schema import migrate
def loaded(url):
    print("loaded", flush=True)
    signal.sigwait([signal.SIGUSR1])
migrate.upgrade = loaded
sys.exit(run(["restore", *sys.argv[1:]]))
"""


async def test_a_restore_that_is_killed_or_fails_leaves_the_data_as_it_was(server, tmp_path, capsys):
    folder, url, postgres = server
    dump, part = tmp_path / "empty.dump", tmp_path / "part.dump"
    migrate.upgrade(url)
    assert run(["backup", str(dump), "--data-dir", str(folder)]) == 0
    await _written(url)
    with psycopg.connect(url) as connection:
        # Most of the dump is data, so the shortened one begins like a dump.
        connection.execute(
            "INSERT INTO job_events (run_id, kind, key, job_id, at, text) SELECT r.id, 'exception', n::text, r.job_id,"
            " now(), sha512(n::text::bytea)::text FROM runs r, generate_series(1, 5000) n"
        )
    before = _contents(url)
    assert run(["backup", str(part), "--data-dir", str(folder)]) == 0
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])

    def fails(file, words, *options):
        capsys.readouterr()
        assert run(["restore", str(file), "--data-dir", str(folder), *options]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1

    def contents():
        with psycopg.connect(postgres.start()) as connection:
            names = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        assert names == {"barrierscope", "postgres", "template0", "template1"}
        found = _contents(postgres.start())
        postgres.stop()
        return found

    fails(dump, "in use", "--replace")
    postgres.stop()
    fails(dump, "pass --replace")
    fails(tmp_path / "no.dump", "cannot be read", "--replace")
    fails(__file__, "cannot be read", "--replace")
    fails(part, "could not be loaded", "--replace")
    assert contents() == before

    command = [sys.executable, "-c", _RESTORE, str(dump), "--data-dir", str(folder), "--replace"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as restoring:  # noqa: ASYNC220
        assert restoring.stdout.readline() == "loaded\n"
        restoring.kill()
    assert contents() == before

    assert run(["restore", str(dump), "--data-dir", str(folder), "--replace"]) == 0
    assert contents()["checkpoints"][0] == []
