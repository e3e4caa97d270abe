"""Tests of access to the API and the pages: host names, origins, tokens, sessions, and what a refusal reveals."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from backend.access.attempts import WINDOW_S, WRONG_MAX
from backend.access.sessions import MAX_AGE_S, Sessions
from backend.api.access import Access, AccessRules

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-some-length"
ELSEWHERE = "http://barrierscope.example"
_METHODS = ["GET", "POST", "PATCH", "DELETE"]


class Time:
    """A clock that the test advances. It serves as the wall clock and as the monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def _client(
    token, *, base_url="http://127.0.0.1:8050", hosts=frozenset(), public_url=None, time=None, address="10.0.0.7"
):
    async def answer(request: Request):
        return PlainTextResponse("inside")

    time = time or Time()
    app = Starlette(routes=[Route("/{rest:path}", answer, methods=_METHODS)])
    pages = ("/ui/alerts", f"/ui/jobs/{TOKEN}")
    gate = Access(app, AccessRules(token, hosts, public_url), is_page=pages.__contains__, now_s=time, monotonic=time)
    transport = httpx.ASGITransport(app=gate, client=(address, 4711))
    return httpx.AsyncClient(transport=transport, base_url=base_url)


async def _log_in(client, token=TOKEN, **headers):
    return await client.post("/login", data={"token": token}, headers=headers)


# --- access from this machine (loopback) --------------------------------------------------------------------------


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:8050", "http://localhost:8050", "http://[::1]:8050"])
async def test_on_loopback_no_login_is_needed(base_url):
    async with _client(None, base_url=base_url) as client:
        assert (await client.get("/api/v1/jobs")).text == "inside"
        assert (await client.get("/ui/")).text == "inside"


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/ui/", "/", "/login"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "localhost.evil.example:8050", "0.0.0.0"],
)
async def test_on_loopback_a_foreign_host_name_is_refused(host, path):
    async with _client(None) as client:
        answer = await client.get(path, headers={"Host": host})

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("foreign-host")


async def test_the_listening_host_is_an_accepted_name():
    async with _client(None, hosts=frozenset({"127.0.0.5"}), base_url="http://127.0.0.5:8050") as client:
        assert (await client.get("/")).status_code == 200


_MALFORMED = [
    *[
        ("Host", h)
        for h in ("", "[::1", "::1]", "[x]", "[:::]", "a b", "a/b", "a@b", "a:b", "a:99999", "a,b", "ä", "a\\b")
    ],
    *[("Origin", o) for o in ("http://[::1", "http://[x]", "http://", "http:a", "a", "http://a/", "http://a http://b")],
    *[("Origin", o) for o in ("http://a@b", "http://a:b", "://a", "http://a\u2100", "http://127.0.0.1:8050#")],
]


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(("name", "value"), _MALFORMED)
async def test_a_malformed_host_or_origin_is_refused_as_malformed(token, name, value):
    headers = {"Authorization": f"Bearer {TOKEN}", name: value.encode()}
    async with _client(token) as client:
        for path in ("/api/v1/jobs", "/ui/", "/login"):
            answer = await client.get(path, headers=headers)

            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, name)


@pytest.mark.parametrize("name", ["Host", "Origin"])
async def test_a_repeated_host_or_origin_is_refused(name):
    headers = [(name, "127.0.0.1:8050"), (name, "127.0.0.1:8050")]
    async with _client(TOKEN) as client:
        assert (await client.get("/api/v1/jobs", headers=headers)).status_code == 400


# --- requests from pages of other sites ---------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "ftp://127.0.0.1:8050"])
async def test_a_page_of_another_site_is_refused(token, method, origin):
    headers = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
    async with _client(token) as client:
        answer = await client.request(method, "/api/v1/targets", headers=headers)

    assert answer.status_code == 403
    assert answer.json()["type"].endswith("foreign-origin")
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_our_own_page_is_accepted():
    async with _client(None) as client:
        answer = await client.post("/api/v1/targets", headers={"Origin": "http://127.0.0.1:8050"})

    assert answer.text == "inside"


