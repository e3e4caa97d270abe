"""Reads our Dockerfile and .dockerignore. An instruction that this reader does not support is an error."""

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
    """One instruction of a Dockerfile. Its continuation lines are joined."""

    name: str
    text: str


def read_dockerfile(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile in order, without comments."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in kept.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            assert name in _KNOWN, f"the Dockerfile uses {name}, which this reader does not support"
            found.append(Instruction(name, re.sub(r"\s+", " ", rest).strip()))
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return ``text`` with every ``$NAME`` and ``${NAME}`` replaced by the value of that variable."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables[match[1]], text)


def read_ignore(text: str) -> Callable[[str], bool]:
    """Return a function that decides whether a path is sent to the builder.

    If several lines of .dockerignore match a path, the last one decides.
    """
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
