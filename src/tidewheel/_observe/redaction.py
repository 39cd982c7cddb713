"""Remove passwords from text that is stored or logged: errors and tracebacks quote the user's code and settings."""

from __future__ import annotations

import re

from tidewheel._core.text import valid
from tidewheel._core.urls import NO_LOGIN, WITH_CONTAINERS

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{0,30}$")
_URL_END = re.compile(r"[\s\"`]")
_PORT = re.compile(r"[^/:]*:\d{1,5}[/,]")
# Every repetition before the value is bounded, and no prefix is matched, so that the search is linear in the length of
# the text.
_SETTING = re.compile(
    r"""(?i)((?:password|passwd|passphrase|pwd|secret|token|api_?key|access_?key|credential|private_?key)[\w.\-]{0,64}["']?"""
    r"""\s{0,16}[=:]\s{0,16})("(?:[^"\\]|\\.){0,8192}"|'(?:[^'\\]|\\.){0,8192}'|[^\s,;]+)"""
)
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s{1,16}[A-Za-z0-9+/=._\-]{8,}")
_MARGIN = 2_000
"""The number of extra characters to search, so that a secret at the cut is still recognised."""


def without_secrets(text: str) -> str:
    """Return the text without the log-ins of URLs and the values of settings with secret-sounding names.

    >>> without_secrets("cannot reach nats://ada:s3cret@host:4222/orders with password='hunter2'")
    'cannot reach nats://host:4222/orders with password=***'
    """
    text = _without_logins(text)
    text = _SETTING.sub(lambda match: f"{match[1]}***{_closing(match[2], ')]}')}", text)
    return _HEADER.sub(lambda match: f"{match[1]} ***", text)


def beginning(text: str, length: int) -> str:
    """Return the first characters of a text, valid and without secrets, at a cost that does not grow with the text."""
    return without_secrets(valid(text[: length + _MARGIN]))[:length]


def ending(text: str, length: int) -> str:
    """Return the last characters of a text, valid and without secrets, at a cost that does not grow with the text."""
    return without_secrets(valid(text[-(length + _MARGIN) :]))[-length:]


def _without_logins(text: str) -> str:
    before, *parts = text.split("://")
    if not parts:
        return text
    shown = [before]
    for place, part in enumerate(parts):
        scheme = _SCHEME.search(before[-32:])
        end = _URL_END.search(part)
        url, rest = (part, "") if end is None else (part[: end.start()], part[end.start() :])
        if not rest and place + 1 < len(parts) and (following := _SCHEME.search(url[-32:])) is not None:
            # The next URL begins in the same word, as in a list of servers.
            at = len(url) - len(following[0])
            url, rest = url[:at], url[at:]
        known = scheme is None or scheme[0].lower() in NO_LOGIN
        shown.append(part if known else _shown(scheme[0].lower() if scheme else "", url) + rest)
        before = part
    return "://".join(shown)


def _shown(scheme: str, url: str) -> str:
    """Return the text after `://` without log-in and settings."""
    login, at, place = url.rpartition("@")
    if at and _is_login(scheme, login):
        url = place
    url, question, settings = url.partition("?")
    return url + (_closing(settings, ")]}>',.;:") if question else "")


def _closing(text: str, marks: str) -> str:
    """Return the punctuation at the end of a text, which belongs to the surrounding sentence."""
    return text[len(text.rstrip(marks)) :]


def _is_login(scheme: str, text: str) -> bool:
    """Return whether the text before the last @ of a URL is a log-in, and not a path or a container."""
    if scheme in WITH_CONTAINERS and ":" not in text:
        return False
    # A password may contain a slash; then a colon that does not start a port comes before it.
    return "/" not in text or (":" in text.partition("/")[0] and _PORT.match(text) is None)
