"""Delete the remains of ended runs: the records of their chains, and their markers in the sinks.

A run that holds nothing, whose files are deleted and whose chain is closed, has been forgotten (`sweep`). It may still
resume at any time: its node was stopped, or its machine suspended. Three rules, none of which uses a clock, keep it
from doing harm:

1. It commits nothing. Before a chain is removed, a last record is created at its end, to which nobody appends. Until
   the chain is gone, the number of the run's next commit is taken; afterwards the run finds that the chain was removed
   (`Chain.remove`).
2. It publishes nothing. Everything that it committed was published before its last shard was adopted. A sink that
   deletes a run's marker first records that all runs up to its number have ended, and refuses them from then on
   (`Sink.forget`).
3. It blocks nobody. If a late request of it takes effect in the chain of a run that holds a shard, that shard is taken
   again from there (`handover.reclaim`).

Sinks remember one number, so runs are removed in the order of their numbers: all below the lowest that is not
forgotten. They are removed some time after they were found to have ended, so that people can inspect them and late
requests can arrive. A note in the job's folder records which runs were found to have ended, and when. If two nodes do
this at the same time, or one resumes in the middle of it, they repeat steps or reset the note, which only causes a
delay.

A forgotten run that resumes can still write files before it notices. With each removal, such files are deleted
(`delete_late_files`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from tidewheel._checkpoint.names import CHAIN, folder
from tidewheel._core import faults
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, NotFound
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.handover import custody
from tidewheel.fleet._nodes.ledger import is_last, ledger_of, stream_of
from tidewheel.fleet._nodes.sweep import is_settled

FORGOTTEN = faults.declare("fleet.markers-gone", "sinks have deleted the markers of ended runs, chains still exist")
REMOVED = faults.declare("fleet.run-removed", "the chain of a run that is over is gone, the note does not say so")

AFTER_S = 7 * 86400.0
"""The seconds after the end of a run before its remains are deleted."""
_NOTE = "over.json"


class Note(msgspec.Struct, frozen=True):
    """The ended runs."""

    removed: int = 0
    """The remains of all runs up to this one are deleted."""
    found: int = 0
    """The runs up to this one were found to have ended; if not above `removed`, none were."""
    found_at: float = 0.0
    """The time of that finding, in seconds since 1970."""


def due(note: Note, lowest: int, now: float, after: float) -> tuple[Note, Sequence[int]]:
    """Return the updated note, and the runs to remove; `lowest` is the lowest run that is not forgotten."""
    if note.found <= note.removed:
        return (Note(note.removed, lowest - 1, now) if lowest - 1 > note.removed else note), ()
    if now < note.found_at + after:
        return note, ()
    return note, range(note.removed + 1, note.found + 1)


def remove_ended_runs(
    chains: Chains,
    forget: Callable[[Sequence[int]], None],
    after: float = AFTER_S,
    clock: Callable[[], float] = time.time,
) -> Sequence[int]:
    """Remove the remains of runs that ended at least `after` seconds ago; return their numbers. Any node can do it.

    `forget` deletes the markers of these runs from all sinks.
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
        delete_late_files(chains)
        note = msgspec.structs.replace(note, removed=runs[-1])
    if note != before:
        where.write(_NOTE, msgspec.json.encode(note))
    return runs


def delete_late_files(chains: Chains) -> None:
    """Delete what forgotten runs have written since, except records.

    Nobody refers to these files, unless another chain names such a run as a taker: then the run keeps them. It is named
    before it writes its first file for what it takes, so the chains are read after the files are listed.
    """
    prefix = folder(stream_of(chains.job, ""))
    runs = [name.removeprefix(prefix) for name in chains.store.folders() if name.startswith(prefix)]
    known = chains.runs.numbers()  # Read after the folders: a run is registered before it has one.
    forgotten = [run for run in runs if run.isdigit() and int(run) < max(known, default=0) and int(run) not in known]
    late = {run: _files(chains, run) for run in forgotten}
    if not any(late.values()):
        return
    ledgers = chains.ledgers()
    named = ledgers.keys() | {whose.run for whose in custody(ledgers).values()}
    for run in sorted(late.keys() - named):
        for path in late[run]:
            chains.store.delete(path)


def _files(chains: Chains, run: str) -> list[str]:
    """Return the paths of all objects of a run but its records."""
    where = folder(stream_of(chains.job, run))
    return [entry.path for entry in chains.store.list(where) if not entry.path.startswith(f"{where}/{CHAIN}/")]


def _removable(chains: Chains, runs: Sequence[int]) -> Sequence[int]:
    """Return the runs before the first one whose record is needed, because a late request of it took effect."""
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
            f"{_NOTE} at {where.url} does not decode ({error}); delete it, and it is created again"
        ) from None
