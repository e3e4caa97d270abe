"""Reads the prose of Markdown documents and Python modules, with the line number of each passage."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_CODE = "Code"
"""Replaces inline code, addresses and placeholders before the check. No rule reports this word."""
_NOT_PROSE = re.compile(
    r"^\s*(?:(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|LOCK|SET|COPY)\b|<)|.*sans-serif"
)
"""Matches text that is no prose: SQL, HTML and lists of fonts."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph, heading, table cell, string, docstring or comment."""

    path: Path
    line: int
    text: str


def markdown_passages(path: Path) -> Iterator[Passage]:
    """Yield every paragraph, heading, list item and table cell of a document. Blocks of code are left out."""
    line = 1
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")):
        if token.map:
            line = token.map[0] + 1
        text = "".join(map(_plain, token.children or ())) if token.type == "inline" else ""
        if text.strip():
            yield Passage(path, line, text)


def _plain(token: Token) -> str:
    match token.type:
        case "text" | "image":
            return token.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline":
            return _CODE
    return ""


def string_passages(path: Path) -> Iterator[Passage]:
    """Yield the strings of a Python module that are sentences, that is, strings with at least three words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node) for node in _docstrings(tree)}
    parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        if id(node) in documentation or id(node) in parts:
            continue
        text = _string(node)
        if text is not None and _is_prose(text):
            yield Passage(path, node.lineno, text)  # type: ignore[attr-defined]


def docstring_passages(path: Path) -> Iterator[Passage]:
    """Yield each paragraph of the docstrings in a Python module."""
    for node in _docstrings(ast.parse(path.read_text(encoding="utf-8"))):
        line = node.lineno
        for paragraph in re.split(r"(\n\s*\n)", str(node.value)):
            if paragraph.strip():
                yield Passage(path, line, re.sub(r"``[^`]+``", _CODE, re.sub(r"[ \t]+", " ", paragraph.strip())))
            line += paragraph.count("\n")


def comment_passages(path: Path) -> Iterator[Passage]:
    """Yield the comments of a Python module. Comments on consecutive lines form one passage."""
    begin, end, text = 0, -1, ""
    with path.open("rb") as source:
        comments = [token for token in tokenize.tokenize(source.readline) if token.type == tokenize.COMMENT]
    for token in comments:
        line, words = token.start[0], re.sub(r"``?[^`]+``?", _CODE, token.string.lstrip("#: "))
        if line == end + 1:
            text += f"\n{words}"
        else:
            if text:
                yield Passage(path, begin, text)
            begin, text = line, words
        end = line
    if text:
        yield Passage(path, begin, text)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield every string that is a statement of its own. It documents a module, class, function or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _string(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else _CODE for v in node.values)
    return None


def _is_prose(text: str) -> bool:
    return len(re.findall(r"[A-Za-z][a-z]+ ", text)) >= 2 and not _NOT_PROSE.match(text)
