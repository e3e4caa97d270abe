"""The relay answers the one command that Firefox does not know, and Firefox gets every other command."""

from __future__ import annotations

import json

from tests.support.firefox_relay import reply_of


def test_only_the_command_that_firefox_does_not_know_is_answered_by_the_relay():
    media = {"id": 7, "method": "emulation.setMediaFeaturesOverride", "params": {"features": {}}}
    other = {"id": 8, "method": "browsingContext.setViewport", "params": {}}

    reply = reply_of(json.dumps(media))

    assert reply is not None
    assert json.loads(reply) == {"type": "success", "id": 7, "result": {}}
    assert reply_of(json.dumps(other)) is None
