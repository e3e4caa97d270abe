"""Builds the pages that need no login: the login form, and the intermediate page after a link from another site.

The pages load nothing and run no script. They repeat only one value of the request: the page to show after login.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import unquote

from starlette.responses import HTMLResponse, Response

AFTER_LOGIN = "/ui/"
_PATH_MAX_CHARACTERS = 2000
# A page of this service: ``/`` or a path under ``/ui/``. Two slashes or a backslash would name another host.
_OWN_PAGE = re.compile(r"/(?:ui/[!-\[\]-~]*)?", re.ASCII)
# A parameter whose name says that its value is secret. Nobody writes ``author`` for that.
_SECRET = re.compile(
    r"token\s*[=:]|[?&;/](?:[^=&;/?]*(?:secret|passw|pwd|bearer|jwt|credential|auth(?!ors?\s*=))[^=&;/?]*|[^=&;/?]*key)\s*=",
    re.IGNORECASE,
)
_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_MARK = """<svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7"
fill="#0072B2"/><path d="M6 10h12M6 16h9M6 22h12" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/>
<path d="M22 6v20" stroke="#E69F00" stroke-width="3.4" stroke-linecap="round"/></svg>"""
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">
<title>Barrierscope: {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{more}<style>{style}</style></head>
<body><main><h1>{mark}Barrierscope</h1>"""
_FORM = """<p role="status"{tone}>{message}</p><form method="post" action="/login">
<input type="hidden" name="next" value="{after}">
<label for="token">API token</label><input id="token" name="token" type="password" autocomplete="current-password"
required autofocus><button>Log in</button></form></main></body></html>
"""
_STEP = """<p><a href="{page}">Continue</a></p></main></body></html>
"""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)


def form(
    message: str, *, after: str = AFTER_LOGIN, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return the login form. ``message`` is a fixed text; ``after`` is the page to show after login."""
    tone = ' class="bad"' if status >= 400 else ""
    return _page(
        _head("log in") + _FORM.format(message=message, tone=tone, after=html.escape(own_page(after))), status, headers
    )


def step(page: str) -> Response:
    """Return a page that requests ``page`` again, now from this site.

    A browser does not send a SameSite=Strict cookie when the user follows a link from another site, such as an alert
    in a chat. Without this intermediate page, users who are logged in would see the login form.
    """
    page = html.escape(own_page(page))
    refresh = f'<meta http-equiv="refresh" content="0; url={page}">'
    return _page(_head("one moment", refresh) + _STEP.format(page=page), 200)


def own_page(path: str) -> str:
    """Return ``path`` if it is a page of this service and names no secret, or else the first page.

    People sometimes paste a token into an address (``?token=...``). The token must not come back in a redirect or a
    page.
    """
    if len(path) > _PATH_MAX_CHARACTERS or not _OWN_PAGE.fullmatch(path):
        return AFTER_LOGIN
    return AFTER_LOGIN if _SECRET.search(_decoded(path)) else path


def without(path: str, token: str) -> str:
    """Return ``path``, or the first page if ``path`` contains the token, under whatever name and however encoded."""
    return AFTER_LOGIN if token in _decoded(path) or token in _decoded(path.replace("+", " ")) else path


def _decoded(text: str) -> str:
    """Return ``text`` without percent encoding, however often it was encoded."""
    while (plain := unquote(text)) != text:
        text = plain
    return text


def _head(title: str, more: str = "") -> str:
    return _HEAD.format(title=title, more=more, style=_STYLE, mark=_MARK)


def _page(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    own = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
    return HTMLResponse(text, status, headers=own | (headers or {}))
