"""What runs that are over have left behind, and its removal.

A run is over when it holds nothing, and *settled* when all that was taken from it is adopted, or was taken on. A settled
run's chain is closed, by a record, so that it adopts nothing any more; its files stay while a run that is not settled refers to
them. When they are gone the run is forgotten: its chain is read no more. What is left of it goes later (`over`).

Nothing that is needed can be missed. References go from a holder to its taker in three steps, and show in a record at every
one of them: the holder's, where it is held; the same, where it is revoked, which stays until the holder is settled; then the
taker's. Chains are read after the files are listed and older runs before later ones, and shards go from older runs to
later ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping

from tidewheel._checkpoint.names import STAGED, STATE, folder, shared
from tidewheel._fleet.chains import Chains
from tidewheel._fleet.handover import ORIGIN, Custody, Ledger, Revoked, custody
from tidewheel._fleet.ledger import ledger_of, stream_of
from tidewheel._fleet.runs import Run
from tidewheel._storage import Entry

_BEGINNING_S = 60.0


def is_settled(ledger: Ledger, known: Mapping[int, Custody]) -> bool:
    """Tell whether nobody needs a run's record to go on; `known` says whose each shard is. Pure.

    What was taken from the run is adopted, or somebody has got it since: terms only ascend.
    """
    if ledger.run == ORIGIN or ledger.held:
        return False
    if any(whose.run == ledger.run for whose in known.values()):
        return False  # It has yet to adopt, or to be passed over.

    def is_done(whose: Custody, taken: Revoked) -> bool:
        term = taken.holding.term
        return whose.holding.term > term or (whose.holding.term == term and whose.source is None)

    return all(shard in known and is_done(known[shard], taken) for shard, taken in ledger.revoked.items())


def needed(ledgers: Iterable[Ledger]) -> set[str]:
    """Return the files, by the names that all runs know, that ledgers refer to. Pure."""
    found: set[str] = set()
    for ledger in ledgers:
        holdings = [*ledger.held.values(), *(taken.holding for taken in ledger.revoked.values())]
        found.update(file.name for holding in holdings for file in holding.parts.files())
    return found


def sweep(chains: Chains, grace: float, beginning: float = _BEGINNING_S) -> list[str]:
    """Remove what settled runs have left and nobody refers to, once it is `grace` seconds old; return the files removed.

    A run is left alone in its first `beginning` seconds. Any node may do it, also several at once.
    """
    store, job = chains.store, chains.job
    numbers = chains.runs.numbers()
    listed = {str(number): _files(chains, str(number)) for number in numbers}
    ledgers = chains.ledgers()
    known = custody(ledgers)
    settled = {run for run, ledger in ledgers.items() if is_settled(ledger, known)}
    kept = needed(ledger for run, ledger in ledgers.items() if run not in settled)
    for run in ledgers.keys() - settled:
        # A run that is at work keeps some checkpoints; restoring one must find its files.
        kept.update(needed(ledger_of(state) for state in chains.of(run).list()))
    removed = []
    token = secrets.token_hex(6)
    for number in numbers:
        if str(number) not in ledgers and _is_old(chains.runs.get(number), max(grace, beginning)):
            chains.bury(str(number), token)
    for run in sorted(settled & listed.keys(), key=int):
        # One that has just begun holds nothing yet; closing it would only make its node begin another.
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
        if len(old) == len(listed[run]) and not any(pin.holds(time.time_ns()) for pin in pins):
            chains.runs.forget(int(run))
    return removed


def _is_old(entry: Run | None, seconds: float) -> bool:
    return entry is not None and entry.began_at + seconds <= time.time()


def _files(chains: Chains, run: str) -> list[Entry]:
    where = chains.store.at(folder(stream_of(chains.job, run)))
    return [*where.list(STATE), *where.list(STAGED)]
