"""Each prose rule reports its bad example and accepts its good one. Code, SQL and docstrings are not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose.__main__ import documents, findings, main, modules
from tests.prose.style import RULES, WORDS_MAX
from tests.prose.text import Passage, comment_passages, docstring_passages, markdown_passages, string_passages

_EXAMPLES = {
    "told": (
        "What is wrong with a file is told by field.",
        "An error names the field.",
    ),
    "will-not-do": ("'x' will not do.", "'x' is not a valid value; it will not do so again."),
    "unbelievable": ("It is 4 s over its timeout, unbelievably.", "It is 4 s past its timeout."),
    "beside": ("A second run beside the first is refused.", "A second run next to the first is refused."),
    "who": (
        "It shows which vertex, and who holds the barrier.",
        "People who open a page, and anyone who asks, see the vertex that holds it.",
    ),
    "where-is-if": (
        "Where the ratio is large, one factor made it so.",
        "If the ratio is large, one factor made it so. Which page shows where it happened?",
    ),
    "of-chain": (
        "It is the end of the time of the last of them.",
        "It is the end of the last one's time.",
    ),
    "inversion": ("Judged are the newest checkpoints.", "The newest checkpoints are judged."),
    "for-is-because": ("The twin starts evenly, for its tasks come up at once.", "It waits for its tasks."),
    "riddle": ("Two things are refused all the same.", "Two things are refused in any case."),
    "long": (
        " ".join(["It"] + ["waits"] * WORDS_MAX) + ".",
        "It waits. " + " ".join(["It"] + ["waits"] * (WORDS_MAX - 1)) + ".",
    ),
}


def _rules_broken(text: str) -> set[str]:
    return {line.split(": ")[1] for line in findings([Passage(Path("example.md"), 1, text)])}


def test_every_rule_has_an_example():
    assert {rule.path.removeprefix("barrierscope.") for rule in RULES} == set(_EXAMPLES)


@pytest.mark.parametrize("name", _EXAMPLES)
def test_a_rule_finds_its_bad_example_and_accepts_the_good_one(name):
    bad, good = _EXAMPLES[name]

    assert f"barrierscope.{name}" in _rules_broken(bad)
    assert {rule for rule in _rules_broken(good) if rule.startswith("barrierscope")} == set()


def test_proselints_own_checks_run():
    assert "weasel_words.very" in _rules_broken("It is very slow.")


def test_make_check_reads_all_documents_and_all_strings_of_the_product():
    """``make check`` holds them to the rules, so they are not checked here a second time."""
    assert sum(1 for path in documents() for _ in markdown_passages(path)) > 500
    assert sum(1 for path in modules() for _ in string_passages(path)) > 1500


def test_a_finding_has_the_line_number_of_the_document(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(
        "# Title\n\nFine.\n\n```sh\ntold\n```\n\n- one `told` two\n- first\n  is told\n\n| a | told |\n|---|---|\n"
    )

    lines = [line.split(": ")[0].rpartition(":")[2] for line in findings(markdown_passages(document))]

    assert lines == ["11", "13"]


def test_strings_of_a_module_are_checked_and_neither_sql_nor_docstrings(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""What the user is told is not here."""\n\n'
        'QUERY = "SELECT told FROM words WHERE it is not"\n'
        'KEY = "told"\n'
        'MESSAGE = f"the user is told of {KEY} by name"  # first\n'
        "# second\n"
    )

    assert [passage.text for passage in string_passages(module)] == ["the user is told of Code by name"]
    assert [passage.line for passage in string_passages(module)] == [5]
    assert [(passage.line, passage.text) for passage in comment_passages(module)] == [(5, "first\nsecond")]
    assert [passage.text for passage in docstring_passages(module)] == ["What the user is told is not here."]


def test_a_folder_instead_of_a_file_is_refused_with_its_name(capsys):
    with pytest.raises(SystemExit):
        main(["--comments", "tests/prose"])

    assert "'tests/prose' is not a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("inversion", "No failure is on record; assumed is a restart of 1 to 15 s."),
        ("inversion", "The outage is known, and assumed are 50 s until it is noticed."),
        ("riddle", "The sync parts are not known, and so not the cost of a checkpoint."),
        ("riddle", "Values that are none are ignored."),
    ],
)
def test_a_clause_that_makes_a_reader_go_back_is_found_in_the_middle_of_a_sentence(rule, text):
    assert _rules_broken(text) == {f"barrierscope.{rule}"}
