"""A small HTTP endpoint on the loopback interface that answers look-ups: `GET /OPERATOR/KEY`."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.text import shown
from tidewheel._core.http_endpoint import LOOPBACK, Answer, HttpEndpoint
from tidewheel._engine.lookup import Lookup
from tidewheel.errors import TidewheelError

_JSON = "application/json"


class Endpoint(HttpEndpoint):
    """Answers look-ups until the block ends."""

    def __init__(self, lookup: Lookup, port: int) -> None:
        """Listen on the port of the loopback interface."""
        super().__init__(LOOPBACK, port, partial(answer, lookup), "look-ups")


def answer(lookup: Lookup, path: str, accept: str = "") -> Answer:
    """Return what is answered to a request: always JSON."""
    parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/", 1)]
    if len(parts) != 2 or not all(parts):
        return _json(HTTPStatus.BAD_REQUEST, {"error": "ask for /OPERATOR/KEY; a KEY is text, or JSON such as 7"})
    operator, key = parts
    try:
        chosen = either(lambda each: lookup.get(operator, each), key)
    except TidewheelError as error:
        return _json(HTTPStatus.NOT_FOUND, {"error": str(error)})
    return _json(HTTPStatus.OK if chosen.found else HTTPStatus.NOT_FOUND, chosen)


def _json(status: HTTPStatus, value: Any) -> Answer:
    return Answer(status, _JSON, shown(value).encode())
