"""Follow all keys of a range in etcd, across members, outages and silent connections.

A watch is a stream of changes from one member. A stream can stop without an error: the member lost contact with the
others, or a NAT or load balancer dropped the connection. Therefore a heartbeat queries the same member over another
connection, and compares the member's data with what the stream has delivered. A stream that fails either check is
interrupted, and a new watch starts at the next member with all current records, so that no change is missed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tidewheel._cells.backends.etcd_client import Endpoint, EtcdClient, NoAnswer, Refusal, Stream
from tidewheel._cells.errors import CellError
from tidewheel._core.threads import BackgroundThread, OnError

_ATTEMPT_S = 2.0
_HEARTBEAT_S = 1.0
_PAUSE_S = 0.05


class Receiver(Protocol):
    """Receives the results of a watch, in the watch's thread."""

    def everything(self, items: Sequence[dict[str, Any]], revision: int) -> None:
        """Handle all keys of the range, as of a revision."""

    def event(self, item: dict[str, Any], deleted: bool) -> None:
        """Handle one key that was put or deleted."""

    def following(self) -> None:
        """Handle that the watch is established: every later change will be delivered."""

    def interrupted(self, error: BaseException) -> None:
        """Handle an interruption: changes may be missed until `following` is called again."""


class Delivered(NamedTuple):
    """The progress of a stream: the newest revision of a delivered change, and the resulting number of keys."""

    revision: int
    keys: int


class Probe(NamedTuple):
    """The data of a member at a heartbeat, and the data that its stream had delivered by then."""

    newest: int
    """The newest revision at which one of the keys was put."""
    keys: int
    delivered: Delivered


def is_silent(delivered: Delivered, before: Probe) -> bool:
    """Return whether a stream still lacks a change that its member had at the previous heartbeat.

    A put changes the newest revision. A deletion changes the number of keys, which is compared only if nothing was
    delivered since: a change in transit changes both.
    """
    return delivered.revision < before.newest or (delivered == before.delivered and delivered.keys != before.keys)


class EtcdWatch:
    """One watch over a range of keys. `close` always returns, whatever the network does."""

    def __init__(self, client: EtcdClient, keys: dict[str, Any], receiver: Receiver, name: str) -> None:
        self.endpoint: Endpoint | None = None
        """The current or latest watched member."""
        self._client, self._keys, self._receiver = client, keys, receiver
        self._present: set[str] = set()
        self._delivered = Delivered(0, 0)
        self._stream: Stream | None = None
        self._turn = 0
        self._lock = threading.Lock()
        """Held while a stream is set or removed, so that `close` cannot miss a stream that is being opened."""
        self._stop = threading.Event()
        self._threads = [
            BackgroundThread(self._follow, f"{name} watch", self._failed),
            BackgroundThread(self._beat, f"{name} heartbeat", self._failed),
        ]

    def start(self, turn: int) -> None:
        """Start at the member with this index."""
        self._turn = turn
        for thread in self._threads:
            thread.start()

    def interrupt(self) -> None:
        """End the current stream, so that a new watch starts."""
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def close(self) -> None:
        """Stop following and wait for the threads; each of their requests has a time limit."""
        with self._lock:
            self._stop.set()
        self.interrupt()
        for thread in self._threads:
            thread.join()

    def _follow(self) -> None:
        endpoints = self._client.address.endpoints
        while not self._stop.is_set():
            endpoint = endpoints[self._turn % len(endpoints)]
            self._turn += 1
            try:
                self._watch(endpoint)
            except (NoAnswer, Refusal, CellError) as error:
                if self._failed(error) == "end":
                    return
                self._stop.wait(_PAUSE_S)

    def _failed(self, error: BaseException) -> OnError:
        if self._stop.is_set():
            return "end"
        self._receiver.interrupted(error)
        return "go on"

    def _watch(self, endpoint: Endpoint) -> None:
        answer = self._client.call(endpoint, "/v3/kv/range", self._keys, _ATTEMPT_S)
        items, revision = answer.get("kvs", ()), int(answer["header"]["revision"])
        create = self._keys | {"start_revision": revision + 1}
        stream = self._client.stream(endpoint, "/v3/watch", {"create_request": create})
        try:
            self._present = {item["key"] for item in items}
            self._delivered = Delivered(revision, len(self._present))
            with self._lock:
                if self._stop.is_set():
                    return
                self.endpoint, self._stream = endpoint, stream
            self._receiver.everything(items, revision)
            for message in stream:
                self._deliver(message)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _deliver(self, message: dict[str, Any]) -> None:
        if message.get("canceled"):
            raise NoAnswer(f"the watch was cancelled: {message.get('cancel_reason', 'compacted')}", sent=False)
        if message.get("created"):
            self._receiver.following()
        for event in message.get("events", ()):
            item, deleted = event["kv"], event.get("type", "PUT") != "PUT"
            self._receiver.event(item, deleted)
            (self._present.discard if deleted else self._present.add)(item["key"])
            self._delivered = Delivered(int(item["mod_revision"]), len(self._present))

    def _beat(self) -> None:
        """Interrupt a stream whose member does not answer or has changes that the stream did not deliver."""
        watched: Stream | None = None
        last: Delivered | None = None
        before: Probe | None = None
        while not self._stop.wait(_HEARTBEAT_S):
            stream, endpoint, delivered = self._stream, self.endpoint, self._delivered
            if stream is None or endpoint is None:
                continue
            if stream is not watched or delivered != last:
                # A stream that delivered something since the last heartbeat works: no request is needed.
                watched, last, before = stream, delivered, None
                continue
            try:
                if before is not None and is_silent(delivered, before):
                    raise NoAnswer("the stream of changes is silent", sent=False)
                before = self._probe(endpoint, delivered)
            except Exception:  # After any error, a new watch misses nothing.
                stream.interrupt()

    def _probe(self, endpoint: Endpoint, delivered: Delivered) -> Probe:
        newest = {"sort_order": "DESCEND", "sort_target": "MOD", "limit": 1, "keys_only": True}
        answer = self._client.call(endpoint, "/v3/kv/range", self._keys | newest, _ATTEMPT_S)
        items = answer.get("kvs", ())
        return Probe(int(items[0]["mod_revision"]) if items else 0, int(answer.get("count", 0)), delivered)
