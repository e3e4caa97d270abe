"""Tests that the colours have enough contrast."""

from __future__ import annotations

import pytest

from backend.domain.verdict import Phase
from dashboard.palette import DARK, LIGHT, PHASE_COLORS

_THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@_THEMES
def test_text_is_legible_and_the_critical_path_stands_out(theme):
    assert _contrast(theme.text, theme.surface) >= 7
    assert _contrast(theme.muted, theme.surface) >= 4.5
    assert _contrast(theme.path, theme.surface) >= 7


def test_phases_differ_in_colour_and_brightness():
    greys = sorted(_luminance(c) for c in PHASE_COLORS.values())

    assert len(set(PHASE_COLORS.values())) == len(PHASE_COLORS) == len(Phase)
    assert greys[-1] - greys[0] > 0.3
