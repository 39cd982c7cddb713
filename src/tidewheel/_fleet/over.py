"""What is left of runs that are over: the records of their chains, and their markers in the sinks. When it goes, and why it may.

A run that holds nothing, whose files are gone and whose chain is closed has been forgotten (`sweep`). It may wake up all the
same, after any time: its node was stopped, or its machine suspended. Three things keep it from doing harm, and none of them is
a clock:

1. It commits nothing. A chain is removed after a last record was created at its end, to which nobody appends. Until the chain is
   gone, the number that the run is to commit is taken; afterwards the run finds that the chain was removed (`Chain.remove`).
2. It publishes nothing. Everything that it committed was published before its last shard was adopted. A sink that lets go of a
   run's marker first notes that all runs up to its number are over, and refuses them from then on (`Sink.forget`).
3. It holds nobody up. If a request of it takes effect after all, in the chain of a run that holds a shard, that shard is taken
   again from there (`handover.reclaim`).

Sinks remember one number, so runs go in the order of their numbers: all below the lowest that is not forgotten. They go a while
after they were found to be over, for people who want to look, and for what was on its way then. A note in the job's
folder says which were found over, and when. Two nodes that do this at once, or one that wakes up in the middle of it, repeat what
was done, or set the note back, which only delays.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from tidewheel._checkpoint.names import folder
from tidewheel._core import faults
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._fleet.chains import Chains
from tidewheel._fleet.handover import custody
from tidewheel._fleet.ledger import is_last, ledger_of
from tidewheel._fleet.sweep import is_settled
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, NotFound

FORGOTTEN = faults.declare("fleet.markers-gone", "sinks have let go of the markers of runs that are over, chains stand")
REMOVED = faults.declare("fleet.run-removed", "the chain of a run that is over is gone, the note does not say so")

AFTER_S = 7 * 86400.0
"""For how many seconds a run has been over when what is left of it goes."""
_NOTE = "over.json"


class Note(msgspec.Struct, frozen=True):
    """Which runs are over."""

    removed: int = 0
    """Nothing is left of the runs up to this one."""
    found: int = 0
    """The runs up to this one were found to be over; the same or less: none were."""
    found_at: float = 0.0
    """When, in seconds since 1970."""


def due(note: Note, lowest: int, now: float, after: float) -> tuple[Note, Sequence[int]]:
    """Return the note as it is now, and the runs that are to be removed; `lowest` is the lowest that is not forgotten. Pure."""
    if note.found <= note.removed:
        return (Note(note.removed, lowest - 1, now) if lowest - 1 > note.removed else note), ()
    if now < note.found_at + after:
        return note, ()
    return note, range(note.removed + 1, note.found + 1)


def let_go(
    chains: Chains,
    forget: Callable[[Sequence[int]], None],
    after: float = AFTER_S,
    clock: Callable[[], float] = time.time,
) -> Sequence[int]:
    """Remove what is left of runs that have been over for so many seconds; return their numbers. Any node may do it.

    `forget` has all sinks let go of the markers of these runs.
    """
    where = chains.store.at(folder(chains.job))
    numbers = chains.runs.numbers()
    if not numbers:
        return ()
    before = _read(where)
    note, runs = due(before, numbers[0], clock(), after)
    runs = _removable(chains, runs)
    if runs:
        forget(runs)
        faults.point(FORGOTTEN)
        token = secrets.token_hex(6)
        for run in runs:
            chains.remove(str(run), token)
            faults.point(REMOVED)
        note = msgspec.structs.replace(note, removed=runs[-1])
    if note != before:
        where.write(_NOTE, msgspec.json.encode(note))
    return runs


def _removable(chains: Chains, runs: Sequence[int]) -> Sequence[int]:
    """Return the runs before the first whose record somebody needs after all: what it had asked for took effect late."""
    if not runs:
        return ()
    known = custody(chains.ledgers())
    for at, run in enumerate(runs):
        newest = chains.of(str(run)).latest()
        if newest is not None and not is_last(newest) and not is_settled(ledger_of(newest), known):
            return runs[:at]
    return runs


def _read(where: Store) -> Note:
    try:
        return msgspec.json.decode(where.read(_NOTE), type=Note)
    except NotFound:
        return Note()
    except UNDECODABLE as error:
        raise CorruptError(
            f"{_NOTE} at {where.url} does not decode ({error}); remove it, and it is made anew"
        ) from None
