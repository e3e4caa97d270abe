"""Why a target cannot be read: the kinds that a connection test tells apart, and what cures each of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ConnectionFailure(StrEnum):
    """What failed first when a target was read."""

    CREDENTIAL = "credential"
    NAME = "name"
    ADDRESS = "address"
    REFUSED = "refused"
    NO_CONNECTION = "no-connection"
    TIMEOUT = "timeout"
    PROXY = "proxy"
    TLS_AUTHORITY = "tls-authority"
    TLS_EXPIRED = "tls-expired"
    TLS_NAME = "tls-name"
    TLS_CLIENT_CERTIFICATE = "tls-client-certificate"
    TLS = "tls"
    LOST = "lost"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    SERVER_ERROR = "server-error"
    STATUS = "status"
    REDIRECT = "redirect"
    LOGIN_PAGE = "login-page"
    NOT_THIS_KIND = "not-this-kind"


CURES: Final[Mapping[ConnectionFailure, str]] = {
    ConnectionFailure.CREDENTIAL: "set the variable or the file in the processes that read targets (collect and api)",
    ConnectionFailure.NAME: "check the name, and the DNS of the machine that reads",
    ConnectionFailure.ADDRESS: "add the address to BARRIERSCOPE_ALLOWED_TARGETS",
    ConnectionFailure.REFUSED: "check the port, and that the server runs and listens beyond loopback",
    ConnectionFailure.NO_CONNECTION: "check the route and the firewall between the two",
    ConnectionFailure.TIMEOUT: "check the firewall between the two, and the load of the server",
    ConnectionFailure.PROXY: "check the proxy's address and its user and password",
    ConnectionFailure.TLS_AUTHORITY: "set ca to a file with the certificate of the authority",
    ConnectionFailure.TLS_EXPIRED: "renew the server's certificate, and check the clocks",
    ConnectionFailure.TLS_NAME: "use the name in the certificate as address, or set server_name to it",
    ConnectionFailure.TLS_CLIENT_CERTIFICATE: "set certificate and key to files that the server trusts",
    ConnectionFailure.TLS: "check that the port speaks TLS, and its versions",
    ConnectionFailure.LOST: "try again, and look into the log of the server",
    ConnectionFailure.UNAUTHORIZED: "set bearer, basic or the header that the server wants, or replace the expired one",
    ConnectionFailure.FORBIDDEN: "allow this user to read the REST API",
    ConnectionFailure.NOT_FOUND: "add the prefix of the path under which the REST API is served",
    ConnectionFailure.SERVER_ERROR: "look into the log of the server, or of the proxy in front of it",
    ConnectionFailure.STATUS: "look into the log of the server",
    ConnectionFailure.REDIRECT: "use the address to which it redirects",
    ConnectionFailure.LOGIN_PAGE: "use an address without a login page, or set bearer, basic or headers",
    ConnectionFailure.NOT_THIS_KIND: (
        "use the address of the JobManager's REST API, usually port 8081, or kind spark for a history server of Spark"
    ),
}
"""What to do about each failure, as the end of a sentence."""


def of_status(status: int) -> ConnectionFailure:
    """Return the failure that an HTTP status other than 200 means."""
    known = {
        401: ConnectionFailure.UNAUTHORIZED,
        403: ConnectionFailure.FORBIDDEN,
        404: ConnectionFailure.NOT_FOUND,
        407: ConnectionFailure.PROXY,
    }
    return known.get(status, ConnectionFailure.SERVER_ERROR if status >= 500 else ConnectionFailure.STATUS)
