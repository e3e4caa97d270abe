"""Starts Firefox and stands between it and Playwright, as the executable that Playwright starts.

Playwright steers the Firefox of a distribution with WebDriver BiDi. It always sends one command that Firefox ESR does
not know yet, and gives up at the error. The relay answers this command itself and passes on everything else. The
command sets the preferred colour scheme; without it, the pages are in the light theme.

    python -m tests.support.firefox_relay FIREFOX [ARGUMENTS OF FIREFOX]
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

_SAYS_ADDRESS = "WebDriver BiDi listening on "
_UNKNOWN_TO_FIREFOX = frozenset({"emulation.setMediaFeaturesOverride"})


def reply_of(message: str | bytes) -> str | None:
    """Return the reply to a command that Firefox does not know, or None if Firefox is to get the command."""
    command = json.loads(message)
    if command.get("method") not in _UNKNOWN_TO_FIREFOX:
        return None
    return json.dumps({"type": "success", "id": command["id"], "result": {}})


async def run(executable: str, arguments: list[str]) -> int:
    """Run Firefox, and return its exit code."""
    firefox = await asyncio.create_subprocess_exec(executable, *arguments, stderr=asyncio.subprocess.PIPE)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, firefox.terminate)
    assert firefox.stderr is not None
    address = ""
    while not address and (line := (await firefox.stderr.readline()).decode(errors="replace")):
        address = line.partition(_SAYS_ADDRESS)[2].strip()
        if not address:
            sys.stderr.write(line)
    if not address:
        return await firefox.wait()

    async def relay(playwright: ServerConnection) -> None:
        async with connect(f"{address}/session", max_size=None, proxy=None) as upstream:
            await asyncio.gather(_commands(playwright, upstream), _answers(upstream, playwright))

    async with serve(relay, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"{_SAYS_ADDRESS}ws://127.0.0.1:{port}", file=sys.stderr, flush=True)
        while line := (await firefox.stderr.readline()).decode(errors="replace"):
            sys.stderr.write(line)
        return await firefox.wait()


async def _commands(playwright: ServerConnection, upstream: ClientConnection) -> None:
    try:
        async for message in playwright:
            reply = reply_of(message)
            await (upstream.send(message) if reply is None else playwright.send(reply))
    except ConnectionClosed:
        pass
    await upstream.close()


async def _answers(upstream: ClientConnection, playwright: ServerConnection) -> None:
    try:
        async for message in upstream:
            await playwright.send(message)
    except ConnectionClosed:
        pass
    await playwright.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1], sys.argv[2:])))
