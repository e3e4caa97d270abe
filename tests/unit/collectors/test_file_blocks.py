"""Tests of reading log files in blocks: no line is lost or doubled at the edge of two blocks."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pytest

from backend.domain.errors import InvalidInputError
from collectors import file_blocks as reading
from collectors.file_blocks import TRACE_BYTES, blocks, files_of, hits, is_log


def quiet(*_: object) -> None:
    pass


def parts(data: bytes, size: int):
    return (data[i : i + size] for i in range(0, len(data), size))


@pytest.mark.parametrize("size", [7, 1_000, 70_000, 1_000_000])
def test_each_line_with_a_text_is_found_once_wherever_the_blocks_end(size: int):
    random.seed(7)
    lines = [f"line {i} {'needle' if i % 97 == 0 else 'hay'} {'x' * random.randrange(200)}" for i in range(2_000)]
    data = "\n".join(lines).encode()

    found = [hit.line.decode() for hit in hits(parts(data, size), (b"needle", b"line 97 "))]

    assert found == [text for text in lines if "needle" in text]


@pytest.mark.parametrize("size", [50, 70_000])
def test_what_follows_a_line_is_complete_wherever_the_blocks_end(size: int):
    data = b"hay\n" * 20_000 + b"needle\nat a\nat b\nCaused by: c\n" + b"hay\n" * 30_000

    (hit,) = hits(parts(data, size), (b"needle",))

    assert list(hit.lines_after(4)) == [b"at a", b"at b", b"Caused by: c", b"hay"]
    assert sum(len(line) + 1 for line in hit.lines_after(1_000_000)) <= TRACE_BYTES + 1


def test_a_file_without_a_line_break_is_read_in_bounded_pieces():
    found = list(hits(parts(b"needle" + b"x" * 3_000_000, 100_000), (b"needle",)))

    assert len(found) == 1
    assert len(found[0].line) <= TRACE_BYTES


def test_a_compressed_file_is_read_and_a_damaged_end_does_not_hide_what_precedes_it(tmp_path: Path):
    whole = gzip.compress(b"".join(b"needle %d %d\n" % (i, i * i) for i in range(50_000)))
    path, cut = tmp_path / "a.log.gz", tmp_path / "b.log.gz"
    path.write_bytes(whole)
    cut.write_bytes(whole[: len(whole) // 2])

    damages: list[str] = []

    assert sum(1 for _ in hits(blocks(str(path), quiet, damages), (b"needle",))) == 50_000
    assert damages == []
    assert sum(1 for _ in hits(blocks(str(cut), quiet, damages), (b"needle",))) > 10_000
    assert damages == [f"{cut} cannot be read to its end (damaged, cut or still written): only a first part was read"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch):
    class Stdin:
        buffer = io.BytesIO(b"hay\nneedle\n")

    monkeypatch.setattr(reading.sys, "stdin", Stdin)

    assert [hit.line for hit in hits(blocks("-", quiet, []), (b"needle",))] == [b"needle"]


def test_a_folder_gives_its_logs_and_leaves_out_other_files(tmp_path: Path):
    names = ["flink-jm.log", "flink-jm.log.3", "sub/flink-tm.out", "sub/old.log.gz", "a.jar", "b.class"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    found = files_of([str(tmp_path), str(tmp_path / "flink-jm.log")], option="--log", wanted=is_log)

    assert [Path(f).name for f in found] == ["flink-jm.log", "flink-jm.log.3", "flink-tm.out", "old.log.gz"]


def test_a_file_that_does_not_exist_and_an_empty_folder_are_both_said(tmp_path: Path):
    with pytest.raises(InvalidInputError) as error:
        files_of([str(tmp_path / "none.log"), str(tmp_path)], option="--log", wanted=is_log)

    assert "none.log' does not exist" in str(error.value)
    assert "has no such file" in str(error.value)
