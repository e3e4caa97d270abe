"""Every rule and section that code, tests and documents cite exists in the specification in ``docs/dev/spec``."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_SPEC = ROOT / "docs" / "dev" / "spec"
_DECISIONS = ROOT / "docs" / "dev" / "decisions"
_DEFINED = re.compile(r"^- ((?:R-)?[A-Z]+-\d+) ", re.M)
_CITED = re.compile(r"(?<![\w-])(?:R-)?[A-Z]+-\d+\b")
_DOCUMENT = re.compile(r"(?<![\w*])(?:[\w.-]+/)*[\w-]+\.md\b")
# A citation after a document's name: a quoted heading, a view, an appendix, or the numbers of sections or list items.
_SECTION = re.compile(r'(runtime|flink-baseline|spark-telemetry|views)\.md,? ("[^"]+"|V\d+|Appendix [A-Z]|\d[\d., ]*)')


@cache
def _texts() -> dict[str, str]:
    """Return the text of every tracked Python and Markdown file by its path, with white space collapsed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return {name: " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in names}


@cache
def _spec(name: str) -> str:
    return (_SPEC / f"{name}.md").read_text(encoding="utf-8")


def _defined() -> list[str]:
    return _DEFINED.findall(_spec("runtime"))


def test_every_rule_is_defined_once():
    rules = _defined()

    assert len(rules) > 390
    assert sorted({rule for rule in rules if rules.count(rule) > 1}) == []


def test_every_cited_rule_is_defined():
    rules = set(_defined())
    families = {rule.rpartition("-")[0] for rule in rules}
    cited = {(rule, path) for path, text in _texts().items() for rule in _CITED.findall(text)}
    # Names such as UTF-8 and FLIP-76 are not citations, because no rule has their prefix.
    of_families = {(rule, path) for rule, path in cited if rule.rpartition("-")[0] in families}

    assert len({rule for rule, _ in of_families}) > 300
    assert sorted((rule, path) for rule, path in of_families if rule not in rules) == []


def test_every_document_that_code_cites_is_in_the_repository():
    here = {Path(name).name for name in _texts()}
    cited = {
        (document, path)
        for path, text in _texts().items()
        if path.endswith(".py") and not path.startswith("tests/packaging/")
        for document in _DOCUMENT.findall(text)
    }

    assert len({document for document, _ in cited}) >= 8
    assert sorted((document, path) for document, path in cited if Path(document).name not in here) == []


def test_every_cited_section_exists():
    cited = {(*found, path) for path, text in _texts().items() for found in _SECTION.findall(text)}

    assert len(cited) > 20
    assert sorted(found for found in cited if not _has(found[0], found[1].rstrip(" .,"))) == []


def _has(document: str, section: str) -> bool:
    text = _spec(document)
    if section.startswith('"'):
        return section.strip('"') in " ".join(text.split())
    if document == "flink-baseline":
        return all(re.search(rf"^{item}\. ", text, re.M) for item in section.split(", "))
    return all(re.search(rf"^##+ {re.escape(number)}\b", text, re.M) for number in section.split(", "))


def test_every_cited_decision_is_recorded():
    recorded = {path.name[:4] for path in _DECISIONS.glob("[0-9]*.md")}
    cited = {(n, path) for path, text in _texts().items() for n in re.findall(r"\bdecision (\d{4})\b", text)}

    assert cited
    assert sorted((number, path) for number, path in cited if number not in recorded) == []
