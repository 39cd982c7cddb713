"""An object store behind a network that delays, loses, repeats and reorders requests, and answers wrongly.

It stands below `tidewheel._storage.remote`, in place of the client library `obstore`: so the store that ships, which settles
answers that are in doubt, is part of the simulation. A request takes effect at one moment, and its answer arrives
later. It may take effect after its sender was told that it failed, or has died.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from obstore import exceptions

from simulation.scheduler import EPOCH, SECOND, Scheduler, Violation
from simulation.sometimes import sometimes
from tidewheel._storage import Entry, Store
from tidewheel.errors import NotFound

_DELAY = SECOND // 50
"""How long a request or an answer takes at most, while the network is not slow."""


class Moment(float):
    """A time in seconds since 1970, with the microseconds that a store tells. A `datetime` would take longer to make."""

    def timestamp(self) -> float:
        """Return the seconds, as a `datetime` does."""
        return float(self)


class Blob(NamedTuple):
    """An object and when it was written, by the store's clock."""

    data: bytes
    modified: Moment


class Rates:
    """How often requests fare badly; all zero: a network without faults, which only takes its time."""

    def __init__(self, lost: float = 0, late: float = 0, unanswered: float = 0, repeated: float = 0, slow: float = 0):
        self.lost, self.late, self.unanswered, self.repeated, self.slow = lost, late, unanswered, repeated, slow

    def stop(self) -> None:
        """End all faults."""
        self.__init__()  # type: ignore[misc]


class Network:
    """Carries requests of tasks to servers."""

    def __init__(self, world: Scheduler, rates: Rates) -> None:
        self.world, self.rates = world, rates
        self._draw = world.random.random
        self.gives_up = (SECOND, 30 * SECOND)
        """After how long a client reports that a request failed."""

    def call(self, name: str, effect: Callable[[], Any], error: Callable[[str], Exception], changes: bool) -> Any:
        """Send a request; return its answer, or raise what the client raises if there is none."""
        world, rates, random = self.world, self.rates, self.world.random
        world.pause(self._delay())
        host = world.process.host
        fate = self._draw()
        if host.unreachable_until > world.now or (fate < rates.lost and world.strikes()):
            sometimes("request lost")
            world.pause(random.randrange(*self.gives_up))
            raise error(f"{name}: the server does not answer (simulated)")
        fate -= rates.lost
        if changes and 0 <= fate < rates.late and world.strikes():
            # The sender is told that it failed, and yet it happens: after a retry elsewhere, or a queue.
            delay = random.randrange(SECOND, 60 * SECOND)
            world.spawn(lambda: self._late(effect), world.outside, f"late {name}", delay)
            world.pause(random.randrange(*self.gives_up))
            raise error(f"{name}: timed out (simulated)")
        fate -= rates.late
        if changes and 0 <= fate < rates.repeated and world.strikes():
            # The client's own retry, after an answer that did not arrive.
            sometimes("request repeated")
            self._effect(effect)
            world.pause(self._delay())
        answer = effect()
        world.pause(self._delay())
        if 0 <= fate - rates.repeated < rates.unanswered and world.strikes():
            if changes:
                sometimes("change done and answered with an error")
            world.pause(random.randrange(*self.gives_up))
            raise error(f"{name}: the connection broke (simulated)")
        return answer

    def _late(self, effect: Callable[[], Any]) -> None:
        sometimes("request took effect after it had failed")
        self._effect(effect)

    @staticmethod
    def _effect(effect: Callable[[], Any]) -> None:
        """Let a request take effect whose answer nobody gets."""
        try:
            effect()
        except Violation:
            raise
        except Exception:
            return

    def _delay(self) -> int:
        slow = self.rates.slow
        if slow and self._draw() < slow and self.world.strikes():
            return self.world.below(20 * SECOND)
        return 1 + int(self._draw() * _DELAY)