_ASKED_BY_A_BROWSER = [
    # (method, site, mode, dest, whether the request is allowed)
    ("POST", "cross-site", "no-cors", "empty", False),
    ("POST", "cross-site", "navigate", "document", False),
    ("POST", "same-site", "cors", "empty", False),
    ("GET", "cross-site", "no-cors", "script", False),
    ("GET", "cross-site", "navigate", "iframe", False),
    ("GET", "cross-site", "navigate", "document", True),
    ("POST", "same-origin", "cors", "empty", True),
    ("GET", "none", "navigate", "document", True),
]


@pytest.mark.parametrize(("method", "site", "mode", "dest", "is_let_in"), _ASKED_BY_A_BROWSER)
async def test_another_site_may_link_to_a_page_and_do_nothing_else(method, site, mode, dest, is_let_in):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    async with _client(None) as client:
        answer = await client.request(method, "/ui/", headers=headers)

    assert answer.status_code == (200 if is_let_in else 403)


async def test_every_answer_has_headers_against_sniffing_and_embedding():
    async with _client(None) as client:
        headers = (await client.get("/api/v1/jobs")).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


# --- scripts on other machines ------------------------------------------------------------------------------------

_NO_TOKEN = [
    (None, "token-needed"),
    ("Bearer", "token-needed"),
    (f"Basic {TOKEN}", "token-needed"),
    (TOKEN, "token-needed"),
    ("Bearer wrong", "token-wrong"),
    ("Bearer ä", "token-wrong"),
    (f"Bearer {TOKEN}x", "token-wrong"),
    (f"Bearer {TOKEN[:-1]}", "token-wrong"),
]


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(("given", "slug"), _NO_TOKEN)
async def test_beyond_loopback_a_refusal_names_only_the_header_that_is_wrong(given, slug, method):
    headers = {} if given is None else {"Authorization": given.encode()}
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.request(method, "/api/v1/jobs", headers=headers)

    assert answer.status_code == 401
    assert answer.json()["type"].endswith(slug)
    assert answer.json()["errors"][0]["pointer"] == "Authorization"
    assert answer.headers["www-authenticate"].startswith('Bearer realm="barrierscope"')
    assert TOKEN not in answer.text + str(answer.headers)


async def test_beyond_loopback_the_token_gives_access():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.get("/api/v1/jobs", headers={"Authorization": f"bearer {TOKEN}"})

    assert answer.text == "inside"


async def test_prometheus_without_the_token_gets_no_login_page():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text == "inside"


@pytest.mark.parametrize("place", [{"params": {"token": TOKEN}}, {"params": {"access_token": TOKEN}}])
async def test_a_token_in_the_address_gives_no_access(place):
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        assert (await client.get("/api/v1/jobs", **place)).status_code == 401


# --- browsers on other machines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ("/alerts", "/ui/alerts"),
        ("/alerts?state=open", "/ui/alerts%3Fstate%3Dopen"),
        ("/nope", "/ui/"),
        ("//evil.example/alerts", "/ui/"),
        (f"/jobs/{TOKEN}", "/ui/"),
        (f"/alerts?token={TOKEN}", "/ui/"),
    ],
)
async def test_who_asks_for_a_page_without_ui_gets_to_it_after_the_login(asked, after):
    async with _client(TOKEN) as client:
        answer = await client.get(asked if asked[1] != "/" else httpx.URL("http://127.0.0.1:8050", path=asked))

    assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={after}")


async def test_a_login_sets_a_cookie_that_does_not_contain_the_token():
    async with _client(TOKEN, base_url="https://barrierscope.example") as client:
        sent_away = await client.get("/ui/jobs/j1?tab=2")
        form = await client.get(sent_away.headers["location"])
        logged_in = await client.post("/login", data={"token": TOKEN, "next": "/ui/jobs/j1?tab=2"})

        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login?next=/ui/jobs/j1%3Ftab%3D2")
        assert 'name="next" value="/ui/jobs/j1?tab=2"' in form.text
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/ui/jobs/j1?tab=2")
        cookie = logged_in.headers["set-cookie"]
        assert cookie.startswith("__Host-barrierscope_session=")
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Secure", "Path=/", "Max-Age=43200"))
        assert TOKEN not in cookie
        assert (await client.get("/ui/")).text == "inside"
        assert (await client.get("/api/v1/jobs")).text == "inside"
        assert (await client.get("/login")).headers["location"] == "/ui/"


