"""Defines the entry point ``barrierscope.roles: dashboard``, which the role ``api`` loads to serve the pages."""

from __future__ import annotations

import httpx

from dashboard import news
from dashboard.app import content_security_policy, create_dash
from dashboard.asgi import DashboardApp
from dashboard.client import ApiClient


def create_app(
    *, transport: httpx.AsyncBaseTransport | None, api_base_url: str, token: str | None = None
) -> DashboardApp:
    """Create the ASGI application that serves the pages under ``/ui/``.

    ``transport`` is ``httpx.ASGITransport`` if the API runs in the same process, or None to connect to
    ``api_base_url`` (``http://127.0.0.1:8050``, without ``/api/v1``). ``token`` is the API's bearer token. With a
    token, viewers must log in and the pages have a log-out button.
    """
    client = ApiClient(transport=transport, base_url=api_base_url, token=token)
    dash = create_dash(client, has_login=token is not None)
    return DashboardApp(
        dash.server,
        content_security_policy=content_security_policy(dash),
        close=client.close,
        sockets={news.ADDRESS: news.FleetNews(client)},
    )
