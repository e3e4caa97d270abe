"""Writes the tables of settings in ``docs/jobs.md`` and ``docs/lab.md`` from the code of the runtime and of the Lab.

    python -m tests.support.runtime_settings_pages

Each table is between two comments in its page, and only that part is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from backend.runtime.core.units import DURATION_WORDS, SIZE_WORDS
from backend.runtime.job.config import KEYS, RuntimeConfig, show
from backend.runtime.job.setting_words import WORDS, SettingGroup
from backend.services.simulations.catalog import catalog

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_BEGIN: Final = "<!-- made by tests/support/runtime_settings_pages.py -->"
_END: Final = "<!-- end -->"
_MADE: Final = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.S)
_ORDER: Final = [group.value for group in SettingGroup]
_WEEK: Final = "604800000 ms"


def jobs_tables() -> str:
    """Return a heading and a table for each group of settings."""
    parts = []
    defaults = show(RuntimeConfig())
    for group in SettingGroup:
        rows = [
            f"| `{key}` | `{defaults[key]}` | {_allowed(key)} | {WORDS[key].sentence} |"
            for key in KEYS
            if WORDS[key].group is group
        ]
        parts.append(
            "\n".join([f"### {group}\n", "| setting | default | values | meaning |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def _allowed(key: str) -> str:
    text = KEYS[key].allowed.replace(DURATION_WORDS, "a duration").replace(SIZE_WORDS, "a size")
    return text.replace(_WEEK, "7 days")


def lab_tables() -> str:
    """Return the tables of the settings that each protocol decides, and of those that a request can change."""
    found = catalog()
    names = [p.name for p in found.protocols]
    decided = [f"| {p.title} | `{p.name}` | {_decided(p.settings)} |" for p in found.protocols]
    rows: dict[tuple[str, str], list[str]] = {}
    for setting in sorted(found.settings, key=lambda s: _ORDER.index(s.group)):
        users = "all" if setting.protocols is None else _named(setting.protocols, names)
        rows.setdefault((setting.group, users), []).append(f"`{setting.key}`")
    changeable = [f"| {group} | {users} | {', '.join(keys)} |" for (group, users), keys in rows.items()]
    return "\n".join(
        [
            "| protocol | name in an address | settings that it decides |",
            "|---|---|---|",
            *decided,
            "",
            "| group | protocols | settings that you can change |",
            "|---|---|---|",
            *changeable,
        ]
    )


def _decided(settings: Mapping[str, str]) -> str:
    return ", ".join(f"`{key} = {value}`" for key, value in settings.items()) or "none; all have their defaults"


def _named(users: Collection[str], every: Collection[str]) -> str:
    """Return the names of the protocols that use a setting, or of those that do not, whichever are fewer."""
    others = [name for name in every if name not in users]
    is_rest = len(others) < len(users)
    return ("all but " if is_rest else "") + ", ".join(f"`{name}`" for name in (others if is_rest else users))


PAGES: Final[Mapping[str, Callable[[], str]]] = {"jobs.md": jobs_tables, "lab.md": lab_tables}


def written(text: str, tables: str) -> str:
    """Return the text of a page with these tables in place of those that it has."""
    return _MADE.sub(lambda _: f"{_BEGIN}\n\n{tables}\n\n{_END}", text)


if __name__ == "__main__":
    for name, tables in PAGES.items():
        page = DOCS / name
        page.write_text(written(page.read_text(encoding="utf-8"), tables()), encoding="utf-8")
