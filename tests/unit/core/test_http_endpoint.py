"""The HTTP server: which requests it refuses, and how it bounds what clients can use."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading

import pytest

from support.waiting import eventually
from tidewheel._core.http_endpoint import CONNECTIONS, Answer, HttpEndpoint, Request
from tidewheel._core.http_guard import guard_for, open_guard_for
from tidewheel._core.loopback_peer import is_stranger, peer_user


def plain(request: Request) -> Answer:
    return Answer(200, "text/plain", f"{request.method} {request.path}".encode())


def ask(endpoint: HttpEndpoint, path: str = "/a", method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def endpoint():
    with HttpEndpoint("127.0.0.1", 0, plain, open_guard_for("127.0.0.1"), "tests") as opened:
        yield opened


def test_a_request_under_a_strangers_name_is_refused(endpoint):
    assert ask(endpoint) == (200, b"GET /a")
    assert ask(endpoint, Host="evil.example")[0] == 421
    assert ask(endpoint, Origin="http://evil.example")[0] == 403
    assert ask(endpoint, method="POST")[0] == 405


def test_connections_beyond_the_limit_are_refused(endpoint):
    """Each takes a descriptor and a thread of the job: without a limit, a thousand idle ones leave the job none."""
    idle = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(CONNECTIONS)]
    try:
        eventually(lambda: len(endpoint._server._deadlines) == CONNECTIONS)
        assert ask(endpoint)[0] == 503
    finally:
        for each in idle:
            each.close()
    eventually(lambda: not endpoint._server._deadlines)
    assert ask(endpoint)[0] == 200


def test_a_request_that_trickles_in_is_ended_at_its_deadline():
    """Each byte comes in time, the request never."""
    with (
        HttpEndpoint("127.0.0.1", 0, plain, open_guard_for("127.0.0.1"), "tests", request_s=0.2) as endpoint,
        socket.create_connection(("127.0.0.1", endpoint.port)) as slow,
    ):
        slow.sendall(b"GET /a HTTP/1.1\r\nX: ")
        slow.settimeout(60)
        assert slow.recv(1) == b""


def test_an_answer_in_parts_outlives_the_deadline_of_its_request(monkeypatch):
    more = threading.Event()

    def parts(request: Request) -> Answer:
        def each():
            yield b"one "
            more.wait(60)
            yield b"two"

        return Answer(200, "text/plain", each())

    with HttpEndpoint("127.0.0.1", 0, parts, open_guard_for("127.0.0.1"), "tests", request_s=0.1) as endpoint:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.read(4) == b"one "
        turns = count_turns(endpoint, monkeypatch)
        eventually(lambda: turns() >= 3)
        more.set()
        assert answer.read() == b"two"
        connection.close()


def count_turns(endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch):
    """Count how often the server has looked at the deadlines."""
    seen: list[None] = []
    look = endpoint._server.service_actions
    monkeypatch.setattr(endpoint._server, "service_actions", lambda: (look(), seen.append(None)))
    return lambda: len(seen)


def test_bodies_are_bounded():
    with HttpEndpoint("127.0.0.1", 0, plain, guard_for("127.0.0.1", changes=True, token="t"), "tests") as endpoint:
        token = {"Authorization": "Bearer t"}
        assert ask(endpoint, "/api/x", "POST", **token, **{"Content-Length": str(2**40)})[0] == 413
        for wrong in ("-1", "²", "x"):
            assert (
                ask(endpoint, "/api/x", "POST", **token, **{"Content-Length": wrong.encode().decode("latin-1")})[0]
                == 411
            )
        assert ask(endpoint, "/api/x", "POST", **token) == (200, b"POST /api/x")


def test_the_user_at_the_other_end_of_a_loopback_connection_is_known():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, peer = server.accept()
        with connection:
            assert peer_user(peer, connection.getsockname()) == os.geteuid()
            assert client.getsockname() == peer
    assert [is_stranger(user) for user in (None, 0, os.geteuid(), os.geteuid() + 1)] == [False, False, False, True]
