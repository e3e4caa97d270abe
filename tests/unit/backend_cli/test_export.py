"""A file appears under its final name only when it is complete."""

from __future__ import annotations

import os

import pytest

from backend.cli.export import complete_file
from backend.domain.errors import HostError


def test_a_file_appears_when_it_is_complete(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(b"before")

    with complete_file(file) as written:
        written.write(b"after")
        written.flush()
        assert file.read_bytes() == b"before"

    assert file.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["rows.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_the_former_file_and_no_other(tmp_path, error):
    file = tmp_path / "rows.csv"
    file.write_bytes(b"before")

    def write():
        with complete_file(file) as written:
            written.write(b"after")
            raise error

    with pytest.raises(error):
        write()

    assert file.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_what_a_killed_export_left_is_overwritten(tmp_path):
    (tmp_path / "rows.csv.partial").write_bytes(b"much longer than the new content")

    with complete_file(tmp_path / "rows.csv") as written:
        written.write(b"new")

    assert (tmp_path / "rows.csv").read_bytes() == b"new"


def test_two_exports_to_one_file_do_not_mix(tmp_path):
    file = tmp_path / "rows.csv"

    with complete_file(file) as first:
        first.write(b"first")
        with pytest.raises(HostError, match="another process"), complete_file(file):
            pass

    assert file.read_bytes() == b"first"


def test_a_full_disk_is_one_error(tmp_path):
    with pytest.raises(HostError, match="No space left"), complete_file(tmp_path / "rows.csv"):
        raise OSError(28, "No space left on device")
