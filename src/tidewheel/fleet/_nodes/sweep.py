"""Delete the files and records of ended runs.

A run has ended when it holds nothing, and is *settled* when all shards taken from it are adopted, or were taken
further. A settled run's chain is closed by a record, so that it adopts nothing any more; its files stay while a run
that is not settled refers to them. When they are deleted the run is forgotten: its chain is no longer read. Its remains
are deleted later (`over`).

No needed file can be missed. References go from a holder to its taker in three steps, and are in a record at each step:
the holder's, where the shard is held; the same, where it is revoked, which stays until the holder is settled; then the
taker's. Chains are read after the files are listed and older runs before later ones, and shards move from older runs to
later ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._checkpoint.names import STAGED, STATE, folder, shared
from tidewheel._storage import Entry
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.handover import Custody, Ledger, Revoked, custody
from tidewheel.fleet._nodes.ledger import ledger_of, stream_of
from tidewheel.fleet._nodes.runs import Run

_BEGINNING_S = 60.0


def is_settled(ledger: Ledger, known: Mapping[int, Custody]) -> bool:
    """Return whether nobody needs a run's record any more; `known` has the owner of each shard.

    The shards taken from the run are adopted, or another run has them since: terms only ascend.
    """
    if ledger.run == ORIGIN or ledger.held:
        return False
    if any(whose.run == ledger.run for whose in known.values()):
        return False  # The run has yet to adopt the shard, or to be skipped.

    def is_done(whose: Custody, taken: Revoked) -> bool:
        term = taken.holding.term
        return whose.holding.term > term or (whose.holding.term == term and whose.source is None)

    return all(shard in known and is_done(known[shard], taken) for shard, taken in ledger.revoked.items())


def needed(ledgers: Iterable[Ledger]) -> set[str]:
    """Return the files that ledgers refer to, by the names that all runs use."""
    found: set[str] = set()
    for ledger in ledgers:
        holdings = [*ledger.held.values(), *(taken.holding for taken in ledger.revoked.values())]
        found.update(file.name for holding in holdings for file in holding.parts.files())
    return found


def sweep(chains: Chains, grace: float, beginning: float = _BEGINNING_S) -> list[str]:
    """Delete unreferenced files of settled runs that are older than `grace` seconds; return the deleted files.

    A run is not touched in its first `beginning` seconds. Any node can do this, also several at the same time.
    """
    store, job = chains.store, chains.job
    numbers = chains.runs.numbers()
    listed = {str(number): _files(chains, str(number)) for number in numbers}
    ledgers = chains.ledgers()
    known = custody(ledgers)
    settled = {run for run, ledger in ledgers.items() if is_settled(ledger, known)}
    kept = needed(ledger for run, ledger in ledgers.items() if run not in settled)
    for run in sorted(ledgers.keys() - settled):
        # An active run keeps some checkpoints; restoring one must find its files.
        kept.update(needed(ledger_of(state) for state in chains.of(run).list()))
    removed = []
    token = secrets.token_hex(6)
    for number in numbers:
        if str(number) not in ledgers and _is_old(chains.runs.get(number), max(grace, beginning)):
            chains.bury(str(number), token)
    for run in sorted(settled & listed.keys(), key=int):
        # A run that has just started holds nothing yet; closing it would only make its node start another.
        entry = chains.runs.get(int(run))
        if not _is_old(entry, max(grace, beginning)) or not chains.close(run, token):
            continue
        stream = stream_of(job, run)
        pins = chains.of(run).pins.all()
        held = {shared(stream, name) for pin in pins for name in pin.files}
        left = [file for file in listed[run] if shared(stream, file.path) not in kept | held]
        old = [file for file in left if file.modified + grace <= time.time()]
        for file in old:
            store.delete(f"{folder(stream)}/{file.path}")
            removed.append(shared(stream, file.path))
        if len(old) < len(listed[run]) or any(pin.holds(time.time_ns()) for pin in pins):
            continue
        # The run may have written needed files after the first listing. Its chain is closed now: files that come later
        # are not needed.
        if not _files(chains, run):
            chains.runs.forget(int(run))
    return removed


def _is_old(entry: Run | None, seconds: float) -> bool:
    return entry is not None and entry.began_at + seconds <= time.time()


def _files(chains: Chains, run: str) -> list[Entry]:
    where = chains.store.at(folder(stream_of(chains.job, run)))
    return [*where.list(STATE), *where.list(STAGED)]
