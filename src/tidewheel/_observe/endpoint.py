"""The HTTP endpoint of a process that runs a job: `/metrics`, `/health` and `/ready`."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus

from prometheus_client.exposition import choose_encoder

from tidewheel._core.http_endpoint import LOOPBACK, Answer, HttpEndpoint, Request
from tidewheel._core.http_guard import open_guard_for
from tidewheel._observe.metrics import Metrics
from tidewheel.errors import ConfigError

_PLACE = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):)?(\d{1,5})")
_TEXT = "text/plain; charset=utf-8"


def place(text: int | str) -> tuple[str, int]:
    """Return host and port of `9090` or `0.0.0.0:9090`; the default host is the loopback interface.

    >>> place(9090), place("0.0.0.0:9090"), place("[::]:9090")
    (('127.0.0.1', 9090), ('0.0.0.0', 9090), ('::', 9090))
    """
    found = _PLACE.fullmatch(str(text))
    if found is None or int(found[2]) > 65535:
        raise ConfigError(
            f"metrics are served at a port or at host:port, such as 9090 or 0.0.0.0:9090, not at {text!r}"
        )
    return (found[1] or LOOPBACK).strip("[]"), int(found[2])


class MetricsEndpoint(HttpEndpoint):
    """Serves the metrics of a process until the block ends."""

    def __init__(self, metrics: Metrics, at: int | str) -> None:
        """Listen on a port, or on host:port."""
        host, port = place(at)
        super().__init__(host, port, partial(answer, metrics), open_guard_for(host), "metrics")


def answer(metrics: Metrics, request: Request) -> Answer:
    """Return the answer to a request."""
    path = request.path
    if path == "/metrics":
        encoder, kind = choose_encoder(request.headers.get("accept", ""))
        return Answer(HTTPStatus.OK, kind, encoder(metrics.registry))
    if path in ("/health", "/ready"):
        why = metrics.alive() if path == "/health" else metrics.ready()
        status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(status, _TEXT, f"{why or 'ok'}\n".encode())
    return Answer(HTTPStatus.NOT_FOUND, _TEXT, b"ask for /metrics, /health or /ready\n")
