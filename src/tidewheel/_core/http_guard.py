"""Access rules of a server in this process.

A foreign web page can make a browser on this machine send requests here. So the `Host` must be one of ours (not a
public name that points to this machine), and a request with an origin must come from our own page. Requests that show
or change state need the token, which is shown only to the user who started the server: every user of a machine can
reach its loopback interface.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Mapping
from ipaddress import ip_address

import msgspec

API = "/api/"

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PRIVATE_NAMES = (".local", ".internal", ".svc", ".localhost")
"""Endings of names that nobody can register."""


class Guard(msgspec.Struct, frozen=True):
    """The rules of one server."""

    hosts: frozenset[str]
    """The allowed host names, without ports."""
    token: str | None = None
    """The token required below `/api/`; None if nothing needs a token."""
    changes: bool = False
    """Whether requests may change anything."""
    private_names: bool = False
    """Whether every address and every private name is allowed, as for the internal names of a cluster."""

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and text of the refusal of a request; None if it is allowed. `headers` has lower-case names."""
        host = headers.get("host", "")
        name = _name(host)
        if name not in self.hosts and not (self.private_names and _is_private(name)):
            way = "use an address of this machine" if self.token is None else "allow it with --allow-host"
            return 421, f"nothing is served here under that name; {way}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "the request comes from another page"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "the request comes from another page"
        changing = method not in ("GET", "HEAD")
        if changing and not path.startswith(API):
            return 405, "only reading is done here"
        if changing and not self.changes:
            return 403, "this page only shows; start it with --allow-changes to change jobs from it"
        if self.token is not None and path.startswith(API) and not self._has_token(self.token, headers):
            return 401, "the token is missing or wrong; open the address that was printed when the page was started"
        return None

    def _has_token(self, token: str, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind == "Bearer" and hmac.compare_digest(given.encode(), token.encode())


def guard_for(host: str, allowed: tuple[str, ...] = (), *, changes: bool = False, token: str | None = None) -> Guard:
    """Return the rules of a page that listens on an address. `allowed` has additional host names."""
    return Guard(_names(host) | {name.lower() for name in allowed}, token or secrets.token_urlsafe(24), changes)


def open_guard_for(host: str) -> Guard:
    """Return the rules of a server without a token, because it shows no state, or only to this user."""
    own = frozenset({socket.gethostname().lower()})
    return Guard(_names(host) | own, private_names=not is_loopback(host))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _names(host: str) -> frozenset[str]:
    return frozenset({host.lower()}) | (_LOOPBACK if is_loopback(host) else frozenset())


def _is_private(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name != "" and ("." not in name or name.endswith(_PRIVATE_NAMES))
    return True


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
