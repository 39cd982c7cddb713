"""The declaration of a job: the cells and other settings of its program, stored for commands that run without the program."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel._cells.declared import type_name
from tidewheel._cells.type_description import ANY, describe
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import PROGRAM, PROGRAMS, folder
from tidewheel._core.text import printable
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._core.urls import Url
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_code import differs, fingerprint, source_files
from tidewheel._engine.program_job import ProgramJob
from tidewheel._storage import Store
from tidewheel._time.alignment import held_back, leads, source_clocks
from tidewheel._time.frontier import Input
from tidewheel.errors import ConfigError, CorruptError, NotFound

if TYPE_CHECKING:
    from tidewheel._cells.live import JobCell


_FINGERPRINT = re.compile(r"[0-9.]+-[0-9a-f]+")
_RUNS = 100
"""The number of runs whose programs are stored."""
SIMPLE_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
"""The types, by name, that a value can be checked against without a description."""


class DeclaredCell(msgspec.Struct, frozen=True):
    """A cell of a job: its name, its declared type by name, and its default as JSON."""

    name: str
    type: str
    default: msgspec.Raw
    description: Any = None
    """The type of its values (`_cells.type_description`); None: an older version wrote this."""

    @property
    def checked_as(self) -> Any:
        """The description that values are checked against."""
        if self.description is not None:
            return self.description
        return self.type if self.type in SIMPLE_TYPES else ANY


class Alignment(msgspec.Struct, frozen=True):
    """How far a source of a job may be ahead of another in event time."""

    most: int
    """In ns."""
    clocked: dict[str, frozenset[str]]
    """The inputs of the job's clock that each source feeds."""
    inputs: tuple[Input, ...]

    def held_back(self, newest: Manifest, waiting: Collection[str]) -> dict[str, tuple[int | None, str]]:
        """Return by waiting source how many ns it is ahead (None: the other has no timestamp yet), and of which source."""
        clocks = source_clocks(newest.frontiers, self.inputs, self.clocked)
        ahead = leads(clocks, waiting)
        return {name: ahead[name] for name in sorted(held_back(clocks, waiting, self.most))}


class Declaration(msgspec.Struct, frozen=True):
    """The declaration of the program of a job's newest run."""

    cells: tuple[DeclaredCell, ...] = ()
    cells_at: str | None = None
    """The URL that the program gives for its cells, without a login; None: the cells are stored with the state."""
    login: bool = False
    """Whether `cells_at` needs a login, which is not stored."""
    align: Alignment | None = None
    """None: sources do not wait for one another."""
    programs: tuple[tuple[str, str], ...] = ()
    """The tokens of the newest runs, each with the fingerprint of its program (`_engine.program_code`)."""

    def cell(self, job: str, name: str) -> DeclaredCell:
        """Return a declared cell; raise a `ConfigError` that lists the declared cells if there is no such cell."""
        for cell in self.cells:
            if cell.name == name:
                return cell
        names = ", ".join(cell.name for cell in self.cells)
        known = f"it declares {names}" if names else "it declares none: write job.cell(…) in its program"
        raise ConfigError(f"job {job!r} declares no cell {name!r}; {known}")


def place_of_job(store: Store, job: str, cells: str | None = None) -> JobPlace:
    """Return where a stored job and its cells are: with the state, or at `cells`.

    Raise `ConfigError` if the job's program keeps the cells elsewhere and `cells` is not given. The stored URL is not used:
    somebody with write access to the store could use it to get the user's credentials, or to write to any folder.
    """
    declared = declaration(store, job)
    stored = None if declared is None or declared.cells_at is None else Url(declared.cells_at)
    if cells is None and stored is not None and stored.scheme == "memory":
        return JobPlace(job, store.url, stored.reveal())  # In this process: neither a server nor a folder.
    if cells is None and declared is not None and stored is not None:
        shown = printable(str(stored))
        login = ", with its user and password" if declared.login else ""
        raise ConfigError(
            f"the cells of job {job!r} are not stored with its state: {PROGRAM} at {store.url} says that they are at {shown}. "
            "Tidewheel connects only to addresses that you give. If this one is right, add --cells "
            f"{shown}{login} (in Python: cells=…)"
        )
    return JobPlace(job, store.url, cells)