async def test_a_session_expires_and_the_answer_says_so():
    time = Time()
    async with _client(TOKEN, base_url=ELSEWHERE, time=time) as client:
        await _log_in(client)
        time.now_s += MAX_AGE_S - 1
        assert (await client.get("/api/v1/jobs")).status_code == 200

        time.now_s += 1
        # A browser would have deleted the cookie by now, but someone may still send a copy of it.
        answer = await client.get("/api/v1/jobs")

    assert answer.status_code == 401
    assert answer.json()["type"].endswith("session-ended")
    assert answer.json()["errors"][0]["pointer"] == "Cookie"


async def test_every_replica_with_the_same_token_accepts_a_session_and_no_other_does():
    async with _client(TOKEN, base_url=ELSEWHERE) as one:
        await _log_in(one)
        (cookie,) = one.cookies.jar
    carried = {"Cookie": f"{cookie.name}={cookie.value}"}
    async with _client(TOKEN, base_url=ELSEWHERE) as replica, _client(TOKEN + "2", base_url=ELSEWHERE) as other:
        assert (await replica.get("/ui/", headers=carried)).text == "inside"
        assert (await other.get("/api/v1/jobs", headers=carried)).status_code == 401


async def test_logging_out_removes_the_cookie():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        await _log_in(client)
        assert (await client.get("/logout")).status_code == 405
        answer = await client.post("/logout", headers={"Origin": ELSEWHERE})

        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert list(client.cookies.jar) == []
        assert (await client.get("/api/v1/jobs")).status_code == 401


async def test_another_site_can_neither_log_a_user_out_nor_in():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        await _log_in(client)
        foreign = {"Origin": "http://evil.example"}

        assert (await client.post("/logout", headers=foreign)).status_code == 403
        assert (await _log_in(client, **foreign)).status_code == 403
        assert (await client.get("/ui/")).text == "inside"


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_session_may_change_data_only_from_our_own_pages(method):
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        await _log_in(client)

        unproven = await client.request(method, "/api/v1/targets")
        own = await client.request(method, "/api/v1/targets", headers={"Origin": ELSEWHERE})

    assert unproven.status_code == 403
    assert own.text == "inside"


@pytest.mark.parametrize("body", [{"token": "wrong"}, {}, {"token": ""}, {"token": "x" * 10_000}, {"next": "/ui/"}])
async def test_a_wrong_token_gives_no_access(body):
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.post("/login", data=body)

        assert answer.status_code == 401
        assert "The token is wrong" in answer.text
        assert "set-cookie" not in answer.headers
        assert (await client.get("/api/v1/jobs")).status_code == 401


@pytest.mark.parametrize(
    "after",
    [
        "//evil.example",
        "https://evil.example/ui/",
        "/ui/\\evil",
        "/api/v1/jobs",
        "/login",
        "javascript:x",
        "/ui/\r\nX: y",
        "",
    ],
)
async def test_the_login_redirects_only_to_our_own_pages(after):
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.post("/login", data={"token": TOKEN, "next": after})

    assert answer.headers["location"] == "/ui/"


_WITH_A_TOKEN = [
    f"/ui/?token={TOKEN}",
    f"/ui/?a=1&access_token={TOKEN}",
    f"/ui/?a=1;Token={TOKEN}",
    f"/ui/?%74oken={TOKEN}",
    f"/ui/?%2574oken%253D{TOKEN}",
    f"/ui/?next=%2Fui%2F%3Ftoken%3D{TOKEN}",
    f"/ui/jobs/token={TOKEN}",
    f"/ui/?api-token%20={TOKEN}",
    f"/ui/?t={TOKEN}",
    f"/ui/?search=%2522{TOKEN}",
    f"/ui/jobs/{TOKEN}",
    "/ui/?api_key=another-token",
    "/ui/?a=1&Authorization=Bearer+another-token",
    "/ui/?client-secret=another-token",
]


@pytest.mark.parametrize("path", _WITH_A_TOKEN)
@pytest.mark.parametrize("site", ["none", "cross-site"])
async def test_a_token_in_the_address_of_a_page_does_not_come_back(path, site):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        sent_away = await client.get(path, headers=headers)
        form = await client.get("/login", params={"next": path})
        logged_in = await client.post("/login", data={"token": TOKEN, "next": path})
        again = await client.get("/login", params={"next": path})

    assert [a.status_code for a in (form, logged_in, again)] == [200, 303, 303]
    for answer in (sent_away, form, logged_in, again):
        assert TOKEN not in answer.text + str(answer.headers)
    assert logged_in.headers["location"] == "/ui/"


