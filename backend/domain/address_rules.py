"""Decides which addresses users of the API may make this service connect to.

Every part that connects to such an address checks it here first. There are two checks. The host in a URL is checked
when the URL is added and when it is used. The IP address is checked for each connection, against exactly the address
to which the connection goes, because a name can resolve to another address a moment later. A name on the allow-list
never gives access to loopback, link-local addresses or the metadata service of a cloud. Such an address must itself be
on the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# Resolvers read a name that ends like this as an IPv4 address in decimal, octal or hexadecimal form.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_NAME_MAX: Final = 253
# Addresses that give access to this machine, its network segment or its cloud account. They are the networks in
# IANA's special-purpose registries (RFC 6890), and the metadata services that are not in these networks: Azure,
# Alibaba, AWS, Google and Scaleway over IPv6.
_SPECIAL: Final = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("168.63.129.16/32", "100.100.100.200/32"),
        *("::/96", "fe80::/10", "fec0::/10", "ff00::/8", "2001::/32"),
        *("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128"),
    )
)
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The addresses that are allowed: all, or those in ``allowed``.

    ``allowed`` contains host names, IP addresses, networks, and names such as ``*.example`` for all hosts below a
    domain.
    """

    is_everything_allowed: bool
    allowed: tuple[str, ...] = ()

    def allows_host(self, host: str) -> bool:
        """Return whether the host of a URL is on the list: an IP address by its network, a name by name."""
        if self.is_everything_allowed:
            return True
        literal = _parsed(host)
        if literal is not None:
            return self._lists(literal)
        return is_host(host) and any(
            _fits(host.lower().rstrip("."), entry.lower().rstrip(".")) for entry in self.allowed
        )

    def allows(self, host: str, address: str) -> bool:
        """Return whether a connection to the IP address ``address``, to which ``host`` resolved, is allowed."""
        if self.is_everything_allowed:
            return True
        parsed = _parsed(address)
        if parsed is None or not self.allows_host(host):
            return False
        if _parsed(host) is not None:
            return self._lists(parsed)
        # For an IPv4-mapped IPv6 address, an operating system connects to the IPv4 address in it.
        plain = (isinstance(parsed, IPv6Address) and parsed.ipv4_mapped) or parsed
        return self._lists(plain) or _special_of(plain) is None

    def _lists(self, address: _Address) -> bool:
        # A wide network such as 0.0.0.0/0 does not give access to the special addresses in it.
        special = _special_of(address)
        listed = [n for n in map(_network, self.allowed) if n is not None and address in n]
        return any(special is None or _is_within(network, special) for network in listed)


EVERYWHERE: Final = AddressRules(is_everything_allowed=True)
"""Allows every address.

These rules apply to addresses of the configuration and of the command line, which only the operator of this service can
set.
"""


def is_host(text: str) -> bool:
    """Return whether ``text`` is a host name or an IP address in the form in which it is stored and compared.

    A name has ASCII labels (``xn--`` for other scripts), no empty label and no ``*``, and may end with one dot. IPv4
    addresses have four decimal numbers. The other forms that resolvers accept, such as ``127.1``, are refused.
    """
    if _parsed(text) is not None:
        return True
    labels = text.lower().removesuffix(".").split(".")
    return (
        len(text) <= _NAME_MAX
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )


def is_rule(text: str) -> bool:
    """Return whether ``text`` can be in the list of ``AddressRules``: a host, ``*.`` before a name, or a network."""
    if _network(text) is not None:
        return "%" not in text
    name = text.removeprefix("*.")
    return is_host(name) and (name == text or _parsed(name) is None)


def _parsed(text: str) -> _Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # A zone (fe80::1%eth0) names an interface of this machine, so such an address is refused.
    return None if isinstance(found, IPv6Address) and found.scope_id is not None else found


def _fits(name: str, entry: str) -> bool:
    return name.endswith(entry[1:]) if entry.startswith("*.") else name == entry


def _network(entry: str) -> _Network | None:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_within(network: _Network, special: _Network) -> bool:
    return network.version == special.version and network.prefixlen >= special.prefixlen


def _special_of(address: _Address) -> _Network | None:
    """Return the special network that contains the address, or None.

    For an IPv6 address that contains a special IPv4 address, return the network of only this IPv6 address.
    """
    carried = _carried(address)
    if carried is not None and _special_of(carried) is not None:
        return ip_network(address)
    return next((network for network in _SPECIAL if address in network), None)


def _carried(address: _Address) -> IPv4Address | None:
    """Return the IPv4 address to which an IPv6 address is translated (mapped, NAT64, 6to4), or None."""
    if not isinstance(address, IPv6Address):
        return None
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
