"""Notifies an open fleet page over a WebSocket if its rows have changed, so that the page need not poll.

The browser sends which rows it shows, as it does for a refresh (``assets/fleet.js``). From then on, the board is read
every two seconds inside this process. The browser gets a message only if something that it shows has changed, and then
requests the changes. The instant of the newest reading is sent by itself, because it changes with every poll. Without
any news, an empty message shows that the service still answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components.shell import TICK_MS
from dashboard.pages import fleet

ADDRESS = f"{routes.BASE}_news/fleet"
_VIEW_MAX_CHARS = 64 * 1024
_POLICY_VIOLATION = 1008

_log = logging.getLogger(__name__)
_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class FleetNews:
    """The ASGI application that serves the WebSockets at ``ADDRESS``. ``pause`` waits until the next reading."""

    def __init__(self, client: ApiClient, pause: Callable[[], Awaitable[None]] | None = None) -> None:
        self._client = client
        self._pause = pause or _tick

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        async with asyncio.TaskGroup() as group:
            telling: asyncio.Task[None] | None = None
            while (message := await receive())["type"] == "websocket.receive":
                # The new view replaces the previous one.
                if telling is not None:
                    telling.cancel()
                view = _view_of(message.get("text"))
                if view is None:
                    await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                    return
                telling = group.create_task(self._tell(view, send))
            if telling is not None:
                telling.cancel()

    async def _tell(self, view: Mapping[str, Any], send: _Send) -> None:
        """Send a message whenever the board differs from ``view``, until the browser is gone."""
        try:
            await self._compare(dict(view), send)
        except OSError:
            return  # The connection is closed.
        except Exception:  # noqa: BLE001  the top of a task: the page then asks by itself
            _log.exception("the news of the fleet page failed")

    async def _compare(self, view: dict[str, Any], send: _Send) -> None:
        newest = None
        while True:
            query = fleet.query_of(view)
            try:
                board = await self._client.board(query)
            except (ApiRefusedError, ApiUnavailableError):
                # The page requests the changes, gets the same error, and shows it.
                await _say(send, is_changed=True)
            else:
                totals = fleet.totals_of(board, view)
                seen_totals = str(view.get("digest") or "").partition(".")[0]
                if fleet.has_changed(board, query.known, view.get("total")) or totals != seen_totals:
                    await _say(send, is_changed=True)
                elif board.newest_observed_at is not None and board.newest_observed_at != newest:
                    await _say(send, newest_observed_at=board.newest_observed_at.isoformat())
                else:
                    # The page counts the seconds since it last heard from the service (``assets/silence.js``).
                    await _say(send)
                newest = board.newest_observed_at
                ids = board.ids if query.known else []
                view |= {"ids": ids, "since": board.version, "total": board.total, "digest": totals}
            await self._pause()


async def _tick() -> None:
    await asyncio.sleep(TICK_MS / 1000)


async def _say(send: _Send, **news: object) -> None:
    await send({"type": "websocket.send", "text": json.dumps(news)})


def _view_of(text: object) -> dict[str, Any] | None:
    if not isinstance(text, str) or len(text) > _VIEW_MAX_CHARS:
        return None
    try:
        view = json.loads(text)
    except ValueError:
        return None
    return view if isinstance(view, dict) else None
