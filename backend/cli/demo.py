"""``barrierscope demo --story backpressure``: plays a story for a talk, act by act.

This module shows the acts and waits between them. Module ``story`` has the acts, module ``stage`` the processes.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType
from typing import Annotated

import typer

from backend.cli.options import say, seconds
from backend.cli.stage import LiveStage
from backend.cli.story import Act, BackpressureStory, Scene
from backend.domain.errors import ApiUnavailableError, HostError
from backend.settings import load_settings

_LOOK_INTERVAL_S = 0.5
# An act that takes longer than this will probably not end. Most acts take less than half a minute.
_ACT_MAX_S = 300.0


class StoryName(StrEnum):
    """The stories."""

    BACKPRESSURE = "backpressure"


def demo(
    story: Annotated[StoryName, typer.Option(help="The story to play.")] = StoryName.BACKPRESSURE,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Play in this running service instead of starting one, on the same machine."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the pages and the API, if a service is started [8050]."),
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Begin the next act without Enter.")] = False,
    pause: Annotated[
        str, typer.Option(metavar="TIME", help="With --auto, the time for which the result of an act stays.")
    ] = "5s",
) -> None:
    """Play a story for a talk: a job gets into trouble, and the service finds the culprit and cures it.

    Each act prints the address of the page that shows it, and waits for Enter. Ctrl-C ends the story and removes all
    that it started.
    """
    pause_s = seconds(pause, option="--pause", most=3600)
    with _stopped_by_signals():
        say(f"barrierscope demo: the story {story.value}, on a live job of the reference runtime", "")
        with LiveStage(url, port=port or load_settings().port, tell=say) as stage:
            say(f"open {stage.url} in a browser", "")
            play(
                BackpressureStory(stage),
                stage.url,
                watch=stage.watch,
                between=lambda: _between(pause_s if auto else None, stage.watch, "for the next act"),
            )
            own, given = "to stop the service and remove its data", "to remove the target; the history of the job stays"
            say("The end.")
            _between(pause_s if auto else None, stage.watch, own if url is None else given)


def play(
    story: BackpressureStory,
    url: str,
    *,
    watch: Callable[[], None],
    between: Callable[[], None],
    wait: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """Play the acts of a story whose pages are at ``url``. ``between`` is called after each act but the last.

    Raises:
        HostError: an act did not finish in time.
    """
    acts = list(story.acts())
    for number, act in enumerate(acts, 1):
        say(f"Act {number} of {len(acts)}: {act.title}")
        if act.begin is not None:
            act.begin()
        with _waiting(act.awaited):
            scene = _found(act, watch, wait, now_s)
        say(*(f"  {line}" for line in scene.lines), f"  open {url}{scene.path}", "")
        if number < len(acts):
            between()


def _found(act: Act, watch: Callable[[], None], wait: Callable[[float], None], now_s: Callable[[], float]) -> Scene:
    until_s, problem = now_s() + _ACT_MAX_S, ""
    while now_s() < until_s:
        watch()
        try:
            if (scene := act.find()) is not None:
                return scene
            problem = ""
        except ApiUnavailableError as error:
            # The service may be restarting one of its roles, so the act tries again.
            problem = f" ({error})"
        wait(_LOOK_INTERVAL_S)
    raise HostError(
        f"the act {act.title!r} did not finish: {act.awaited} not seen in {_ACT_MAX_S:.0f} s{problem}",
        fix="start the story again when the machine has less to do",
    )


@contextmanager
def _waiting(awaited: str) -> Iterator[None]:
    """Show on standard error that an act waits, and since when. If it is not a terminal, print one line instead."""
    if not sys.stderr.isatty():
        say(f"  waiting for {awaited}")
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn(" "), SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(f"waiting for {awaited}", total=None)
        yield


def _between(pause_s: float | None, watch: Callable[[], None], what_for: str) -> None:
    """Wait for Enter, or for ``pause_s`` seconds if it is not None.

    At the end of standard input, or if it is closed, return at once.
    """
    if pause_s is None:
        # Python sets it to None if the command was started without standard input.
        if sys.stdin is None or sys.stdin.closed:
            return
        say(f"  press Enter {what_for}")
    until_s = None if pause_s is None else time.monotonic() + pause_s
    while until_s is None or time.monotonic() < until_s:
        watch()
        if until_s is not None:
            time.sleep(min(_LOOK_INTERVAL_S, max(0.0, until_s - time.monotonic())))
        elif select.select([sys.stdin], [], [], _LOOK_INTERVAL_S)[0]:
            sys.stdin.readline()
            return


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that a closed terminal leaves nothing behind either."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
