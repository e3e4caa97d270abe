"""Tests of which scripts the index page loads."""

from __future__ import annotations

from dashboard.scripts import chosen

_SUITES = "/ui/_dash-component-suites"
_OTHERS = [f'<script src="{_SUITES}/dash/deps/react@18.v4.min.js"></script>', '<script src="/ui/assets/a.js"></script>']
_TAGS = [
    f'<script src="{_SUITES}/dash/deps/polyfill@7.v4.min.js"></script>',
    _OTHERS[0],
    f'<script src="{_SUITES}/dash_ag_grid/dash_ag_grid.v35.min.js"></script>',
    _OTHERS[1],
    f'<script src="{_SUITES}/dash/dash_table/bundle.v7.js"></script>',
]
_REGENERATOR = '<script src="/ui/assets/vendor/regenerator-runtime.js?v=0.13.11"></script>'


def test_a_page_without_a_grid_loads_neither_the_grid_nor_what_no_page_uses():
    kept, grid = chosen(_TAGS, has_grid=False)

    assert kept == [_REGENERATOR, *_OTHERS]
    assert grid == f"{_SUITES}/dash_ag_grid/dash_ag_grid.v35.min.js"


def test_a_page_with_a_grid_loads_it_at_once_before_the_scripts_that_use_it():
    kept, _ = chosen(_TAGS, has_grid=True)

    assert kept == [_REGENERATOR, _OTHERS[0], _TAGS[2], _OTHERS[1]]
