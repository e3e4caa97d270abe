"""Tests of answers that repeat the credentials of their request."""

from __future__ import annotations

import base64

import pytest
from yarl import URL

from collectors.flink.echoes import without_echoes

_URL = URL("http://flink:8081/sd?token=hunter2-query&page=1")
_BASIC = "Basic " + base64.b64encode(b"me:hunter2-basic").decode()


@pytest.mark.parametrize(
    ("headers", "text", "shown"),
    [
        ({"Authorization": "Bearer hunter2"}, "bad Bearer hunter2!", "bad ***!"),
        ({"Authorization": "Bearer hunter2"}, "bad hunter2", "bad ***"),
        ({"authorization": _BASIC}, f"{_BASIC} of me, hunter2-basic", "*** of me, ***"),
        ({"X-Key": "a b/c"}, "a%20b%2Fc a+b%2Fc a b/c a%20b/c", "*** *** *** ***"),
        ({"X-A": "secret", "X-B": "secret-longer"}, "secret-longer secret", "*** ***"),
        ({"Proxy-Authorization": "Basic !"}, "Basic !", "***"),
        ({}, "token=hunter2-query&page=1 hunter2-query", "*** ***"),
        ({"Accept": "application/json", "Host": "flink:8081"}, "flink:8081 application/json", None),
        ({"X-Key": "abc"}, "page 1 of abc, abcd_abc", "page 1 of ***, abcd_***"),
        ({"Authorization": "Basic " + base64.b64encode(b"me:pa").decode()}, "a page of me:pa", "a page of me:***"),
        ({"Authorization": "Bearer s3cr3t"}, "bearer S3CR3T and S3Cr3T", "*** and ***"),
    ],
)
def test_no_credential_of_the_request_is_in_the_text(headers, text, shown):
    assert without_echoes(text, headers, _URL) == (text if shown is None else shown)
