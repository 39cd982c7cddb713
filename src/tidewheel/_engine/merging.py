"""Merging: runs of shards are merged in the background, and a later commit adopts the result.

A merge reads and writes state files only. Until a commit adopts its result, nothing refers to the result. If a merge fails or is
stopped, or if its runs no longer exist when it ends, the garbage collector removes its files.

The files are named for the commit after the one that the merge began from, so garbage collection keeps them until that commit.
A merge that takes longer pins its base before that commit is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count
from typing import NamedTuple

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import state_file
from tidewheel._checkpoint.pins import Pin
from tidewheel._checkpoint.state_files import file_store, shard_by_shard_opener
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._core import faults
from tidewheel._state.compaction import Merge, Merged, adopted
from tidewheel._state.merge_runs import MergedFiles, labelled, merged_items
from tidewheel._state.references import ShardParts
from tidewheel._storage import Store
from tidewheel.errors import TidewheelError

MERGED = faults.declare("merge.written", "merged runs are durable, and nothing refers to them")


class MergeLimits(NamedTuple):
    """When batches wait for merges, and how large a piece of merging is. Only tests choose other values."""

    most_runs: int = 64
    """If a shard has more runs than this, the next batch waits until the current merge has ended."""
    at_once_bytes: int = 4 << 20
    """Merges that are spread over several commits read at least this much after each of them."""


PIECES = 4096
"""The largest number of pieces of a work. The numbers of two works are this far apart."""

_COMMITS = 4
"""The number of commits over which due merges are spread."""

_HOLD_NS = 3600 * 10**9
_LOG = logging.getLogger(__name__)


class MergeWork(msgspec.Struct, frozen=True):
    """The runs that are merged together, into files of their own."""

    stream: str
    sequence: int
    """The commit that the files are named for."""
    run: str
    number: int
    """No other work of the run has this number, nor one of the `PIECES - 1` numbers after it."""
    shards: dict[int, Merge]

    @property
    def bytes(self) -> int:
        """How many bytes the merge reads."""
        return sum(run.bytes for merge in self.shards.values() for run in merge.runs)


def merge_shards(store: Store, work: MergeWork, stopped: Callable[[], bool] = lambda: False) -> dict[int, Merged]:
    """Merge runs of some shards and make the result durable. Return nothing if stopped. It can run in any process."""
    names = (state_file(work.sequence, work.run, work.number, number, "run") for number in count())
    fetch = shard_by_shard_opener(store, work.stream)
    files = MergedFiles(file_store(store, work.stream, names))
    for shard, merge in sorted(work.shards.items()):
        if stopped():
            return {}
        files.add(shard, merged_items(shard, merge, fetch))
    parts = files.finish()
    faults.point(MERGED)
    return {shard: labelled(merge, parts[shard]) for shard, merge in work.shards.items()}


Work = Callable[[], dict[int, Merged]]


def at_once(work: Work) -> Future[dict[int, Merged]]:
    """Do the work immediately, in this thread."""
    future: Future[dict[int, Merged]] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


class Merging:
    """The merges of one run, at most one at a time. The run calls it from one thread."""

    def __init__(
        self, store: Store, checkpoints: StreamCheckpoints, run: str, due: Callable[[ShardParts], Merge | None]
    ) -> None:
        """Use the function `due` to decide which runs of a shard to merge."""
        self._store, self._checkpoints, self._run, self.due = store, checkpoints, run, due
        self.submit: Callable[[Work], Future[dict[int, Merged]]] = self._submit
        """Starts a work; by default in a background thread."""
        self.merge: Callable[[MergeWork], dict[int, Merged]] = self._merge
        """Does a work; by default in this process."""
        self.limits = MergeLimits()
        self.spread = False
        """Whether large merges are spread over several commits, because they run on the processors of the batches."""
        self._numbers = count(0, PIECES)
        self._waiting: set[int] = set()
        self._future: Future[dict[int, Merged]] | None = None
        self._base = 0
        self._pin: str | None = None
        self._held_at = 0.0
        """When the pin was last renewed."""
        self._stopped = False
        self._executor: ThreadPoolExecutor | None = None

    def changed(self, head: Manifest, shards: Collection[int]) -> None:
        """Note which shards a commit has changed, and start a due merge if no other merge is running."""
        self._waiting.update(shards)
        if self._future is not None:
            if any(len(head.shards[shard].deltas) > self.limits.most_runs for shard in shards):
                while not wait([self._future], _HOLD_NS / 4e9).done:  # It ends, however it ends.
                    if self._is_held():
                        self._hold()
            return
        due = {shard: self.due(head.shards.get(shard, ShardParts())) for shard in self._waiting}
        self._waiting.clear()
        merges = {shard: merge for shard, merge in due.items() if merge is not None}
        if merges:
            merges = self._first(merges)
            self._base = head.sequence
            work = MergeWork(self._checkpoints.stream_id, head.sequence + 1, self._run, next(self._numbers), merges)
            self._future = self.submit(lambda: self.merge(work))

    def _first(self, merges: dict[int, Merge]) -> dict[int, Merge]:
        """Return the merges to start now, those of the most runs first; the others wait for the next commit."""
        if not self.spread:
            return merges
        sizes = {shard: sum(run.bytes for run in merge.runs) for shard, merge in merges.items()}
        room = max(self.limits.at_once_bytes, sum(sizes.values()) // _COMMITS)
        chosen: dict[int, Merge] = {}
        for shard in sorted(merges, key=lambda shard: (-len(merges[shard].runs), shard)):
            if room > 0:
                chosen[shard] = merges[shard]
                room -= sizes[shard]
            else:
                self._waiting.add(shard)
        return chosen

    def adopt(self, head: Manifest) -> dict[int, Merged]:
        """Return the merge results that the next commit after `head` adopts: finished ones whose input runs still exist.

        If a merge is not done, a pin keeps its files. A result is thrown away if its files may have been collected: because a
        commit was made without calling this, or because the pin may have expired since the last call.
        """
        if self._future is None:
            return {}
        kept = head.sequence == self._base or self._is_held()
        if not self._future.done():
            if kept:
                self._hold()
            return {}
        future, self._future = self._future, None
        error = future.exception()
        if error is not None:
            _LOG.warning("runs of state could not be merged, and are left as they are: %s", error)
        if error is not None or not kept:
            self._release_pin()
            return {}
        return {shard: merged for shard, merged in future.result().items() if _fits(head.shards.get(shard), merged)}

    def committed(self) -> None:
        """Remove the pin of a merge whose result the last commit has adopted."""
        if self._future is None:
            self._release_pin()

    def close(self) -> None:
        """Stop the running merge."""
        self._stopped = True
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._future = None
        self._release_pin()

    def _submit(self, work: Work) -> Future[dict[int, Merged]]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="tidewheel-merge")
        return self._executor.submit(work)

    def _merge(self, work: MergeWork) -> dict[int, Merged]:
        return merge_shards(self._store, work, lambda: self._stopped)

    def _hold(self) -> None:
        """Pin the files of the running merge: files named for a kept checkpoint, or for a later one, are not collected."""
        now = time.monotonic()
        if self._pin is None or (now - self._held_at) * 8e9 > _HOLD_NS:
            pin = Pin(f"merge-{self._run}-{self._base}", "reader", self._base, (), expires_at=time.time_ns() + _HOLD_NS)
            self._checkpoints.pins.renew(pin)
            self._pin, self._held_at = pin.name, now

    def _is_held(self) -> bool:
        """Return whether the pin has existed all the time. Half of its duration is a margin for differing clocks."""
        return self._pin is not None and (time.monotonic() - self._held_at) * 2e9 <= _HOLD_NS

    def _release_pin(self) -> None:
        if self._pin is not None:
            name, self._pin = self._pin, None
            try:
                self._checkpoints.pins.drop(name)
            except TidewheelError as error:
                _LOG.warning("the pin %s is left until it expires: %s", name, error)


def _fits(parts: ShardParts | None, merged: Merged) -> bool:
    return parts is not None and adopted(parts, merged) is not None
