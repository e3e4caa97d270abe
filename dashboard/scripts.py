"""Chooses the scripts of the index page: those that every page needs, and AG Grid only where a page shows a grid.

Dash would load a script for old browsers, its own tables, and AG Grid on every page. Compiling and running them takes a
tenth of the time in which a page is drawn.
"""

from __future__ import annotations

import re
from typing import Any

from dash import Dash

from dashboard import routes

_LEFT_OUT = ("/dash/deps/polyfill@", "/dash/dash_table/")
_GRID = re.compile(r'src="([^"]*/dash_ag_grid/dash_ag_grid\.[^"]*)"')
# Some of Dash's scripts need this part of the script for old browsers.
_REGENERATOR = f'<script src="{routes.BASE}assets/vendor/regenerator-runtime.js?v=0.13.11"></script>'
# The pages that show a grid at once. Others have one in the table of a chart.
_WITH_GRID = (routes.PageKind.FLEET,)


class LeanDash(Dash):
    """A Dash application with few scripts. The query ``page`` of the index page's address is the kind of the page."""

    def interpolate_index(self, *, scripts: str = "", metas: str = "", **parts: Any) -> str:  # type: ignore[override]
        """Return the index page with the scripts of its kind of page."""
        page = self.backend.request_adapter().args.get("page")
        kept, grid = chosen(scripts.splitlines(), has_grid=page in _WITH_GRID)
        metas = f'{metas}\n<meta name="grid-script" content="{grid}">'
        return str(super().interpolate_index(scripts="\n".join(kept), metas=metas, **parts))


def chosen(tags: list[str], *, has_grid: bool) -> tuple[list[str], str]:
    """Return the tags of the scripts that a page loads, and the address of AG Grid's script."""
    kept, grid = [_REGENERATOR], ""
    for tag in tags:
        match = _GRID.search(tag)
        if match is not None:
            grid = match[1]
        if not any(part in tag for part in _LEFT_OUT) and (has_grid or match is None):
            kept.append(tag)
    return kept, grid
