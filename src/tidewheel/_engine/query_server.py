"""A small HTTP endpoint on the loopback interface that answers look-ups: `GET /STEP/KEY`."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.text import shown
from tidewheel._core.http_endpoint import LOOPBACK, Answer, HttpEndpoint, Request, failure
from tidewheel._core.http_guard import open_guard_for
from tidewheel._core.loopback_peer import is_stranger
from tidewheel._engine.lookup import Lookup
from tidewheel.errors import TidewheelError


class Endpoint(HttpEndpoint):
    """Answers look-ups of this user's processes until the block ends."""

    def __init__(self, lookup: Lookup, port: int) -> None:
        """Listen on the port of the loopback interface."""
        super().__init__(LOOPBACK, port, partial(answer, lookup), open_guard_for(LOOPBACK), "look-ups")


def answer(lookup: Lookup, request: Request) -> Answer:
    """Return the answer to a request: always JSON."""
    if is_stranger(request.user):
        return failure(HTTPStatus.FORBIDDEN, "only the user who runs the job, and root, may look up its state")
    parts = [unquote(part) for part in request.raw_path.strip("/").split("/", 1)]
    if len(parts) != 2 or not all(parts):
        return failure(HTTPStatus.BAD_REQUEST, "ask for /STEP/KEY; a KEY is text, or JSON such as 7")
    step, key = parts
    try:
        chosen = either(lambda each: lookup.get(step, each), key)
    except TidewheelError as error:
        return failure(HTTPStatus.NOT_FOUND, str(error))
    return _json(HTTPStatus.OK if chosen.found else HTTPStatus.NOT_FOUND, chosen)


def _json(status: HTTPStatus, value: Any) -> Answer:
    return Answer(status, "application/json", shown(value).encode())
