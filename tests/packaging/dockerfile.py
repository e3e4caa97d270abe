"""Reading a Dockerfile and a .dockerignore: as much of their grammar as ours use, and an error for the rest."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_KNOWN = frozenset(
    "FROM ARG ENV WORKDIR COPY RUN USER LABEL EXPOSE VOLUME HEALTHCHECK ENTRYPOINT CMD".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of it, continuations joined."""

    name: str
    text: str


def read_dockerfile(text: str) -> list[Instruction]:
    """The instructions in their order; comments are left out."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in kept.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            assert name in _KNOWN, f"the Dockerfile uses {name}, which nothing here understands"
            found.append(Instruction(name, re.sub(r"\s+", " ", rest).strip()))
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$NAME`` and ``${NAME}`` replaced."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables[match[1]], text)


def read_ignore(text: str) -> Callable[[str], bool]:
    """Whether a path is sent to the builder. The last line that matches it, or a folder above it, decides."""
    rules = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]

    def is_kept(path: str) -> bool:
        parts = path.split("/")
        above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        kept = True
        for rule in rules:
            pattern = rule.removeprefix("!")
            if any(fnmatch.fnmatch(p, pattern) or fnmatch.fnmatch(f"x/{p}", pattern) for p in above):
                kept = rule.startswith("!")
        return kept

    return is_kept
