"""Registers the pages' functions as Dash callbacks.

A page function is a function or coroutine at module level. Its keyword arguments are the callback's inputs and
states, by name. It returns the outputs that change, by name, and raises ``PreventUpdate`` if nothing changes. So a
test can call it without Dash.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update

from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard.components import cards
from dashboard.components.markup import lean

Changes = dict[str, Any]
"""New values of outputs, by name. An output that is missing here keeps its value."""
Outputs = Mapping[str, Any]
"""Dash outputs by name. A value may itself be a mapping, such as the outputs of a chart."""
# A callback triggered by one of these properties is a refresh. Any other trigger is an action of the viewer.
_OF_REFRESHES = {"n_intervals", "data"}
# The names, among inputs and outputs, of the ticks and of the switch of a retry interval.
_RETRY_TICK, _RETRY_OFF = "retry_tick", "retry_off"
PageFunction = Callable[..., Changes | Awaitable[Changes]]


def connect(
    app: Dash,
    function: PageFunction,
    *,
    output: Outputs,
    inputs: Mapping[str, Input],
    state: Mapping[str, State] | None = None,
    message: str = "message",
    has_trigger: bool = False,
    retry: str | None = None,
    **options: Any,
) -> None:
    """Register ``function`` as a Dash callback.

    Errors of the API are shown in the output named ``message``, if there is one; the other outputs then keep their
    values. An output named ``digest`` is cleared, so that the next response is shown in full and removes the message.
    If ``has_trigger``, the function also gets ``trigger``, the id of the component that triggered the
    callback. ``retry`` is the id of an interval of the page (``cards.retry``), for a function that no tick calls: while
    the API does not answer, the interval ticks, and each tick calls the function again. Such a function may have no
    output for messages, if another one shows them. ``options`` are those of ``Dash.callback``.
    """
    if retry is not None:
        output = {**output, _RETRY_OFF: Output(retry, "disabled")}
        inputs = {**inputs, _RETRY_TICK: Input(retry, "n_intervals")}
    # A function that answers the first call of a page is called again by a tick, or by a store that a tick changes.
    is_ticked = any(i.component_property == "n_intervals" for i in inputs.values())
    is_asked_again = is_ticked or options.get("prevent_initial_call") is not True
    has_button = any(i.component_property == "n_clicks" for i in inputs.values())
    is_refresh = any(i.component_property in _OF_REFRESHES for i in inputs.values())

    @functools.wraps(function)
    async def call(**values: Any) -> Changes:
        if has_trigger:
            values["trigger"] = ctx.triggered_id
        values.pop(_RETRY_TICK, None)
        try:
            answer = function(**values)
            changes = await answer if inspect.isawaitable(answer) else answer
        except (ApiRefusedError, ApiUnavailableError) as problem:
            if message not in output and retry is None:
                raise
            # If the subject of an action no longer exists, the message must not replace the whole page.
            is_of_action = isinstance(problem, ApiNotFoundError) and not is_refresh
            said = cards.message(problem, is_asked_again=is_asked_again, has_button=has_button)
            shown = cards.answer(False, str(problem)) if is_of_action else said
            cleared = {message: shown, "digest": None, _RETRY_OFF: isinstance(problem, ApiRefusedError)}
            changes = {name: value for name, value in cleared.items() if name in output}
        else:
            changes = changes | ({_RETRY_OFF: True} if retry is not None else {})
        return filled(changes, output)

    app.callback(output=dict(output), inputs=dict(inputs), state=dict(state or {}), **options)(call)


def filled(changes: Changes, outputs: Outputs) -> Changes:
    """Return a value for each output: the one in ``changes``, or Dash's ``no_update``.

    Raises:
        KeyError: ``changes`` names something that is not an output.
    """
    if unknown := changes.keys() - outputs.keys():
        raise KeyError(f"not an output: {', '.join(sorted(unknown))}")
    return {name: _value(changes.get(name, no_update), output) for name, output in outputs.items()}


def _value(value: Any, output: Any) -> Any:
    if isinstance(output, Mapping):
        return filled({} if value is no_update else value, output)
    if value is no_update or getattr(output, "component_property", None) != "children":
        return value
    id_ = output.component_id
    if isinstance(id_, dict) and ALL in id_.values():
        # The output stands for many components, and the value has the children of each.
        return [lean(one) for one in value]
    return lean(value)


def pressed_id(clicks: list[int | None], trigger: object) -> dict[str, Any] | None:
    """Return the id of the button that was pressed, or None if Dash only rendered the buttons again.

    ``clicks`` are the click counts of all buttons with ids of one pattern.
    """
    return trigger if any(clicks) and isinstance(trigger, dict) else None
