"""Changes to a job from the page: each must be confirmed, and each is logged.

The first request describes the change and returns a code; only this code, used once and soon, makes the change.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tidewheel._cells.declared import CheckedCodec
from tidewheel._checkpoint.tools.savepoint import find, make_savepoint
from tidewheel._engine.control import cells_of, rescale
from tidewheel._engine.job_status import stop
from tidewheel._engine.stored_cells import StoredCells, stored_cells
from tidewheel._program.stored_job import StoredJob
from tidewheel._ui.site import Site
from tidewheel.errors import ConfigError, NotFound

_LOG = logging.getLogger(__name__)
_VALID_SECONDS = 60.0
_STOP_WAIT = 30.0
_MOST = 1000


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A requested change."""

    job: str
    what: Literal["savepoint", "restore", "rescale", "stop", "set_cell"]
    name: str = ""
    """The name of the savepoint or the cell."""
    at: int | str | None = None
    parallelism: int | None = None
    value: Any = None


class Changes:
    """The changes of one page."""

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        """Use these jobs."""
        self._site, self._clock = site, clock
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[float, Wanted]] = {}

    def ask(self, wanted: Wanted) -> dict[str, str]:
        """Describe a change, and return the code that confirms it. Raise if the change is impossible."""
        if wanted.what == "savepoint" and wanted.at is None:
            # The job may be running: the checkpoint that gets the name must be the one shown here.
            wanted = msgspec.structs.replace(wanted, at=find(self._site.job(wanted.job).checkpoints()).sequence)
        says = self._says(wanted)
        code = secrets.token_urlsafe(12)
        with self._lock:
            now = self._clock()
            self._pending = {key: held for key, held in self._pending.items() if held[0] > now}
            if len(self._pending) >= _MOST:
                raise ConfigError("too many changes are asked for and not confirmed; wait a minute")
            self._pending[code] = (now + _VALID_SECONDS, wanted)
        return {"code": code, "says": says}

    def confirm(self, code: str) -> dict[str, str]:
        """Make a requested change, and describe it."""
        with self._lock:
            until, wanted = self._pending.pop(code, (float("-inf"), None))
        if wanted is None or until < self._clock():
            raise NotFound("this was not asked for, or too long ago, or is done already; ask again")
        done = self._make(wanted)
        _LOG.warning("changed from the page: job %s, %s: %s", wanted.job, wanted.what, done)
        return {"done": done}

    def _says(self, wanted: Wanted) -> str:
        job = self._site.job(wanted.job)
        if wanted.what == "stop":
            # Also for a job without a commit.
            return f"The run of {wanted.job} finishes its batch, commits, publishes, and ends. Nothing is lost."
        head = job.head()
        match wanted.what:
            case "savepoint":
                if not wanted.name:
                    raise ConfigError("a savepoint needs a name")
                found = find(job.checkpoints(), wanted.at)
                return f"Checkpoint {found.sequence} of {wanted.job} gets the name {wanted.name!r} and stays until it is dropped."
            case "restore":
                found = find(job.checkpoints(), wanted.at)
                return (
                    f"{wanted.job} goes back from checkpoint {head.sequence} to {found.sequence}, source offsets included. "
                    "The next run retracts the output that its sinks published after it. The present state stays as a "
                    "savepoint."
                )
            case "rescale":
                if wanted.parallelism is None or not 1 <= wanted.parallelism <= head.n_shards:
                    raise ConfigError(f"the parallelism of {wanted.job} is a number from 1 to {head.n_shards}")
                return f"{wanted.job} uses {wanted.parallelism} tasks instead of {head.parallelism} from its next batch on."
            case "set_cell":
                self._check_cell(wanted)
                shown = msgspec.json.encode(wanted.value).decode()
                return f"The cell {wanted.name!r} of {wanted.job} becomes {shown}; the next batch sees it."

    def _make(self, wanted: Wanted) -> str:
        job = self._site.job(wanted.job)
        match wanted.what:
            case "savepoint":
                at = find(job.checkpoints(), wanted.at).sequence
                made = make_savepoint(job.checkpoints(), wanted.name, at)
                return f"savepoint {wanted.name} of checkpoint {made.sequence}"
            case "restore":
                stored = StoredJob(wanted.job, state=self._site.store.url)
                made = stored.restore(wanted.at, cells=job.place.cells)
                return f"restored to {made.parent} as {made.sequence}"
            case "rescale":
                assert wanted.parallelism is not None
                rescale(cells_of(job.place), wanted.parallelism)
                return f"{wanted.parallelism} tasks from the next batch on"
            case "stop":
                holder, ended = stop(job.place, job.head_if_any(), _STOP_WAIT)
                if holder is None:
                    return "it does not run"
                return "it has ended" if ended else "it was asked to end, and does so when its batch is committed"
            case "set_cell":
                cell = self._cells(wanted).open(job.connection(), wanted.name)
                return f"{wanted.name} is version {int(cell.write(wanted.value))}"

    def _cells(self, wanted: Wanted) -> StoredCells:
        return stored_cells(self._site.store, wanted.job, self._site.job(wanted.job).place.cells)

    def _check_cell(self, wanted: Wanted) -> None:
        """Raise if the job does not declare the cell, or the value does not match its type."""
        cell = self._cells(wanted).declared(wanted.name)
        CheckedCodec(cell.checked_as).encode(wanted.value, f"the cell {wanted.name!r}", cell.type)