async def test_a_page_whose_address_only_mentions_the_word_is_kept():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.get("/ui/jobs/token-service?tab=token")

    assert answer.headers["location"] == "/login?next=/ui/jobs/token-service%3Ftab%3Dtoken"


async def test_nothing_that_needs_the_token_is_stored_by_browsers_and_proxies():
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with _client(TOKEN, base_url=ELSEWHERE) as client, _client(None) as local:
        answers = [
            await client.get("/api/v1/jobs", headers=bearer),
            await client.get("/api/v1/jobs"),
            await client.get("/ui/", headers=bearer),
            await client.get("/ui/"),
            await _log_in(client),
            await _log_in(client, "wrong"),
            await client.post("/logout", headers={"Origin": ELSEWHERE}),
        ]
        code = [await client.get(p, headers=bearer) for p in ("/ui/assets/a.js", "/ui/_dash-component-suites/b.js")]
        open_to_all = await local.get("/api/v1/jobs")

    assert [a.headers.get("cache-control") for a in answers] == ["no-store"] * len(answers)
    assert [a.headers.get("cache-control") for a in (*code, open_to_all)] == [None] * 3


async def test_the_login_page_escapes_its_input():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        answer = await client.get("/login", params={"next": '/ui/"><script>x</script>'})

    assert "<script>" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


_NOT_OURS = ["", TOKEN, "1.9999999999.abc.", "1.9999999999.abc." + "0" * 64, "...", "x" * 5000, "1.٣.a.b"]


@pytest.mark.parametrize("value", _NOT_OURS)
async def test_a_forged_cookie_gives_no_access(value):
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        for header in (f"barrierscope_session={value}", f"a=b; ;;=;{value}", f'barrierscope_session="{value}'):
            answer = await client.get("/api/v1/jobs", headers={"Cookie": header.encode()})
            assert answer.status_code == 401, header


def test_a_session_with_a_changed_expiry_is_refused():
    sessions = Sessions(TOKEN)
    version, ends_at, nonce, signature = sessions.open().split(".")

    assert sessions.is_open(f"{version}.{ends_at}.{nonce}.{signature}")
    assert not sessions.is_open(f"{version}.{int(ends_at) + 1}.{nonce}.{signature}")
    assert not sessions.is_open(f"2.{ends_at}.{nonce}.{signature}")


async def test_a_link_from_another_site_is_followed_by_a_same_site_request():
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with _client(TOKEN, base_url="https://barrierscope.example") as client:
        answer = await client.get("/ui/jobs/j1?a=1&b=2", headers=headers)

    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0; url=/ui/jobs/j1?a=1&amp;b=2"' in answer.text


# --- access through a proxy ---------------------------------------------------------------------------------------

PUBLIC = "https://barrierscope.example"


@pytest.mark.parametrize("host", ["barrierscope.example", "10.1.2.3:8050"])
async def test_behind_a_tls_proxy_the_cookie_is_secure_and_the_public_page_is_accepted(host):
    async with _client(TOKEN, hosts=frozenset({"10.1.2.3"}), public_url=PUBLIC) as client:
        answer = await _log_in(client, host=host, origin=PUBLIC)

    assert answer.status_code == 303
    assert answer.headers["set-cookie"].startswith("__Host-")


async def test_with_a_public_address_pages_of_another_name_are_refused_and_scripts_are_accepted():
    async with _client(TOKEN, public_url=PUBLIC) as client:
        page = await client.get("/ui/", headers={"Host": "node-7:30080"})
        script = await client.get("/api/v1/jobs", headers={"Host": "api:8050", "Authorization": f"Bearer {TOKEN}"})

    assert page.status_code == 403
    assert "use barrierscope.example" in page.json()["detail"]
    assert script.text == "inside"