class Bucket:
    """The objects, and what looks at every change of them."""

    def __init__(self, world: Scheduler) -> None:
        self.world = world
        self.objects: dict[str, Blob] = {}
        self._paths: list[str] = []
        """The paths of all objects, sorted."""
        self.full_until = 0
        """Until when nothing can be written."""
        self.on_put: list[Callable[[str, bytes], None]] = []
        self.on_delete: list[Callable[[str], None]] = []

    def clock(self) -> Moment:
        """Return the time of the store."""
        return Moment(round((EPOCH + self.world.now) / 1e3) / 1e6)

    def put(self, path: str, data: bytes, create: bool = False) -> None:
        if self.world.now < self.full_until:
            sometimes("store was full")
            raise exceptions.GenericError(f"{path}: no space is left (simulated)")
        if path not in self.objects:
            insort(self._paths, path)
        elif create:
            raise exceptions.AlreadyExistsError(path)
        blob = self.objects[path] = Blob(bytes(data), self.clock())
        for look in self.on_put:
            look(path, blob.data)

    def get(self, path: str) -> bytes:
        blob = self.objects.get(path)
        if blob is None:
            raise exceptions.NotFoundError(path)
        return blob.data

    def delete(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            del self._paths[bisect_left(self._paths, path)]
            for look in self.on_delete:
                look(path)

    def copy(self, path: str, to: str) -> None:
        self.put(to, self.get(path))

    def listed(self, at: str, prefix: str, offset: str) -> list[dict[str, Any]]:
        """Return the objects below a place and a prefix, by their paths below the place."""
        within, cut = f"{at}/{prefix}/" if prefix else f"{at}/", len(at) + 1
        paths, objects = self._paths, self.objects
        first = max(bisect_left(paths, within), bisect_right(paths, f"{at}/{offset}") if offset else 0)
        # A "0" comes after a "/", and nothing between the two.
        return [
            {"path": path[cut:], "size": len(objects[path].data), "last_modified": objects[path].modified}
            for path in paths[first : bisect_left(paths, f"{within[:-1]}0")]
        ]


class Client:
    """What `obstore` offers, for one bucket. Every function is a request, to a place that is a prefix of the bucket."""

    def __init__(self, bucket: Bucket, network: Network) -> None:
        self.bucket, self.network = bucket, network

    def put(self, at: str, path: str, data: bytes, *, mode: str = "overwrite", use_multipart: bool = True) -> None:
        data = bytes(data)
        self._call("put", lambda: self.bucket.put(f"{at}/{path}", data, mode == "create"), True)

    def get(self, at: str, path: str) -> Any:
        data = self._call("get", lambda: self.bucket.get(f"{at}/{path}"))
        return SimpleNamespace(bytes=lambda: data)

    def get_range(self, at: str, path: str, *, start: int, length: int) -> bytes:
        return bytes(self._call("get", lambda: self.bucket.get(f"{at}/{path}")[start : start + length]))

    def head(self, at: str, path: str) -> dict[str, int]:
        return {"size": self._call("head", lambda: len(self.bucket.get(f"{at}/{path}")))}

    def delete(self, at: str, path: str) -> None:
        self._call("delete", lambda: self.bucket.delete(f"{at}/{path}"), True)

    def copy(self, at: str, path: str, to: str) -> None:
        self._call("copy", lambda: self.bucket.copy(f"{at}/{path}", f"{at}/{to}"), True)

    def list(self, at: str, prefix: str | None, offset: str | None = None) -> Iterator[list[dict[str, Any]]]:
        """Yield pages, each as the objects are when it is read: a listing is no snapshot."""
        first = self._call("list", lambda: self.bucket.listed(at, prefix or "", offset or ""))
        if len(first) < 2 or self.network.world.random.random() < 0.8:
            yield first
            return
        cut = self.network.world.random.randrange(1, len(first))
        yield first[:cut]
        rest = self._call("list", lambda: self.bucket.listed(at, prefix or "", first[cut - 1]["path"]))
        sometimes("listing changed between two pages", rest != first[cut:])
        yield rest

    def list_with_delimiter(self, at: str, prefix: str | None) -> dict[str, Any]:
        within = f"{prefix}/" if prefix else ""
        found = self._call("list", lambda: self.bucket.listed(at, prefix or "", ""))
        names = {item["path"][len(within) :].split("/")[0] for item in found if "/" in item["path"][len(within) :]}
        return {"common_prefixes": sorted(f"{within}{name}" for name in names)}

    def _call(self, name: str, effect: Callable[[], Any], changes: bool = False) -> Any:
        return self.network.call(name, effect, exceptions.GenericError, changes)


class DirectStore(Store):
    """The same objects without a network: for checks, which must neither wait nor fail."""

    def __init__(self, bucket: Bucket, at: str) -> None:
        self.bucket, self._at, self.url = bucket, at, f"s3://sim/{at}"

    def read(self, path: str) -> bytes:
        blob = self.bucket.objects.get(f"{self._at}/{path}")
        if blob is None:
            raise NotFound(f"there is no {path} at {self.url}")
        return blob.data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        found = self.bucket.listed(self._at, prefix, after)
        return [Entry(item["path"], item["size"], item["last_modified"].timestamp()) for item in found]

    def at(self, prefix: str) -> DirectStore:
        return DirectStore(self.bucket, f"{self._at}/{prefix}")

    def create(self, path: str, data: bytes) -> bool:
        raise NotImplementedError("a check changes nothing")

    def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError("a check changes nothing")

    def delete(self, path: str) -> None:
        raise NotImplementedError("a check changes nothing")
