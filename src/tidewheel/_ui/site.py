"""Site: the jobs at a state URL for the page, which reads them repeatedly from several threads without disturbing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import msgspec

from tidewheel._cells import open_cells
from tidewheel._cells.connection import Connection
from tidewheel._checkpoint.fleet_ledger import ORIGIN, run_of
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import CHAIN, folder
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._engine.control import cells_of
from tidewheel._engine.declaration import place_of_job
from tidewheel._engine.job_lease import Holder, LeaseState, LeaseWatch
from tidewheel._observe.backlog import Backlogs
from tidewheel._observe.history import History
from tidewheel._spark.newest_state import is_divided, newest
from tidewheel._storage import Store, open_store
from tidewheel._ui.traces import Traces
from tidewheel.errors import NotFound, TidewheelError

if TYPE_CHECKING:
    from tidewheel._program.job import Job

T = TypeVar("T")

Life = Literal["running", "starting", "perhaps", "stopped"]
"""`perhaps`: another machine holds the job, but has not shown activity yet."""

_JOBS_SECONDS = 2.0
_LIFE_SECONDS = 1.0
_HEAD_SECONDS = 0.5
_HISTORY_SECONDS = 0.5


class _Remembered(Generic[T]):
    """A cached value with a minimum refresh interval, for all callers. Errors are cached too."""

    def __init__(self, make: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._seconds, self._clock = make, seconds, clock
        self._lock = threading.Lock()
        self._value: T | None = None
        self._error: TidewheelError | None = None
        self._until = float("-inf")

    def get(self) -> T:
        """Return the value, as of a moment ago."""
        with self._lock:
            if self._clock() >= self._until:
                try:
                    self._value, self._error = self._make(), None
                except TidewheelError as error:
                    self._error = error
                self._until = self._clock() + self._seconds
            if self._error is not None:
                raise self._error
            return self._value  # type: ignore[return-value]


class Standing(msgspec.Struct, frozen=True):
    """Whether a job runs, and its holder."""

    life: Life
    lease: LeaseState

    @property
    def holder(self) -> Holder | None:
        """The current holder."""
        return self.lease.worker


class JobSite:
    """One job."""

    def __init__(self, store: Store, name: str, cells: str | None) -> None:
        """Use the store at the state URL; `cells` is the URL of the jobs' cells if not next to their state."""
        self.name, self.store = name, store
        self._cells = cells
        self._lock = threading.RLock()
        self._checkpoints = StreamCheckpoints(store, name)
        self._connection: Connection | None = None
        self._watch: LeaseWatch | None = None
        self._head = _Remembered(self._latest, _HEAD_SECONDS)
        self._standing = _Remembered(self._look, _LIFE_SECONDS)

    @property
    def place(self) -> JobPlace:
        """The location of the job and its cells."""
        return place_of_job(self.store, self.name, self._cells)

    def head(self) -> Manifest:
        """Return the newest commit; for a fleet, of its origin. Raise `NotFound` if there is none."""
        return self._head.get()

    def head_if_any(self) -> Manifest | None:
        """Return the newest commit; None if there is none."""
        try:
            return self.head()
        except NotFound:
            return None

    def whole(self) -> Manifest:
        """Return the newest state: the head or, for a fleet, the combined state of its runs."""
        return newest(self.store, self.head())

    @property
    def is_fleet(self) -> bool:
        """Whether a fleet runs the job."""
        return is_divided(self.head())

    def checkpoints(self) -> StreamCheckpoints:
        """Return the job's checkpoints, for use by one thread only: they cache the newest one."""
        return StreamCheckpoints(self.store, self.name)

    def standing(self) -> Standing:
        """Return whether the job runs."""
        return self._standing.get()

    def connection(self) -> Connection:
        """Return the connection to the job's cells, which stays open."""
        with self._lock:
            if self._connection is None:
                self._connection = open_cells(cells_of(self.place), program="tidewheel ui")
            return self._connection

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _latest(self) -> Manifest:
        with self._lock:
            found = self._checkpoints.latest()
        if found is None or not self.store.list(f"{folder(self.name)}/{CHAIN}"):
            raise NotFound(
                f"there is no checkpoint of a job {self.name!r} at {self.store.url}: it has no commit yet, or was deleted"
            )
        return found

    def _look(self) -> Standing:
        with self._lock:
            if self._watch is None:
                self._watch = LeaseWatch(self.connection())
            lease = self._watch.look()
        if lease.worker is None:
            return Standing("stopped", lease)
        if not lease.certain:
            return Standing("perhaps", lease)
        return Standing("running" if lease.worker.phase is None else "starting", lease)


class Site:
    """All jobs at a state URL."""

    def __init__(
        self,
        state: str,
        *,
        cells: str | None = None,
        inbox: str | None = None,
        programs: Mapping[str, Job] | None = None,
    ) -> None:
        """Use the state URL. `cells` and `inbox` are those of the fleets there, if not next to the state.

        `programs` has programs by the names of their jobs, for records of keys.
        """
        self.store = open_store(state)
        self.traces = Traces(self.store, programs or {})
        self.cells, self.inbox = cells, inbox
        self.history = History(self.store, listed_for=_HISTORY_SECONDS)
        self.backlogs = Backlogs()
        self._lock = threading.Lock()
        self._jobs: dict[str, JobSite] = {}
        self._names = _Remembered(self._found, _JOBS_SECONDS)

    def names(self) -> list[str]:
        """Return the names of the jobs, including jobs with only their history left."""
        return self._names.get()

    def job(self, name: str) -> JobSite:
        """Return a job; raise `NotFound` if there is none of that name."""
        with self._lock:
            known = self._jobs.get(name)
        if known is not None:
            return known
        if name not in self.names():
            raise NotFound(f"there is no job {name!r} at {self.store.url}")
        return self._site(name)

    def close(self) -> None:
        """Close all connections."""
        self.traces.close()
        with self._lock:
            for job in self._jobs.values():
                job.close()

    def _site(self, name: str) -> JobSite:
        with self._lock:
            return self._jobs.setdefault(name, JobSite(self.store, name, self.cells))

    def _found(self) -> list[str]:
        folders = CheckpointStore(self.store).folders()
        jobs = {name for name, begun in folders.items() if run_of(name) == ORIGIN and (begun or self._is_tried(name))}
        return sorted(jobs | {*self.history.jobs()})

    def _is_tried(self, name: str) -> bool:
        """Return whether a job without a commit is being started, or failed to start."""
        try:
            return self._site(name).standing().lease.holder is not None
        except TidewheelError:
            return (
                False  # The location of its cells is unknown here, or they do not answer: a folder alone is not a job.
            )
