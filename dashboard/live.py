"""What the callbacks of all pages share: the viewer's look, skipping what did not change, errors as messages."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from dash import no_update
from dash.exceptions import PreventUpdate
from pydantic import BaseModel

from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import text
from dashboard.components import cards
from dashboard.palette import Theme, theme


@dataclass(frozen=True, slots=True)
class Look:
    """How this viewer sees: theme and time zone."""

    theme: Theme
    where: tzinfo


def look(data: object) -> Look:
    """The look the browser sent; nothing is drawn before it has."""
    if not isinstance(data, dict):
        raise PreventUpdate
    zone = data.get("zone")
    name = data.get("theme")
    return Look(theme(name if isinstance(name, str) else None), text.zone(zone if isinstance(zone, str) else None))


# Instants of the answer itself: they differ each time and change nothing that is drawn.
_VOLATILE = {"as_of"}


def digest(*values: object) -> str:
    """A short fingerprint of what a part of a page shows; equal means there is nothing to redraw."""
    seen = hashlib.blake2b(digest_size=12)
    for value in values:
        shown = value.model_dump_json(exclude=_VOLATILE) if isinstance(value, BaseModel) else repr(value)
        seen.update(f"{len(shown)}:{shown}".encode())
    return seen.hexdigest()


Callback = Callable[..., Awaitable[Any]]


def guarded(output_count: int) -> Callable[[Callback], Callback]:
    """A callback whose first of ``output_count`` outputs is the page's message: errors of the API go there.

    What was shown before stays. A success clears the message.
    """

    def wrap(callback: Callback) -> Callback:
        @functools.wraps(callback)
        async def inner(*args: Any) -> Any:
            try:
                return await callback(*args)
            except (ApiRefusedError, ApiUnavailableError) as problem:
                return (cards.message(problem), *((no_update,) * (output_count - 1)))

        return inner

    return wrap
