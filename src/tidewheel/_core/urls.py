"""URLs that may hold a password."""

from __future__ import annotations


def shown(url: str) -> str:
    """Return a URL without user and password.

    >>> shown("nats://ada:secret@one:4222,two:4222")
    'nats://one:4222,two:4222'
    """
    scheme, separator, rest = url.partition("://")
    hosts, slash, path = rest.partition("/")
    named = ",".join(host.rpartition("@")[2] for host in hosts.split(","))
    return f"{scheme}{separator}{named}{slash}{path}"
