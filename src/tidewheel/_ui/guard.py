"""Who may ask the page for what.

A browser on this machine may be told by a stranger's page to send requests here. So the `Host` must be one of ours (a name that a
stranger points at this machine is not), a request that says where it comes from must come from our own page, and what changes
a job needs the token, which only who started the page was shown.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from ipaddress import ip_address

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard(msgspec.Struct, frozen=True):
    """The rules of one page."""

    hosts: frozenset[str]
    """The names, without ports, under which the page may be asked for."""
    token: str
    changes: bool = False
    """Whether jobs may be changed from the page."""
    open_to_read: bool = True
    """Whether reading needs no token: so where only this machine can ask."""

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and text of the refusal of a request, None if it is fine. Pure. `headers` has lower-case names."""
        host = headers.get("host", "")
        if _name(host) not in self.hosts:
            return 421, "this page is not served under that name; see --allow-host"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "the request comes from another page"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "the request comes from another page"
        if not path.startswith(API):
            return None if method in ("GET", "HEAD") else (405, "only reading is done here")
        changing = method not in ("GET", "HEAD")
        if changing and not self.changes:
            return 403, "this page only shows; start it with --allow-changes to change jobs from it"
        if (changing or not self.open_to_read) and not self._has_token(headers):
            return 401, "the token is missing or wrong; open the address that was printed when the page was started"
        return None

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind == "Bearer" and hmac.compare_digest(given.encode(), self.token.encode())


def guard_for(host: str, allowed: tuple[str, ...] = (), *, changes: bool = False, token: str | None = None) -> Guard:
    """Return the rules of a page that is bound to an address. `allowed` are more names under which it may be asked for."""
    here = is_loopback(host)
    names = {*(name.lower() for name in allowed), host.lower()} | (_LOOPBACK if here else set())
    return Guard(frozenset(names), token or secrets.token_urlsafe(24), changes, open_to_read=here)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return the name in a `Host`, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


class Guarded:
    """An application behind a guard: refused requests do not reach it, and every answer says what a browser may do with it."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        """Take the application."""
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith(API):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refused = self._guard.refusal(scope["method"], scope["path"], dict(Headers(scope=scope)))
        app = self._app if refused is None else JSONResponse({"error": refused[1]}, status_code=refused[0])
        await app(scope, receive, with_headers)
