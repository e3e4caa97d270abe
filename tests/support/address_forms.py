"""Ways to write a host that must not be connected to, and names that resolve to addresses of such hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

ALLOWED: Final = ("flink.example", "*.svc.example", "10.0.0.0/8", "0.0.0.0/0", "::/0")
"""The allow-list of these tests. The wide networks must not give access to the special addresses in them."""

REFUSED_V4: Final = (
    *("127.0.0.1", "127.9.8.7", "169.254.169.254", "169.254.170.2", "0.0.0.0", "100.100.100.200", "168.63.129.16"),
    *("192.0.0.192", "224.0.0.1", "255.255.255.255"),
)
REFUSED_V6: Final = (
    *("::1", "::", "fe80::1", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42", "ff02::1"),
    *("fec0::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
)
_FULL_WIDTH: Final = str.maketrans("0123456789.", "０１２３４５６７８９．")
_CIRCLED: Final = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
_NAMES: Final = (
    *("localhost", "LOCALHOST", "localhost.", "localhost.svc.example.evil.test", "evilflink.example"),
    *("flink.example.evil", "*.svc.example", "*", ".svc.example", "a..svc.example", "..svc.example", "svc.example"),
    *("a.*.svc.example", "..", ".", "flink.example..", "flink.example\u3002svc", "flink\u3002example"),
    *("\ufb02ink.example", "flink.ex\u0430mple", "xn--flink.example", "-.svc.example", "a-.svc.example"),
    *("a b.svc.example", "a,b.svc.example", "a%2e.svc.example", "%2a.svc.example", "x" * 64 + ".svc.example"),
    *("x." * 130 + "svc.example", "a;.svc.example", "a'.svc.example", 'a".svc.example', "0x7f.1"),
)


def _of_v4(address: str) -> Iterator[str]:
    a, b, c, d = parts = [int(part) for part in address.split(".")]
    number = int(ipaddress.IPv4Address(address))
    yield from (address, address + ".", address + "..", str(number), hex(number), f"0{number:o}", f"{number:#X}")
    yield from (".".join(map(hex, parts)), ".".join(f"0{p:o}" for p in parts), ".".join(f"{p:03d}" for p in parts))
    yield from (f"{a}.{number & 0xFFFFFF}", f"{a}.{b}.{number & 0xFFFF}", f"0x{a:x}.{b}.0{c:o}.{d}")
    yield from (f"[::ffff:{address}]", f"[::ffff:{number >> 16:x}:{number & 0xFFFF:x}]", f"[::{address}]")
    yield from (f"[0:0:0:0:0:FFFF:{address}]", f"[64:ff9b::{address}]", f"[{_six_to_four(address)}]")
    yield from (f"flink.example@{address}", f"flink.example:80@{address}", f"flink.example\\@{address}")
    yield from (f"{address}#flink.example", f"{address}?flink.example", f"{address}\\.svc.example")
    yield from (f"{address}%2f.svc.example", f"{address}/.svc.example", f"{address}%00", f"{address}%eth0")
    yield from (address.translate(_FULL_WIDTH), address.translate(_CIRCLED), address.replace(".", "\u3002"))
    yield from ("".join(f"%{ord(x):02x}" for x in address), f"{a}.\t{b}.{c}.{d}", f"{address}\x00.svc.example")
    yield from (f"{address}.svc.example..", f"{address}:80:80", f"[{address}]")


def _of_v6(address: str) -> Iterator[str]:
    long = ipaddress.IPv6Address(address).exploded
    yield from (f"[{address}]", f"[{long}]", f"[{long.upper()}]", f"[{address}%25lo]", f"[{address}%lo]", address)
    yield from (f"flink.example@[{address}]", f"[{address}].svc.example", f"[{address}]:80.svc.example")


def _six_to_four(address: str) -> str:
    return str(ipaddress.IPv6Address((0x2002 << 112) | (int(ipaddress.IPv4Address(address)) << 80)))


FORMS: Final = tuple(
    dict.fromkeys(
        (
            *(form for address in REFUSED_V4 for form in _of_v4(address)),
            *(form for address in REFUSED_V6 for form in _of_v6(address)),
            *_NAMES,
        )
    )
)
"""Hosts in the form that a URL contains. None of these hosts may be accepted, and none may be connected to."""

LISTED: Final = {
    **{f"v4-{i}.svc.example": (address,) for i, address in enumerate(REFUSED_V4)},
    **{f"v6-{i}.svc.example": (address,) for i, address in enumerate(REFUSED_V6)},
    **{f"mapped-{i}.svc.example": (f"::ffff:{address}",) for i, address in enumerate(REFUSED_V4)},
    **{f"nat64-{i}.svc.example": (f"64:ff9b::{address}",) for i, address in enumerate(REFUSED_V4)},
    **{f"6to4-{i}.svc.example": (_six_to_four(address),) for i, address in enumerate(REFUSED_V4)},
    "scoped.svc.example": ("fe80::1%1",),
    "both.svc.example": ("127.0.0.1", "::1"),
}
"""Names on the allow-list, with the refused addresses to which they resolve."""
