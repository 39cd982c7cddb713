"""The loop of a run: it asks every source for its newest position, and runs a batch when one is due.

The loop owns the positions. A batch has the records between two positions of each source. The run commits the end positions
with the results; a batch that fails is repeated from its start positions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.source import SourceReader
from tidewheel._engine.batch_size import FIRST, RECENT, Done, next_amount

_PAUSE_S = 0.01
"""How long to wait at least before asking sources again that have had nothing new for a while."""
_SHORT_PAUSE_S = 0.001
_PART_OF_SILENCE = 0.05
_LONGEST_PAUSE_S = 1.0

Positions = dict[str, Position]


@dataclass(frozen=True)
class Trigger:
    """When a run looks for new data, and whether it ends when there is none."""

    interval: float = 0.0
    """The least time between the beginnings of two looks, in seconds."""
    tick: float | None = None
    """How often a batch runs without new data, in seconds; None: never."""
    ends: bool = False
    """Whether the run ends when everything is read that was there at its start."""
    longest: float | None = None
    """About how long a batch may take, in seconds: the loop limits its size by the speed of the batches before; None: any."""


class Look(NamedTuple):
    """The facts that the loop's decisions depend on."""

    now: float
    """Seconds since 1970."""
    new_data: bool = False
    unrecorded: bool = False
    """Whether the position of a source is not in any commit, and could be another one after a restart."""
    ticked: int = -1
    """The number of the newest tick that a batch was run for."""


Decision = Literal["wait", "batch", "end"]


def is_time(trigger: Trigger, now: float, began: float | None) -> float:
    """Return the seconds until the sources are asked again; 0 or less if they are asked now. Pure.

    A clock that was set back does not stop the loop.

    >>> is_time(Trigger(interval=5.0), 103.0, 100.0), is_time(Trigger(interval=5.0), 50.0, 100.0), is_time(Trigger(), 7.0, 7.0)
    (2.0, 0.0, 0.0)
    """
    if began is None or now < began:
        return 0.0
    return max(0.0, began + trigger.interval - now)


