"""``docs/jobs.md`` and ``docs/lab.md`` list every setting of the runtime, with the words of the code."""

from __future__ import annotations

import re

import pytest

from backend.runtime.job.config import KEYS
from backend.runtime.job.setting_words import WORDS, SettingGroup
from tests.support.runtime_settings_pages import DOCS, PAGES, written


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_tables_that_the_code_gives_and_so_every_setting(name):
    text = (DOCS / name).read_text(encoding="utf-8")

    assert text == written(text, PAGES[name]()), "python -m tests.support.runtime_settings_pages"
    assert [key for key in KEYS if f"`{key}`" not in text and f"`{key} =" not in text] == []


def test_each_group_has_a_heading_and_each_setting_a_sentence_and_a_title_of_its_own():
    headings = re.findall(r"^### (.+)$", (DOCS / "jobs.md").read_text(encoding="utf-8"), re.M)

    assert headings == list(SettingGroup)
    assert len({words.title for words in WORDS.values()}) == len(WORDS)
    assert [key for key, words in WORDS.items() if not re.fullmatch(r"[A-Z].*\.", words.sentence)] == []