def declared_by(job: ProgramJob) -> Declaration:
    """Return the declaration of a program."""
    url = None if job.cells_at is None else Url(job.cells_at)
    login = url is not None and url.has_login
    shown = None if url is None else str(url) if login else url.reveal()
    return Declaration(tuple(map(_declared_cell, job.declared_cells)), shown, login, alignment(job))


def alignment(job: ProgramJob) -> Alignment | None:
    """Return how far a program lets one source be ahead of another."""
    if job.align is None:
        return None
    plan = job.plan()
    return Alignment(job.align, plan.clocked(), tuple(plan.inputs()))


def _declared_cell(cell: JobCell[Any]) -> DeclaredCell:
    default = msgspec.json.encode(cell.default, enc_hook=repr)
    return DeclaredCell(cell.name, type_name(cell.declared), msgspec.Raw(default), describe(cell.declared))


def declare(store: Store, job: ProgramJob, run: str) -> None:
    """Store the declaration of a program, and the token of the run that runs it."""
    try:
        before = declaration(store, job.name)
    except CorruptError:
        before = None
    programs = () if before is None else before.programs[-_RUNS:]
    plan = job.plan()
    own = fingerprint(plan)
    programs = (*(each for each in programs if each[0] != run), (run, own))
    if job.keeps_source:
        texts = {file: text for file in source_files(plan) if (text := _text(file)) is not None}
        store.write(_source_path(job.name, own), msgspec.json.encode(texts))
    store.write(_path(job.name), msgspec.json.encode(msgspec.structs.replace(declared_by(job), programs=programs)))


def source_of(store: Store, made: Manifest) -> dict[str, str]:
    """Return the source of the program that made a commit, by file. Raise `NotFound` if it is not stored."""
    job = made.id.stream_id
    known = declaration(store, job)
    program = None if known is None else dict(known.programs).get(made.run)
    try:
        if program is not None and _FINGERPRINT.fullmatch(program):
            return msgspec.json.decode(store.read(_source_path(job, program)), type=dict[str, str])
    except NotFound:
        pass
    except UNDECODABLE as error:
        raise CorruptError(f"the source of the program of commit {made.sequence} does not decode: {error}") from None
    raise NotFound(
        f"the source of the program that made commit {made.sequence} of job {job!r} is not stored: "
        'Job(keep_for_replay="1 day") stores it, from the next start on'
    )


def _source_path(job: str, program: str) -> str:
    return f"{folder(job)}/{PROGRAMS}/{program}.json"


def _text(file: str) -> str | None:
    """Return a source file; None if it is not there, as for functions that were typed into a notebook."""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError):
        return None


def check_program(store: Store, plan: Plan, made: Manifest) -> None:
    """Raise `ConfigError` if another program than this one made a commit, as far as that is known."""
    known = declaration(store, plan.job)
    was = None if known is None else dict(known.programs).get(made.run)
    now = fingerprint(plan)
    if was is not None and differs(was, now):
        raise ConfigError(
            f"another program made commit {made.sequence} of job {plan.job!r}: its fingerprint is {was}, and this program "
            f"has {now}. Use the program as it was at that time; or, to compare this one with it, say that it is changed "
            "(`tidewheel replay PROGRAM SEQ --program CHANGED`, `tidewheel explain --changed`, in Python changed=True)"
        )


def declaration(store: Store, job: str) -> Declaration | None:
    """Return the declaration of the program of a job's newest run; None if an older version ran the job last."""
    path = _path(job)
    try:
        return msgspec.json.decode(store.read(path), type=Declaration)
    except NotFound:
        return None
    except UNDECODABLE as error:
        raise CorruptError(
            f"{path} at {store.url} does not decode ({error}); remove it, the job's next start writes it again"
        ) from None


def _path(job: str) -> str:
    return f"{folder(job)}/{PROGRAM}"
