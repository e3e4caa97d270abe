"""Tests of following the logs of the roles: each complete line is shown once, with the name of its role."""

from __future__ import annotations

from backend.cli.log_tail import LogTail


def test_only_added_whole_lines_are_shown_each_once(tmp_path):
    (tmp_path / "api.log").write_text("of the former run\n")
    tail = LogTail(tmp_path)
    with (tmp_path / "api.log").open("a") as log:
        log.write("first\nsec")
        log.flush()
        assert [line.split() for line in tail.new_lines()] == [["api", "first"]]
        log.write("ond\n")
        log.flush()

    assert [line.split() for line in tail.new_lines()] == [["api", "second"]]
    assert list(tail.new_lines()) == []


def test_a_log_that_is_created_later_is_shown_from_its_beginning(tmp_path):
    tail = LogTail(tmp_path)
    (tmp_path / "collect.log").write_text("begun\n")

    assert [line.split() for line in tail.new_lines()] == [["collect", "begun"]]


def test_a_truncated_log_is_read_from_its_beginning_again(tmp_path):
    (tmp_path / "api.log").write_text("x" * 100 + "\n")
    tail = LogTail(tmp_path)
    (tmp_path / "api.log").write_text("after\n")

    assert [line.split() for line in tail.new_lines()] == [["api", "after"]]


def test_a_line_longer_than_one_reading_is_shown_in_parts_and_does_not_block(tmp_path, monkeypatch):
    monkeypatch.setattr("backend.cli.log_tail._READ_MAX_BYTES", 10)
    tail = LogTail(tmp_path)
    (tmp_path / "api.log").write_text("x" * 15 + "\nend\n")

    shown = [line.split()[1] for _ in range(3) for line in tail.new_lines()]

    assert "".join(shown) == "x" * 15 + "end"


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path):
    tail = LogTail(tmp_path)
    (tmp_path / "pipeline.log").write_text("\x1b[2Jhidden\x07\n")

    assert [line.split() for line in tail.new_lines()] == [["pipeline", r"\x1b[2Jhidden\x07"]]