def tick_of(trigger: Trigger, now: float) -> int:
    """Return the number of the newest tick: ticks are counted since 1970, so runs agree on them. Pure."""
    return -1 if trigger.tick is None else int(now // trigger.tick)


def decide(trigger: Trigger, look: Look) -> Decision:
    """Return whether a batch is due. Pure.

    New data or a tick makes a batch due. A run that ends by itself ends when there is no new data. Any other run commits its
    first positions, so that a source with `start="latest"` begins at the same position after a crash.

    >>> decide(Trigger(), Look(7.0, new_data=True)), decide(Trigger(ends=True), Look(7.0, unrecorded=True))
    ('batch', 'end')
    """
    if look.new_data:
        return "batch"
    if trigger.ends:
        return "end"
    return "batch" if look.unrecorded or tick_of(trigger, look.now) > look.ticked else "wait"


def pause_after(seconds: float, silent: float) -> float:
    """Return how long to wait after a poll that took so many seconds and found nothing, `silent` seconds after the last batch.

    Where data come in short intervals, a short pause makes them wait less. A folder with a million files takes a while to list,
    and an idle run should not do that all the time: the pause grows with the silence, up to what asking took.

    >>> pause_after(0.0, 0.02), pause_after(0.0, 5.0), pause_after(0.2, 0.02), pause_after(0.2, 60.0), pause_after(30.0, 60.0)
    (0.001, 0.01, 0.001, 0.2, 1.0)
    """
    longest = min(max(seconds, _PAUSE_S), _LONGEST_PAUSE_S)
    return min(max(silent * _PART_OF_SILENCE, _SHORT_PAUSE_S), longest)


class BatchLoop:
    """Runs the batches of a run one after the other, in a thread of its own."""

    def __init__(
        self,
        readers: Mapping[str, SourceReader],
        positions: Mapping[str, Position],
        trigger: Trigger,
        run_batch: Callable[[Positions, Positions, float], None],
        cancel: Callable[[], None] = lambda: None,
        *,
        held_back: Callable[[Collection[str]], Collection[str]] = lambda waiting: (),
        thread: Callable[..., threading.Thread] = threading.Thread,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin at once. `positions` are those of the newest commit; a source that is not in it begins at its start.

        `run_batch` gets the positions at the beginning and at the end of a batch, and for how many seconds the sources were
        asked; when it returns, the batch is committed. `cancel` makes it fail. `held_back` gets the sources with new data, and
        returns those that the next batch does not read, never all of them.
        """
        self._readers, self._positions, self._trigger = readers, dict(positions), trigger
        self._run_batch, self._cancel, self._clock, self._held_back = run_batch, cancel, clock, held_back
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._working = self._waiting = False
        self._offers: Positions = {}
        """The next position of each source that is held back: a reader is asked once for each batch."""
        self._done: dict[str, list[Done]] = {}
        """The last batches of each source, if they are to take so long and no longer."""
        self._thread = thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def await_end(self, seconds: float) -> bool:
        """Wait for the end for so long and return whether it has come. Raise the error that ended the loop."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether everything is read that the sources have."""
        return self._waiting

    def stop(self) -> None:
        """End the loop; cancel the batch that is running."""
        self._stopped.set()
        if self._working and self._thread.is_alive():
            self._cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self._error = error
        finally:
            for reader in self._readers.values():
                reader.close()

    def _loop(self) -> None:
        if self._trigger.longest is not None:
            for reader in self._readers.values():
                reader.limit = FIRST
        if self._trigger.ends:
            for reader in self._readers.values():
                reader.freeze()
        starts, unrecorded = self._starts()
        began: float | None = None
        ticked = -1
        worked = time.perf_counter()
        while not self._stopped.is_set():
            pause = is_time(self._trigger, self._clock(), began)
            if pause > 0:
                self._stopped.wait(pause)
                continue
            began, asked = self._clock(), time.perf_counter()
            ends = self._ends(starts)
            look = Look(began, ends != starts, unrecorded, ticked)
            match decide(self._trigger, look):
                case "end":
                    return
                case "wait":
                    self._waiting = True
                    now = time.perf_counter()
                    self._stopped.wait(pause_after(now - asked, now - worked))
                case "batch":
                    self._waiting = False
                    self._work(starts, ends, asked)
                    worked = time.perf_counter()
                    ticked = tick_of(self._trigger, began)
                    starts, unrecorded = ends, False

    def _ends(self, starts: Positions) -> Positions:
        """Return the end of the next batch for each source: its beginning, if there is nothing new or the source is held back."""
        offers = {
            name: self._offers[name] if name in self._offers else reader.end(starts[name])
            for name, reader in self._readers.items()
        }
        held = self._held_back({name for name, end in offers.items() if end != starts[name]})
        self._offers = {name: offers[name] for name in held}
        return {name: starts[name] if name in held else end for name, end in offers.items()}

    def _starts(self) -> tuple[Positions, bool]:
        """Return where the first batch begins, and whether that must be committed even if there is nothing new."""
        starts = {
            name: self._positions[name] if name in self._positions else reader.start()
            for name, reader in self._readers.items()
        }
        fresh = [reader for name, reader in self._readers.items() if name not in self._positions]
        return starts, any(not reader.fixed_start for reader in fresh)

    def _work(self, starts: Positions, ends: Positions, asked: float) -> None:
        self._working = True
        amounts = {} if self._trigger.longest is None else self._amounts(starts, ends)
        try:
            self._run_batch(starts, ends, time.perf_counter() - asked)
        finally:
            self._working = False
        self._limit(amounts, time.perf_counter() - asked)
        for name, reader in self._readers.items():
            reader.committed(ends[name])

    def _amounts(self, starts: Positions, ends: Positions) -> dict[str, int]:
        return {name: reader.amount(starts[name], ends[name]) for name, reader in self._readers.items()}

    def _limit(self, amounts: Mapping[str, int], seconds: float) -> None:
        """Limit the next batch of each source by how much of it this batch had, and how long that took."""
        for name, amount in amounts.items():
            if amount:
                self._done[name] = [*self._done.get(name, ())[-RECENT:], Done(amount, seconds)]
                self._readers[name].limit = next_amount(self._done[name], self._trigger.longest or 0.0)
