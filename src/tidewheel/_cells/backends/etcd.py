"""Cells in etcd: for several machines, with consensus by Raft.

A cell is a key; its version is the key's modification revision, which grows even if somebody deletes the key. All cells
of a connection share one watch (`etcd_watch`). etcd provides the consensus.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidewheel._cells.backends.base import NOTHING, Backend, Held, Listener, Swap
from tidewheel._cells.backends.etcd_client import (
    Address,
    EtcdClient,
    NoAnswer,
    Refusal,
    from_base64,
    to_base64,
)
from tidewheel._cells.backends.etcd_watch import EtcdWatch
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import Offline, TooLarge
from tidewheel._core.urls import Url

_LIMIT = 1_500_000
_ATTEMPT_S, _LEAST_ATTEMPT_S = 2.0, 0.25
_PAUSE_S = 0.05


class EtcdBackend(Backend):
    """A backend that stores cells as keys below the URL's prefix."""

    limit = _LIMIT
    removes = True

    def __init__(self, url: str | Url) -> None:
        self._address = Address.parse(url)
        self.url = self._address.shown
        self._client = EtcdClient(self._address)
        self._preferred = 0
        self._listener: Listener | None = None
        self._started = threading.Event()
        self._stop = threading.Event()
        self._present: set[str] = set()
        """The paths that had a record, so that a new watch can report records that were deleted in the meantime."""
        self._watch = EtcdWatch(self._client, self._everything(), self, f"cells {self.url}")

    def start(self, listener: Listener, deadline: Deadline) -> None:
        self._listener = listener
        self._request("/v3/kv/range", self._everything() | {"count_only": True}, deadline)
        self._watch.start(self._preferred)
        if not self._started.wait(deadline.left()):
            raise Offline(f"{self.url} answers, but does not report changes")

    def follow(self, path: str) -> None:
        """Do nothing: everything below the prefix is watched."""

    def load(self, path: str, deadline: Deadline, known: int = 0) -> Held:
        answer = self._request("/v3/kv/range", {"key": self._key(path)}, deadline)
        return self._noted(path, _or_deleted(_held(answer), known, answer))

    def swap(self, path: str, base: Held, record: bytes, deadline: Deadline) -> Swap:
        key = self._key(path)
        # A missing or deleted key has the modification revision 0.
        expected = 0 if base.record is None else base.version
        body = {
            "compare": [{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": expected}],
            "success": [{"request_put": {"key": key, "value": to_base64(record)}}],
            "failure": [{"request_range": {"key": key}}],
        }
        # A retry after an attempt without an answer cannot apply twice, because the version then differs.
        attempts = _Attempts()
        answer = self._request("/v3/kv/txn", body, deadline, attempts)
        if answer.get("succeeded"):
            return Swap(True, self._noted(path, Held(int(answer["header"]["revision"]), record)))
        held = _or_deleted(_held(answer["responses"][0]["response_range"]), base.version, answer)
        if not attempts.uncertain:
            return Swap(False, held)
        return self._settled(path, base.version, record, held, deadline)

    def remove(self, path: str, version: int, deadline: Deadline) -> bool:
        key = self._key(path)
        body = {
            "compare": [{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version}],
            "success": [{"request_delete_range": {"key": key}}],
        }
        answer = self._request("/v3/kv/txn", body, deadline)
        if answer.get("succeeded"):
            self._report(path, Held(int(answer["header"]["revision"]), None))
        return bool(answer.get("succeeded"))

    def list(self, prefix: str, deadline: Deadline) -> dict[str, Held]:
        answer = self._request("/v3/kv/range", self._everything(prefix), deadline)
        return {path: self._noted(path, held) for path, held in self._read(answer.get("kvs", ()))}

    def close(self) -> None:
        self._stop.set()
        self._watch.close()
        self._client.close()

    # Callbacks of the watch.

    def everything(self, items: Sequence[dict[str, Any]], revision: int) -> None:
        """Report all current records and all deletions. Called by the watch."""
        found = dict(self._read(items))
        gone = dict.fromkeys(self._present - found.keys(), Held(revision, None))
        for path, held in (found | gone).items():
            self._report(path, held)

    def event(self, item: dict[str, Any], deleted: bool) -> None:
        """Report one change. Called by the watch."""
        for path, held in self._read([item]):
            self._report(path, Held(held.version, None) if deleted else held)

    def following(self) -> None:
        """Report that all changes will be seen. Called by the watch."""
        assert self._listener is not None
        self._started.set()
        self._listener.online()

    def interrupted(self, error: BaseException) -> None:
        """Report that changes may be missed. Called by the watch."""
        assert self._listener is not None
        self._listener.offline(str(error) or type(error).__name__)

    def _settled(self, path: str, base: int, record: bytes, held: Held, deadline: Deadline) -> Swap:
        """Find out from the key's history whether an earlier attempt had applied."""
        newest, version = held, held.version
        while version > base:
            if held.record == record:
                return Swap(True, held)
            try:
                body = {"key": self._key(path), "revision": version - 1}
                held = _held(self._request("/v3/kv/range", body, deadline))
            except (Offline, Refusal) as error:
                raise Offline(f"whether this write happened is not known: {error}", maybe=True) from error
            version = held.version
            if base and not version:
                raise Offline(
                    f"whether this write happened is not known: something deleted the key of {path}", maybe=True
                )
        return Swap(False, newest)

    def _request(
        self, path: str, body: dict[str, Any], deadline: Deadline, attempts: _Attempts | None = None
    ) -> dict[str, Any]:
        """Send the request to one member after another until one answers or the deadline passes."""
        attempts = attempts or _Attempts()
        endpoints = self._address.endpoints
        while True:
            first = self._preferred
            for number in (place % len(endpoints) for place in range(first, first + len(endpoints))):
                try:
                    answer = self._client.call(endpoints[number], path, body, self._attempt_s(deadline))
                except NoAnswer as error:
                    attempts.failed(error)
                    self._preferred = (number + 1) % len(endpoints)
                except Refusal as refusal:
                    if refusal.too_large:
                        raise TooLarge(
                            f"{self.url} refuses the value: {refusal}; keep large things in a file"
                        ) from None
                    raise Offline(f"{self.url} refuses: {refusal}", attempts.uncertain) from None
                else:
                    self._preferred = number
                    return answer
                if deadline.passed:
                    break
            if deadline.passed or self._stop.is_set():
                raise Offline(f"{self.url} does not answer ({attempts.last})", attempts.uncertain)
            time.sleep(min(_PAUSE_S, deadline.left()))

    def _attempt_s(self, deadline: Deadline) -> float:
        """Return the time limit for one member, which leaves time to ask the others."""
        return max(_LEAST_ATTEMPT_S, min(_ATTEMPT_S, deadline.left() / len(self._address.endpoints)))

    def _report(self, path: str, held: Held) -> None:
        assert self._listener is not None
        self._listener.changed(path, self._noted(path, held))

    def _noted(self, path: str, held: Held) -> Held:
        (self._present.discard if held.record is None else self._present.add)(path)
        return held

    def _read(self, items: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Held]]:
        """Yield path and record of each key. A key that is not UTF-8 belongs to another program and is skipped."""
        for item in items:
            with contextlib.suppress(UnicodeDecodeError):
                yield from_base64(item["key"]).decode()[len(self._root()) :], _of(item)

    def _root(self) -> str:
        return f"{self._address.prefix}/" if self._address.prefix else ""

    def _key(self, path: str) -> str:
        return to_base64((self._root() + path).encode())

    def _everything(self, prefix: str = "") -> dict[str, Any]:
        """Return the range of all keys that start with a prefix."""
        first = (self._root() + prefix).encode()
        return {
            "key": to_base64(first or b"\0"),
            "range_end": to_base64(first[:-1] + bytes([first[-1] + 1]) if first else b"\0"),
        }


class _Attempts:
    """The state of attempts that got no answer."""

    def __init__(self) -> None:
        self.uncertain = False
        self.last = ""

    def failed(self, error: NoAnswer) -> None:
        self.uncertain = self.uncertain or error.sent
        self.last = str(error)


def _held(answer: dict[str, Any]) -> Held:
    items = answer.get("kvs", ())
    return _of(items[0]) if items else NOTHING


def _or_deleted(held: Held, known: int, answer: dict[str, Any]) -> Held:
    """Return the record. If it is missing but a version is known, it was deleted, at the latest at the answer's revision."""
    return held if held.version or not known else Held(int(answer["header"]["revision"]), None)


def _of(item: dict[str, Any]) -> Held:
    return Held(int(item["mod_revision"]), from_base64(item.get("value", "")))
