"""A TCP proxy on loopback that imitates network faults: cut, refuse, hold, delay, forget, and lose one answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class TcpProxy:
    """Pass bytes between clients and one server, until told otherwise."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        self.delay = 0.0
        """Seconds that every piece of data waits."""
        self.refuses = False
        """Whether new connections are closed at once."""
        self.lose_answer_to: bytes | None = None
        """The answer to the next request with these bytes is swallowed, and its connection cut."""
        self.lost = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections that stand; the two sides notice."""
        for pair in self._standing():
            pair.close()

    def hold(self) -> None:
        """Let nothing pass, on old and new connections, until `restore`."""
        self._open.clear()

    def forget(self) -> None:
        """Have all connections that stand fall silent for good, without a reset; new ones pass."""
        for pair in self._standing():
            pair.forgotten = True

    def restore(self) -> None:
        """Pass everything again, on all connections but forgotten ones."""
        self.delay, self.refuses = 0.0, False
        self._open.set()

    def close(self) -> None:
        """End all threads and connections."""
        self._closed.set()
        self.restore()
        with contextlib.suppress(OSError):  # A plain close would leave the accepting thread waiting.
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _standing(self) -> list[_Pair]:
        with self._lock:
            return list(self._pairs)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        pair = _Pair(client, server)
        with self._lock:
            self._pairs.append(pair)
        if self._closed.is_set():
            pair.close()
        answers = threading.Thread(target=self._pump, args=(pair, server, client), daemon=True)
        answers.start()
        self._pump(pair, client, server)
        answers.join()
        with self._lock:
            self._pairs.remove(pair)
        for sock in (client, server):
            sock.close()

    def _pump(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        is_request = source is pair.client
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if self.delay:
                    self._closed.wait(self.delay)
                if pair.forgotten:
                    continue
                if is_request and self.lose_answer_to is not None and self.lose_answer_to in data:
                    pair.doomed = True
                elif not is_request and pair.doomed:
                    self.lose_answer_to = None
                    pair.close()
                    self.lost.set()
                    return
                target.sendall(data)
        if not pair.forgotten:
            pair.close()


class _Pair:
    """The two halves of one connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.forgotten = self.doomed = False
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
