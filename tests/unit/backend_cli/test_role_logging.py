"""Tests that each event is one line of the log, whatever characters its values contain."""

from __future__ import annotations

import errno
import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from backend.cli.role_logging import log_to_stderr
from backend.settings import LogLevel
from tests.support.waiting import PATIENCE_S

_HOSTILE = "a\r\nlevel=error forged\x1b[31m\x00\x85\u2028\u202e\ud800"


@pytest.fixture(autouse=True)
def _own_logging():
    root, level, handlers = logging.getLogger(), logging.getLogger().level, list(logging.getLogger().handlers)
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


def _logged(capsys):
    lines = capsys.readouterr().err.split("\n")
    assert lines.pop() == ""
    assert all(line.isprintable() for line in lines), lines
    return lines


def test_an_event_with_control_characters_is_one_printable_line(capsys):
    log_to_stderr(LogLevel.INFO)

    structlog.get_logger("api").warning(_HOSTILE, path=_HOSTILE, nested=[_HOSTILE])
    # A logger of another library is used. A test in this process may have started a server, which sets the level of
    # its own logger.
    logging.getLogger("a.library").warning("refused %s", _HOSTILE)

    lines = _logged(capsys)
    assert len(lines) == 2
    assert r"\x1b[31m" in lines[0]
    assert r"refused a\r\nlevel=error forged\x1b[31m\x00\x85\u2028\u202e\ud800" in lines[1]


def test_a_traceback_is_one_line_as_well(capsys):
    log_to_stderr(LogLevel.INFO)

    try:
        raise ValueError(_HOSTILE)
    except ValueError:
        structlog.get_logger("api").exception("unexpected error")
        logging.getLogger("api").exception("unexpected error")

    lines = _logged(capsys)
    assert len(lines) == 2
    assert all("Traceback" in line for line in lines)


class _Disk(io.StringIO):
    """A file on a disk that has room for ``room`` more characters."""

    room = 1000

    def write(self, text):
        written = super().write(text[: self.room])
        self.room -= written
        if written < len(text):
            raise OSError(errno.ENOSPC, "No space left on device")
        return written


def test_after_a_full_disk_the_next_event_is_a_line_of_its_own(monkeypatch):
    disk = _Disk()
    monkeypatch.setattr(sys, "stderr", disk)
    log_to_stderr(LogLevel.INFO)
    log = structlog.get_logger("collect")

    disk.room = 40
    log.warning("cut off")
    log.warning("dropped")
    disk.room = 1000
    log.warning("there is room")

    lines = [line for line in disk.getvalue().split("\n") if line]
    assert len(lines) == 2
    assert len(lines[0]) == 40
    assert lines[1].startswith("timestamp=")
    assert "there is room" in lines[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_on_a_full_disk_ends_no_role():
    script = (
        "import logging, structlog; from backend.cli.role_logging import log_to_stderr\n"
        "from backend.settings import LogLevel; log_to_stderr(LogLevel.INFO)\n"
        "for _ in range(1000): structlog.get_logger().warning('x' * 100); logging.getLogger('y').warning('z' * 100)\n"
        "print('still here')"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=full, timeout=PATIENCE_S, check=False
        )

    assert done.stdout == b"still here\n"
