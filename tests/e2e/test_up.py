"""``barrierscope up`` as a process that cannot start, or is interrupted while it starts.

``test_up_killed.py`` kills the process during its start, and ``test_up_running.py`` disturbs a running
instance.
"""

from __future__ import annotations

import socket

from tests.support.running_up import free_port, refused


def test_a_taken_port_is_refused_in_one_line_that_names_the_option(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        line = refused("--port", str(port), "--data-dir", str(folder))
        demo = refused("--port", str(free_port()), "--runtime-port", str(port), "--data-dir", str(folder))

    assert f"port {port} on 127.0.0.1 is in use; pass another one with --port" in line
    assert demo.endswith("pass another one with --runtime-port")
    assert not (folder / "postgres").exists()


def test_data_of_another_postgresql_is_refused_in_one_line_that_names_pg_dump(folder):
    (folder / "postgres" / "data").mkdir(parents=True)
    (folder / "postgres" / "data" / "PG_VERSION").write_text("14\n")

    line = refused("--no-demo", "--port", str(free_port()), "--data-dir", str(folder))

    assert "is of PostgreSQL 14" in line
    assert "pg_dump" in line


def test_an_interrupt_during_the_start_stops_in_order(start, folder):
    up = start(BARRIERSCOPE_RUNTIME_WARM_UP_S="1")
    up.wait_until_says("PostgreSQL is ready")

    up.interrupt()

    assert up.process.returncode == 0
    assert up.lines[-1].endswith("stopped")
    assert not any("Traceback" in line for line in up.lines)
