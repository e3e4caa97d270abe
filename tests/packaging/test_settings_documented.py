"""``docs/settings.md`` lists every setting with its default, and no other setting."""

from __future__ import annotations

import re

from backend.settings import PREFIX, Settings
from tests.packaging.wheel_environment import ROOT


def test_the_page_of_settings_agrees_with_the_program():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.+) \|$", (ROOT / "docs" / "settings.md").read_text(), re.M)
    wanted = {
        field.validation_alias or PREFIX + name.upper(): "" if field.default in (None, "") else f"`{field.default}`"
        for name, field in Settings.model_fields.items()
    }

    assert {name: default.strip() for name, default, _ in rows} == wanted


def test_every_variable_in_a_document_is_a_setting():
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    named = {
        (document.name, variable)
        for document in [ROOT / "README.md", ROOT / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
        for variable in re.findall(PREFIX + r"[A-Z0-9_]*[A-Z0-9]", document.read_text())
    }

    assert len(named) > 20
    assert {(d, v) for d, v in named if v not in known and not v.startswith(PREFIX + "SECRET")} == set()
