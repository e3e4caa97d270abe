"""Writes a page of HTML with charts that needs no other file and no network: it contains the charts' script.

The reports of backtests and of experiments are such pages. Each has its own style and its own text.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def chart_page(title: str, body: str, figures: Sequence[Mapping[str, Any]], *, style: str, script: str) -> str:
    """Return the page. ``body`` is HTML with an element for each figure.

    A figure has ``data`` and ``layout`` as plotly.js reads them, and ``id``, the id of its element. ``script`` is the
    source of plotly.js.
    """
    # No text of the data, and no part of the script, may end the element that it is in.
    data = json.dumps(figures).replace("<", "\\u003c")
    inlined = script.replace("</script", "<\\/script")
    drawing = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{html.escape(title)}</title><style>{style}</style></head><body>
{body}
<script type="application/json" id="figures">{data}</script>
<script>{inlined}</script><script>{drawing}</script>
</body></html>
"""
