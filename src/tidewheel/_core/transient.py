"""Recognise transient errors: the same work can succeed later."""

from __future__ import annotations

import errno
import socket
import urllib.error
from collections.abc import Iterator

from tidewheel._core.user_code import described
from tidewheel.errors import ConnectorUnavailable, Retry

_UNREACHABLE = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT}
)
_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses that mean "try again later"."""
_OF_LIBRARIES = frozenset(
    {
        "aiohttp.client_exceptions.ClientConnectionError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "httpx.TransportError",
        "psycopg.OperationalError",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "sqlalchemy.exc.OperationalError",
        "tidewheel.cells.Offline",
        "urllib3.exceptions.NewConnectionError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
    }
)
"""Connection errors and time-outs of well-known clients that are not subclasses of Python's own, by name to avoid imports."""
_WITH_STATUS = {
    "aiohttp.client_exceptions.ClientResponseError": ("status",),
    "httpx.HTTPStatusError": ("response", "status_code"),
    "requests.exceptions.HTTPError": ("response", "status_code"),
    "urllib.error.HTTPError": ("code",),
}
"""Where the errors of well-known clients have the HTTP status of the answer."""


def is_transient(error: BaseException, also: tuple[type[BaseException], ...] = ()) -> bool:
    """Return whether an error, or one of its causes, concerns a connection and not a record.

    `also` has additional classes. Only explicit causes (`raise ... from error`) are followed: an error raised while
    another one is handled may be unrelated.

    >>> is_transient(ConnectionRefusedError()), is_transient(TimeoutError()), is_transient(FileNotFoundError())
    (True, True, False)
    """
    return any(isinstance(each, also) or _is_transient(each) for each in _causes(error))


def raise_transient(operator: str, error: Exception, also: tuple[type[Exception], ...] = ()) -> None:
    """Raise `Retry` if an error of a step is transient; otherwise return."""
    if is_transient(error, also):
        raise Retry(f"step {operator!r}: {described(error)}. No record is the cause: the batch runs again") from error


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, Retry | ConnectorUnavailable | ConnectionError | TimeoutError):
        return True
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    for name in names:
        if name in _WITH_STATUS:
            return _status(error, _WITH_STATUS[name]) in _STATUSES
    if isinstance(error, urllib.error.URLError):
        return isinstance(error.reason, BaseException) and _is_transient(error.reason)
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return True
    return any(name in _OF_LIBRARIES for name in names)


def _status(error: BaseException, path: tuple[str, ...]) -> object:
    value: object = error
    for name in path:
        value = getattr(value, name, None)
    return value


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
