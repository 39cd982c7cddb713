"""History: the past activity of the jobs at a state URL, as recorded by their runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import TypeVar

from tidewheel._checkpoint.names import stream_of
from tidewheel._core.logs import logger
from tidewheel._observe import places
from tidewheel._observe.records import (
    COMMITS,
    ERRORS,
    LAG,
    RUNS,
    CommitRecord,
    ErrorRecord,
    Form,
    LagRecord,
    RunRecord,
    Stored,
)
from tidewheel._storage import Entry, Store, open_store
from tidewheel.errors import CorruptError, NotFound, StorageError

_LOG = logger(__name__)

_READERS = 8
_NODES = 32
"""The maximum number of runs that are assumed to be active at the same time."""
_REMEMBERED = 4096
"""The number of decoded objects in the cache."""

_AnyRecord = CommitRecord | RunRecord | ErrorRecord | LagRecord
_Record = TypeVar("_Record", CommitRecord, RunRecord, ErrorRecord, LagRecord)
_Version = tuple[str, int, float]
"""A listed object: its path, size and time."""


class History:
    """The history of all jobs at a state URL, running or not.

    Damaged objects, and those of another kind, are skipped: `damaged` has their paths. Objects that the store did not
    return are skipped too, and requested again the next time: `unreached` has theirs. Objects are read again only if
    they have changed, so that repeated calls are cheap: they take one listing of the job's history. Thread-safe.
    """

    def __init__(
        self, state: str | Store, *, listed_for: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use the state URL, or its store. A job's history is listed again after `listed_for` seconds."""
        self._store = open_store(state) if isinstance(state, str) else state
        self._listed_for, self._clock = listed_for, clock
        self._listings: dict[str, tuple[float, dict[str, list[Entry]]]] = {}
        """By job: until when a listing is valid, and its objects by kind, sorted by time."""
        self._read: dict[_Version, Sequence[_AnyRecord]] = {}
        self.damaged: dict[str, str] = {}
        """By path: what is wrong with skipped objects."""
        self.unreached: dict[str, str] = {}
        """By path: why the store did not return an object."""

    def jobs(self) -> list[str]:
        """Return the names of the jobs that have a history, sorted."""
        jobs = []
        for name in self._store.folders(places.ROOT):
            if (job := stream_of(name)) is not None:
                jobs.append(job)
            else:
                self.damaged[f"{places.ROOT}/{name}"] = "its name is no job's"
        return sorted(jobs)

    def records(self, job: str, since: int | None = None, until: int | None = None) -> list[CommitRecord]:
        """Return a job's commits from `since` on and before `until`, in ns since 1970, sorted by time.

        For a fleet, this includes the commits of all nodes.
        """
        entries = _spanning(self._listed(job, places.COMMITS), since, until)
        found: dict[tuple[str, int], CommitRecord] = {}
        for record in self._all(entries, COMMITS):
            if (since is None or record.at >= since) and (until is None or record.at < until):
                found[record.run, record.sequence] = record
        return sorted(found.values(), key=attrgetter("at", "sequence"))

    def latest(self, job: str) -> CommitRecord | None:
        """Return the newest commit in the history; None if there is none."""
        newest = _newest_of_runs(self._listed(job, places.COMMITS))[-_NODES:]
        return max(self._all(newest, COMMITS), key=lambda record: record.at, default=None)

    def lag(self, job: str, run: str) -> LagRecord | None:
        """Return the latest known backlog of a run's sources, also between commits; None if it was never measured."""
        noted = self._all(self._listed(job, places.LAG), LAG)
        latest = self.latest(job)
        if latest is not None and latest.behind:
            noted.append(LagRecord(latest.at, latest.run, latest.behind))
        return max((record for record in noted if record.run == run), key=lambda record: record.at, default=None)

    def sizes(self, job: str) -> dict[str, dict[int, Stored]]:
        """Return the size of each step's shards, from the newest records that include it."""
        newest = _newest_of_runs(self._listed(job, places.COMMITS))[-_NODES:]
        sizes: dict[str, dict[int, Stored]] = {}
        for record in sorted(self._all(newest, COMMITS), key=lambda record: record.at):
            for operator, shards in record.shards.items():
                sizes.setdefault(operator, {}).update(shards)
        return sizes

    def runs(self, job: str, since: int | None = None) -> list[RunRecord]:
        """Return a job's runs sorted by start; with `since`, those that started since then, and the last one before."""
        entries = self._listed(job, places.RUNS)
        if since is not None:
            before = [entry for entry in entries if places.time_of(entry) < since]
            entries = before[-1:] + [entry for entry in entries if places.time_of(entry) >= since]
        return sorted(self._all(entries, RUNS), key=lambda record: record.at)

    def run_that_was(self, job: str, run: str, at: int) -> RunRecord | None:
        """Return a run that had the job at a time in ns, or started later; None if it has no history."""
        return next((noted for noted in self.runs(job, since=at) if noted.run == run), None)

    def errors(self, job: str, since: int | None = None) -> list[ErrorRecord]:
        """Return the errors of a job's runs since a time, sorted by time."""
        entries = [
            entry for entry in self._listed(job, places.ERRORS) if since is None or places.time_of(entry) >= since
        ]
        return sorted(self._all(entries, ERRORS), key=lambda record: record.at)

    def standing_error(self, job: str, worked_at: int | None) -> ErrorRecord | None:
        """Return the newest error of a job; None if there is none, or if the job has worked since.

        `worked_at` is the time in ns of the newest commit, if that is a batch: it may not be in the history yet.
        """
        errors = self.errors(job)
        if not errors:
            return None
        # The history only has commits of batches, epochs and flushes. Others do not show that a job works: a failing
        # run makes some when it starts and ends.
        latest = self.latest(job)
        noted = latest.at if latest is not None else 0
        return None if max(worked_at or 0, noted) > errors[-1].at else errors[-1]

    def _listed(self, job: str, kind: str) -> list[Entry]:
        """Return the objects of a kind, sorted by time."""
        until, listing = self._listings.get(job, (float("-inf"), {}))
        if self._clock() >= until:
            listing, listed = {}, set()
            folder = f"{places.job_folder(job)}/"
            for entry in self._store.list(places.job_folder(job)):
                name = entry.path.removeprefix(folder)
                if name == places.LAG or places.parse(name) is not None:
                    listing.setdefault(name.partition("/")[0], []).append(entry)
                    listed.add(entry.path)
            # A deleted object need not be reached any more.
            for path in [path for path in self.unreached if path.startswith(folder) and path not in listed]:
                self.unreached.pop(path, None)
            for entries in listing.values():
                entries.sort(key=places.time_of)
            self._listings[job] = (self._clock() + self._listed_for, listing)
        return listing.get(kind, [])

    def _all(self, entries: list[Entry], form: Form[_Record]) -> list[_Record]:
        missing = [entry for entry in entries if _version(entry) not in self._read]
        if len(missing) > 1:
            with ThreadPoolExecutor(_READERS) as readers:
                decoded = list(readers.map(lambda entry: self._decoded(entry, form), missing))
        else:
            decoded = [self._decoded(entry, form) for entry in missing]
        if len(self._read) > _REMEMBERED:
            self._read.clear()
        fresh = {
            _version(entry): records
            for entry, records in zip(missing, decoded, strict=True)
            if entry.path not in self.unreached
        }
        known: list[_Record] = []
        for entry in entries:
            version = _version(entry)
            known += fresh[version] if version in fresh else self._read.get(version, ())  # type: ignore[arg-type]
        self._read.update(fresh)
        return known

    def _decoded(self, entry: Entry, form: Form[_Record]) -> list[_Record]:
        try:
            records = form.decode(self._store.read(entry.path))
        except NotFound:
            self.unreached.pop(entry.path, None)
            return []  # The object expired and was deleted in the meantime.
        except CorruptError as error:
            _LOG.warning("history at %s is passed over: %s", entry.path, error)
            self.damaged[entry.path] = str(error)
            self.unreached.pop(entry.path, None)
            return []
        except StorageError as error:
            if entry.path not in self.unreached:
                _LOG.warning("history at %s could not be read, and is asked for again: %s", entry.path, error)
            self.unreached[entry.path] = str(error)
            return []
        self.damaged.pop(entry.path, None)
        self.unreached.pop(entry.path, None)
        return records


def _spanning(entries: list[Entry], since: int | None, until: int | None) -> list[Entry]:
    """Return the objects that may contain commits of a time span; each is named by the time of its first commit."""
    chosen = entries if until is None else [entry for entry in entries if places.time_of(entry) < until]
    if since is None:
        return chosen
    # An object of a run covers the time until the run's next one.
    before = {_run(entry): entry for entry in chosen if places.time_of(entry) < since}
    return [*before.values(), *(entry for entry in chosen if places.time_of(entry) >= since)]


def _newest_of_runs(entries: Iterable[Entry]) -> list[Entry]:
    """Return the newest object of each run, sorted by time."""
    return sorted({_run(entry): entry for entry in entries}.values(), key=places.time_of)


def _version(entry: Entry) -> _Version:
    return entry.path, entry.size, entry.modified


def _run(entry: Entry) -> str:
    name = places.parse(entry.path)
    return "" if name is None else name.run
