"""A lease: at most one holder at a time, which must renew it to keep it.

No clocks are compared. The holder counts from before it sent its last renewal; everybody else counts from when they saw
the renewal, which is later. So a holder that checks `held` knows that it has lost the lease before anybody can take it.
Time while the machine is suspended counts too.

The check is not enough if the holder is suspended between the check and its action. Send the `token` with each action
under the lease, and let the receiver reject a token smaller than one it has seen: tokens grow from holder to holder.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import msgspec

from tidewheel._cells.cell import Snapshot
from tidewheel._cells.deadline import Deadline, seconds_since_boot
from tidewheel._cells.errors import CellError, Closed, LeaseLost, Offline
from tidewheel._cells.job_place import LEASES
from tidewheel._core.logs import logger
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._time.duration import Duration, seconds

if TYPE_CHECKING:
    from tidewheel._cells.connection import Connection

_LOG = logger(__name__)

NAMESPACE = LEASES
_PAUSE_S = 0.05
_MARGIN = 1.1
"""How much longer others wait than the holder counts, because clocks run at different speeds."""


class Tenure(msgspec.Struct, frozen=True):
    """The value of the lease's cell. `token` is 0 in the first record of a tenure, whose version is the token."""

    id: str
    holder: str
    ttl: float
    token: int
    renewed_at: float
    """The time of renewal by the holder's clock, for information."""


class Lease:
    """One candidate for the lease `name`. Not thread-safe, except for `held`, `token` and `release`.

    In a `with` block it is acquired, renewed in the background, and released. `ttl` is a duration, such as "15 s".
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        holder: str | None = None,
        ttl: Duration = "15 s",
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.ttl = seconds(ttl, f"the ttl of the lease {name!r}", least=1)
        """How many seconds the lease stays valid without renewal."""
        self._cell = connection.writer(name, Tenure, namespace=NAMESPACE)
        self._default_timeout = connection.timeout
        self._clock = clock
        self._candidate, self._attempts = uuid.uuid4().hex, itertools.count(1)
        self._id = ""
        self._token = 0
        self._until = float("-inf")
        self._seen: tuple[int, float] = (-1, 0.0)
        self._stop = threading.Event()
        self._keeper: BackgroundThread | None = None

    @property
    def held(self) -> bool:
        """Whether this candidate holds the lease now, according to its own clock."""
        return self._clock() < self._until

    @property
    def token(self) -> int:
        """The fencing token of this tenure: the version at which it began."""
        if not self._token:
            raise LeaseLost(f"the lease {self._cell.name} is not held by {self.holder}")
        return self._token

    @property
    def current(self) -> Tenure | None:
        """The current holder, as far as this process knows; the lease may have expired."""
        return self._cell.read()

    def try_acquire(self) -> bool:
        """Take the lease if it is free, or was not renewed during its whole ttl; return whether it is held now."""
        if self.held:
            return True
        snapshot = self._cell.refresh(self._command_time())
        return self._take(snapshot) if self._free_in(snapshot) <= 0 else False

    def acquire(self, timeout: Duration | None = None) -> int:
        """Wait for the lease, also during outages; return its token. Raises `TimeoutError` if the lease was not free in time."""
        deadline = Deadline(float("inf") if timeout is None else seconds(timeout, "the timeout"))
        while True:
            try:
                if self.try_acquire():
                    return self.token
                wait = max(0.0, self._free_in(self._cell.snapshot()))
                self._cell.when.updated(timedelta(seconds=min(deadline.left(), wait)), since=self._seen[0])
            except Offline:
                if deadline.passed:
                    raise
                time.sleep(min(deadline.left(), _PAUSE_S))
            except TimeoutError:
                if deadline.passed:
                    raise TimeoutError(f"the lease {self._cell.name} was not free within {timeout}") from None

    def renew(self) -> None:
        """Renew the lease; raise `LeaseLost` if another candidate holds it or it expired."""
        sent = self._clock()
        if sent >= self._until:
            self._lost(f"the lease {self._cell.name} lapsed: it was not renewed within {self.ttl} s")
        snapshot = self._cell.snapshot()
        while True:
            if snapshot.value is None or snapshot.value.id != self._id:
                holder = snapshot.value.holder if snapshot.value else "nobody"
                self._lost(f"the lease {self._cell.name} is held by {holder}, no longer by {self.holder}")
            left = timedelta(seconds=self._until - sent)
            done = self._cell.compare_exchange_at(snapshot.version, self._tenure(), timeout=left)
            if done.applied:
                self._until = sent + self.ttl
                return
            snapshot = Snapshot(done.version, done.seen)

    def release(self) -> None:
        """Release the lease, if it is held, so that others need not wait."""
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join()
        self._keeper = None
        tenure = self._cell.read()
        held, self._until, self._token = self.held, float("-inf"), 0
        if held and tenure is not None and tenure.id == self._id:
            try:
                self._cell.compare_exchange_at(self._cell.version(), None)
            except Offline:
                return  # The lease expires by itself.

    def keep(self) -> Self:
        """Renew in the background until released; check `held` to learn whether that still works."""
        self._stop.clear()
        self._keeper = BackgroundThread(self._keep, f"lease {self._cell.name}", self._not_expected)
        self._keeper.start()
        return self

    def close(self) -> None:
        """Release the lease, and stop following."""
        if not self._cell.is_closed:
            self.release()
            self._cell.close()

    def __enter__(self) -> Self:
        self.acquire()
        return self.keep()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self) -> None:
        while not self._stop.wait(self.ttl / 3):
            try:
                self.renew()
            except (LeaseLost, Closed):
                return
            except CellError:
                continue  # Retry until the lease expires.

    def _not_expected(self, error: BaseException) -> OnError:
        _LOG.warning("the lease %s is not renewed now: %s: %s", self._cell.name, type(error).__name__, error)
        return "go on"

    def _free_in(self, snapshot: Snapshot[Tenure]) -> float:
        """Return the seconds until the lease can be taken; every new version restarts its ttl."""
        if snapshot.version != self._seen[0]:
            self._seen = (snapshot.version, self._clock())
        # A candidate does not wait for a lease of its own: one that expired, or an attempt whose request arrived late.
        if snapshot.value is None or snapshot.value.id.startswith(self._candidate):
            return 0.0
        return self._seen[1] + snapshot.value.ttl * _MARGIN - self._clock()

    def _take(self, snapshot: Snapshot[Tenure]) -> bool:
        sent, self._id, self._token = self._clock(), f"{self._candidate}-{next(self._attempts)}", 0
        done = self._cell.compare_exchange_at(snapshot.version, self._tenure(), timeout=self._command_time())
        if done.applied:
            self._token, self._until = done.version, sent + self.ttl
        return done.applied and self.held

    def _command_time(self) -> timedelta:
        """Return the time limit of one command: with a longer wait for one member of a backend the lease would expire."""
        return timedelta(seconds=min(self._default_timeout, self.ttl))

    def _tenure(self) -> Tenure:
        return Tenure(self._id, self.holder, self.ttl, self._token, time.time())

    def _lost(self, text: str) -> None:
        self._until, self._token = float("-inf"), 0
        raise LeaseLost(text)
