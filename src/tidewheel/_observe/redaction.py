"""Text without passwords, for what is stored or logged: errors and tracebacks quote the user's code and settings."""

from __future__ import annotations

import re

from tidewheel._core.urls import Url

_URL = re.compile(r"""\b[A-Za-z][A-Za-z0-9+.\-]*://[^\s'"<>`)\]}]+""")
_SETTING = re.compile(
    r"""(?i)\b([\w.\-]*(?:password|passwd|secret|token|api_?key|access_?key|credential|private_?key)[\w.\-]*["']?\s*[=:]\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;)}\]]+)"""
)
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._\-]{8,}")


def without_secrets(text: str) -> str:
    """Return the text with log-ins of URLs, and the values of settings that are called a secret, taken out.

    >>> without_secrets("cannot reach nats://ada:s3cret@host:4222/orders with password='hunter2'")
    'cannot reach nats://host:4222/orders with password=***'
    """
    text = _URL.sub(lambda match: _shown(match[0]), text)
    text = _SETTING.sub(lambda match: f"{match[1]}***", text)
    return _HEADER.sub(lambda match: f"{match[1]} ***", text)


def _shown(url: str) -> str:
    # What is no secret stays as it is written: an address in an error is there to be read.
    return str(Url(url)) if "@" in url or "?" in url else url
