"""Lines of files are broken at words, and a control character of a foreign program is spelled."""

from __future__ import annotations

from collectors.wrapping import WIDTH, wrapped


def test_lines_end_at_a_word_and_begin_with_what_is_asked_for():
    lines = wrapped("state " * 40, "* ", "  ")

    assert max(map(len, lines)) <= WIDTH
    assert [line[:2] for line in lines] == ["* ", "  ", "  "]
    assert " ".join(" ".join(lines).replace("* ", "").split()) == ("state " * 40).strip()


def test_without_other_lines_every_line_begins_alike():
    assert {line[:4] for line in wrapped("a word " * 40, "    ")} == {"    "}


def test_a_long_path_is_not_broken_and_a_control_character_is_spelled():
    path = "/srv/" + "x-" * WIDTH

    assert wrapped(f"at {path}\x1b[31m") == ["at", path + r"\x1b[31m"]
