"""The service in a real Chromium, as if it were not on loopback: login, logout, pages of other sites, DNS rebinding.

All servers listen on 127.0.0.1, and the browser resolves other host names to it. There is no store. The pages
report this, and access control works without one.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager, nullcontext

import pytest
import uvicorn
from playwright.sync_api import Page, expect
from starlette.responses import HTMLResponse

from backend.api import server
from backend.domain.address_rules import EVERYWHERE
from backend.store.schema.partitions import Retention
from collectors.probe import probe
from collectors.settings import change_settings
from dashboard.role import create_app
from tests.support.browsing import chromium, launched, opened
from tests.support.running_up import free_port
from tests.support.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine"),
]

TOKEN = "a-token-for-the-browser"
_NAME = "barrierscope.test"


@pytest.fixture(scope="module")
def resolving():
    with launched(chromium(), f"--host-resolver-rules=MAP {_NAME} 127.0.0.1, MAP rebound.test 127.0.0.1") as found:
        yield found


@contextmanager
def _serving(app, port):
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, name=f"serves-{port}")
    thread.start()
    try:
        until(lambda: running.started, "the server listens")
        yield port
    finally:
        running.should_exit = True
        thread.join(PATIENCE_S)


@contextmanager
def _service(token):
    port = free_port()
    app = server.build(
        "postgresql://nobody@127.0.0.1:1/nothing",
        server.Listening("127.0.0.1", port, token),
        server.Parts(create_app, probe, change_settings),
        targets=EVERYWHERE,
        retention=Retention(),
        alerting=server.AlertingOptions(),
    )
    with _serving(app, port):
        yield port


@pytest.fixture(scope="module")
def guarded():
    with _service(TOKEN) as port:
        yield port


@pytest.fixture(scope="module")
def first(guarded):
    """Return the address with which the browser is started. With another one for each test, it would start again."""
    return f"http://127.0.0.1:{guarded}"


@pytest.fixture(scope="module")
def stranger():
    """Serve a page of another site. The browser does not send it our cookies, because its host name differs."""
    page = HTMLResponse(
        "<!doctype html><title>another site</title><a id='link'>to a job</a><form method='post'></form>"
    )
    with _serving(page, free_port()) as port:
        yield f"http://localhost:{port}/"


def _log_in(page: Page, token: str = TOKEN) -> None:
    page.fill("#token", token)
    page.click("button")


def test_a_viewer_logs_in_sees_the_requested_page_and_logs_out(resolving, guarded, first):
    own = f"http://{_NAME}:{guarded}"
    with opened(resolving, first) as (page, _):
        page.goto(f"{own}/ui/targets?from=mail")
        expect(page).to_have_url(re.compile(r"/login\?next="))

        _log_in(page, "a-token-that-is-wrong")
        expect(page.locator("[role=status]")).to_have_text("The token is wrong.")
        _log_in(page)

        expect(page).to_have_url(f"{own}/ui/targets?from=mail")
        expect(page.locator("header.top")).to_contain_text("Log out")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], TOKEN in cookie["value"]) == (True, "Strict", False)
        assert page.evaluate("document.cookie") == ""
        assert TOKEN not in page.content()
        assert page.evaluate("fetch('/api/v1/status').then(a => a.status)") == 200

        page.click("text=Log out")

        expect(page.locator("#token")).to_be_visible()
        assert page.context.cookies() == []
        page.goto(f"{own}/ui/")
        expect(page.locator("#token")).to_be_visible()


def test_an_open_page_goes_to_the_login_when_its_session_has_ended(resolving, guarded, first):
    own = f"http://{_NAME}:{guarded}"
    with opened(resolving, first) as (page, _):
        page.goto(f"{own}/ui/targets")
        _log_in(page)
        expect(page.locator("header.top")).to_be_visible()

        page.context.clear_cookies()

        expect(page.locator("#token")).to_be_visible()
        _log_in(page)
        expect(page).to_have_url(f"{own}/ui/targets")


def test_a_link_on_another_site_opens_the_page_for_a_logged_in_viewer(resolving, first, stranger):
    with opened(resolving, first) as (page, _):
        page.goto("/ui/")
        _log_in(page)
        expect(page.locator("header.top")).to_be_visible()

        page.goto(stranger)
        page.evaluate("to => document.getElementById('link').href = to", f"{first}/ui/targets?from=chat")
        page.click("#link")

        expect(page.locator("header.top")).to_be_visible()
        expect(page).to_have_url(f"{first}/ui/targets?from=chat")


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_page_of_another_site_can_neither_read_nor_change_anything(resolving, guarded, first, stranger, is_guarded):
    with nullcontext(guarded) if is_guarded else _service(None) as port:
        own = f"http://127.0.0.1:{port}"
        with opened(resolving, first) as (page, _):
            page.goto(f"{own}/ui/")
            if is_guarded:
                _log_in(page)
            expect(page.locator("header.top")).to_be_visible()
            page.goto(stranger)

            read = "to => fetch(to, {credentials: 'include'}).then(a => 'read', e => 'refused')"
            assert page.evaluate(read, f"{own}/api/v1/status") == "refused"
            for path in ("/api/v1/targets", "/logout", "/login"):
                with page.expect_navigation() as answer:
                    send = "to => {const f = document.forms[0]; f.action = to; f.submit()}"
                    page.evaluate(send, own + path)
                assert answer.value.status == 403, path
                page.goto(stranger)
            page.goto(f"{own}/ui/targets")
            expect(page.locator("header.top")).to_be_visible()


def test_a_name_that_was_rebound_to_this_machine_is_refused(resolving, first):
    with _service(None) as port, opened(resolving, first) as (page, _):
        for path in ("/", "/ui/", "/api/v1/status"):
            answer = page.goto(f"http://rebound.test:{port}{path}")
            assert answer is not None
            assert answer.status == 403
