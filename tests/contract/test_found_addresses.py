"""Hostile addresses in the places where targets are found: ingress templates, redirects, and the targets file."""

from __future__ import annotations

from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from backend.contracts.targets_file import parse_targets
from backend.domain.address_rules import AddressRules
from backend.domain.connection import Reach
from backend.domain.discovery import HttpSd
from backend.domain.errors import BarrierscopeError, InvalidInputError
from backend.domain.kubernetes_cluster import cluster_of
from backend.domain.spark_application import application_of
from backend.domain.target_url import normalised_url
from collectors.discovery.finding import HttpFinder
from collectors.discovery.kubernetes import web_address
from collectors.flink.client import open_transport
from tests.support.address_forms import FORMS
from tests.support.kubernetes_server import flink_deployment, spark_application
from tests.support.recorded_flink import serve_app

pytestmark = pytest.mark.anyio

COUNT_MIN = 300


class Notes:
    def __init__(self):
        self.problems = []

    def found(self, found):
        raise AssertionError("a redirect is no list")

    def failed(self, problem):
        self.problems.append(problem)


@asynccontextmanager
async def redirecting(status):
    """Serve redirects to each form, and count the requests by path."""
    asked = []

    async def answer(request):
        asked.append(request.path)
        form = FORMS[int(request.match_info["n"])]
        # A header holds ASCII without control characters.
        location = "".join(c for c in f"http://{form}/stolen" if " " < c <= "~")
        return web.Response(status=status, headers={"Location": location})

    app = web.Application()
    app.router.add_get("/{n}", answer)
    async with serve_app(app) as url:
        yield url, asked


@pytest.mark.parametrize("status", [301, 307])
async def test_no_redirect_of_a_list_or_of_a_target_is_followed_to_a_hostile_address(status):
    assert len(FORMS) >= COUNT_MIN
    # The server of the list and the target are allowed, and whatever they answer is not an address to go to.
    reach = Reach(AddressRules(is_everything_allowed=False, allowed=("127.0.0.1/32",)))
    async with redirecting(status) as (url, asked):
        notes = Notes()
        async with open_transport(url, timeout_s=10, reach=reach) as transport:
            for n in range(len(FORMS)):
                with pytest.raises(BarrierscopeError):
                    await transport.get(f"/{n}")
        for n in range(0, len(FORMS), 5):
            # The finder uses the same transport, so a part of the forms is enough.
            assert not await HttpFinder(HttpSd("a", f"{url}/{n}"), reach, pause=None).ask(notes)
        assert asked == [*(f"/{n}" for n in range(len(FORMS))), *(f"/{n}" for n in range(0, len(FORMS), 5))]
        assert all("redirect" in problem for problem in notes.problems)


def test_no_form_in_an_ingress_changes_where_the_service_connects_or_becomes_another_kind_of_link():
    assert len(FORMS) >= COUNT_MIN
    for form in FORMS:
        for template in (
            form,
            f"http://{form}",
            f"{form}/{{{{name}}}}",
            f"javascript://{form}",
            f"{{{{name}}}}.{form}",
        ):
            cluster = cluster_of(flink_deployment("payments", spec={"ingress": {"template": template}}))
            assert cluster.url == "http://payments-rest.flink.svc:8081"
            _check_link(web_address(cluster.ui_url))


def _check_link(link):
    """A link is none, or a plain web address without credentials."""
    if link is not None:
        parts = urlsplit(link)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert "@" not in parts.netloc
        assert link.isprintable()
        assert " " not in link


def test_no_form_in_the_ui_address_of_spark_is_another_kind_of_link():
    for form in FORMS:
        for address in (form, f"http://{form}", f"javascript:{form}", f"data://{form}"):
            found = application_of(spark_application("orders", info={"webUIIngressAddress": address}))
            assert found.url == "http://orders-ui-svc.spark.svc:4040"
            _check_link(web_address(found.ui_url))


def test_no_form_in_the_targets_file_is_stored_in_another_form_than_it_is_compared(tmp_path):
    for form in FORMS:
        for address in (f"http://{form}:8081", f"https://{form}"):
            document = f"targets:\n  - url: {address!r}\n"
            try:
                (target,) = parse_targets(document.encode("utf-8", "replace"), where=tmp_path / "t.yaml").targets
            except InvalidInputError:
                continue
            parts = urlsplit(target.url)
            assert parts.hostname.isascii()
            assert "@" not in parts.netloc
            # Writing the stored form again changes nothing, so the address is compared as it is used.
            assert normalised_url(target.url)[0] == target.url
