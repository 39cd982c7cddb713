"""URLs that may contain a password: parsed once, and shown without it.

A `Url` holds a user's text. When it is printed, by `str`, `repr`, an f-string or as a field of a dataclass, it shows no user,
no password and no settings. `Url.server` parses it as the URL of a server, with everything decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from tidewheel.errors import ConfigError

OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Schemes of object stores."""
WITH_CONTAINERS = ("abfs", "abfss")
"""Schemes whose URLs have a container name before the "@"."""
NO_LOGIN = ("", "file", "memory")
"""Schemes whose URLs have no log-in and no settings."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)


class Url:
    """A URL or a path, as a user gave it.

    >>> url = Url("nats://ada:secret@one:4222,two:4222/orders?replicas=3")
    >>> url, f"{url}"
    (nats://one:4222,two:4222/orders, 'nats://one:4222,two:4222/orders')
    >>> url.reveal()
    'nats://ada:secret@one:4222,two:4222/orders?replicas=3'
    """

    __slots__ = ("_shown", "_text")

    def __init__(self, text: str | Url) -> None:
        self._text: str = text._text if isinstance(text, Url) else text
        self._shown = _masked(self._text)

    @property
    def scheme(self) -> str:
        """The text before the first colon; empty for a path."""
        return _scheme(self._text)

    @property
    def has_login(self) -> bool:
        """Whether it has a user or a password, so that it must not be stored."""
        return self.scheme not in NO_LOGIN and "@" in self._text and "@" not in self._shown

    def reveal(self) -> str:
        """Return the original text, for a client that needs the password. Do not print or log it."""
        return self._text

    def server(self, schemes: Sequence[str], what: str, settings: Sequence[str] = ()) -> ServerUrl:
        """Parse `scheme://user:password@host:port,host:port/path?setting=value`; raise if it is invalid.

        `what` describes the expected URL, with an example. `settings` are the names allowed after the "?". User,
        password, path and settings are percent-decoded.
        """
        scheme, separator, rest = self._text.partition("://")
        parts = _PARTS.fullmatch(rest)
        if scheme not in schemes or not separator or parts is None:
            raise ConfigError(f"the URL {self} must name {what}")
        authority, path, query, fragment = parts.groups()
        login, _, names = authority.rpartition("@")
        if fragment or "@" in login or "@" in path or "@" in (query or ""):
            raise ConfigError(
                f"the URL {self} cannot be read: in a user or password write @ as %40, / as %2F, ? as %3F and # as %23. User and "
                "password stand once, before the first host; elsewhere write @ as %40, and leave # out"
            )
        hosts = [_HOST.fullmatch(name) for name in names.split(",")]
        if not all(hosts):
            raise ConfigError(f"the URL {self} has no host, or no valid port; it must name {what}")
        query_settings = dict(parse_qsl(query or "", keep_blank_values=True))
        if unknown := sorted(set(query_settings) - set(settings)):
            known = f"known: {', '.join(settings)}" if settings else "it takes none"
            raise ConfigError(f"the URL {self} has the unknown setting {unknown[0]!r}; {known}")
        user, _, password = login.partition(":")
        return ServerUrl(
            scheme,
            tuple(Host(host[1].strip("[]"), int(host[2]) if host[2] else None) for host in hosts if host),
            unquote(user),
            unquote(password),
            unquote(path).strip("/"),
            query_settings,
            self._shown,
        )

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def without_login(url: str, what: str) -> str:
    """Return the URL of a store; raise, without showing them, if it has a user or password. `what` names the setting."""
    if Url(url).has_login:
        raise ConfigError(
            f"the URL of {what}, {Url(url)}, has a user or password, which would show in logs; set them in the environment, as "
            "the store's own tools take them"
        )
    return url


@dataclass(frozen=True)
class Host:
    """One server of a URL."""

    name: str
    port: int | None

    def url(self, scheme: str, default_port: int) -> str:
        """Return the URL of only this server.

        >>> Host("::1", None).url("nats", 4222)
        'nats://[::1]:4222'
        """
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{scheme}://{name}:{self.port or default_port}"


@dataclass(frozen=True)
class ServerUrl:
    """The parts of a server's URL. Its `repr` has no password; `shown` is the URL for messages."""

    scheme: str
    hosts: tuple[Host, ...]
    user: str = field(repr=False)
    password: str = field(repr=False)
    path: str
    settings: Mapping[str, str] = field(repr=False)
    shown: str


def _scheme(text: str) -> str:
    scheme, colon, _ = text.partition(":")
    return scheme if colon and "/" not in scheme else ""


def _masked(text: str) -> str:
    """Return the text without user, password and settings; in doubt, remove more."""
    scheme = _scheme(text)
    if scheme in NO_LOGIN:
        return text
    slashes, rest = re.fullmatch(r"(/*)(.*)", text[len(scheme) + 1 :], re.DOTALL).groups()  # type: ignore[union-attr]
    login, _, place = rest.rpartition("@")
    if (
        scheme in OBJECT_STORES
        and ":" not in login
        and ("@" not in rest.partition("/")[0] or scheme in WITH_CONTAINERS)
    ):
        return re.split(r"[?#]", text)[0]
    authority, path, *_ = _PARTS.fullmatch(place).groups()  # type: ignore[union-attr]
    if rest and not all(_HOST.fullmatch(name) for name in authority.split(",")):
        return f"{scheme}:{slashes}***"
    return f"{scheme}:{slashes}{authority}{path}"