@pytest.mark.parametrize("origin", ["http://barrierscope.example", "https://barrierscope.example:444"])
async def test_another_scheme_or_port_of_the_public_name_is_another_site(origin):
    async with _client(TOKEN, public_url=PUBLIC) as client:
        answer = await _log_in(client, host="127.0.0.1:8050", origin=origin)

    assert answer.status_code == 403


# --- guessing a token ---------------------------------------------------------------------------------------------


async def _guess(client, count, *, word="guess"):
    return [(await client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {word}{n}"})) for n in range(count)]


async def test_after_wrong_tokens_an_address_must_wait():
    time = Time()
    async with _client(TOKEN, base_url=ELSEWHERE, time=time) as client:
        answers = await _guess(client, WRONG_MAX + 1)
        right = await client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"})
        form = await _log_in(client, "wrong")

        assert [a.status_code for a in answers] == [401] * WRONG_MAX + [429]
        assert form.status_code == 429
        assert answers[-1].headers["retry-after"] == form.headers["retry-after"] == str(int(WINDOW_S))
        # Somebody else behind the same address may have sent the wrong tokens, so the right token is always accepted.
        assert right.text == "inside"
        assert (await _log_in(client)).status_code == 303

        time.now_s += WINDOW_S
        assert (await _log_in(client, "wrong")).status_code == 401


async def test_wrong_tokens_in_the_login_form_count_as_well():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        codes = [(await _log_in(client, f"guess{n}")).status_code for n in range(WRONG_MAX + 1)]

    assert codes == [401] * WRONG_MAX + [429]


async def test_a_script_with_an_old_token_does_not_lock_out_others():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        stale = [await client.get("/api/v1/jobs", headers={"Authorization": "Bearer old"}) for _ in range(50)]

        assert {a.status_code for a in stale} == {401}
        assert (await _log_in(client)).status_code == 303


async def test_wrong_tokens_of_a_neighbour_do_not_affect_a_session():
    async with _client(TOKEN, base_url=ELSEWHERE) as client:
        await _log_in(client)
        await _guess(client, WRONG_MAX + 1)

        assert (await client.get("/api/v1/jobs")).text == "inside"


async def test_a_wrong_token_is_not_in_the_log():
    with capture_logs() as logs:
        async with _client(TOKEN, base_url=ELSEWHERE) as client:
            await _guess(client, 1, word="hunter")
            await _log_in(client, "hunter2")
            await _log_in(client)

    assert [entry["address"] for entry in logs] == ["10.0.0.7", "10.0.0.7"]
    assert "hunter" not in str(logs)
    assert TOKEN not in str(logs)


# --- WebSockets -----------------------------------------------------------------------------------------------------


async def _opens(token, *, path="/ui/_news/fleet", **headers):
    """Return whether a WebSocket with these headers reaches the application."""
    reached: list[str] = []

    async def inside(scope, receive, send):
        reached.append(scope["path"])

    sent: list[dict[str, object]] = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    gate = Access(inside, AccessRules(token), now_s=Time(), monotonic=Time())
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "websocket", "scheme": "ws", "path": path, "query_string": b"", "headers": raw}
    await gate(scope, receive, send)
    assert bool(reached) != (sent == [{"type": "websocket.close", "code": 1008}])
    return bool(reached)


async def test_only_a_page_of_this_service_with_a_session_opens_a_websocket():
    session = f"barrierscope_session={Sessions(TOKEN, Time()).open()}"
    own = {"host": "127.0.0.1:8050", "origin": "http://127.0.0.1:8050"}
    assert await _opens(None, **own)
    assert await _opens(TOKEN, **own, cookie=session)
    assert await _opens(TOKEN, **own, authorization=f"Bearer {TOKEN}")

    assert not await _opens(TOKEN, **own)
    assert not await _opens(TOKEN, **own, cookie="barrierscope_session=forged")
    assert not await _opens(TOKEN, **own, authorization="Bearer wrong")
    assert not await _opens(TOKEN, path="/login", **own)
    for token, more in ((None, {}), (TOKEN, {"cookie": session})):
        assert not await _opens(token, **own | {"origin": "http://evil.example"}, **more)
        assert not await _opens(token, host="127.0.0.1:8050", **more), "a browser always names the origin"
        assert not await _opens(token, **own | {"origin": "http://[x]"}, **more)
    assert not await _opens(None, host="evil.example", origin="http://evil.example")
