"""Pins: protect files that no kept checkpoint may refer to any more.

A savepoint, a fork, an adopter and a long reader each hold a pin, as `pins/<name>.pin` in the folder of the job whose
files they need. Every pin lists those files. A savepoint also contains the whole manifest, so that it outlives its
record in the chain.

To pin a kept checkpoint, create the pin first and then check that the checkpoint is still kept; the collector reads the
chain first and the pins after it. So the collector finds either the checkpoint or the pin.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from tidewheel._checkpoint.encoding import decode, encode
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import PINS
from tidewheel._checkpoint.pages import LoadPage
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.references import Count, FileName
from tidewheel._storage import Store
from tidewheel.errors import ConfigError, CorruptError, NotFound, StateError

PinKind = Literal["savepoint", "fork", "reader", "adopter"]

MAGIC = b"TIDEWPIN"
VERSION = 1

_NAME = re.compile(r"\A[A-Za-z0-9_][A-Za-z0-9_.=-]{0,199}\Z")
_SUFFIX = ".pin"


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pin on a job's files. Times are nanoseconds since the Unix epoch."""

    name: Annotated[str, msgspec.Meta(pattern=_NAME.pattern)]
    kind: PinKind
    sequence: Count
    files: tuple[FileName, ...]
    """The names of the pinned files. Files of other jobs are listed too, but pins in those jobs protect them."""
    manifest: bytes | None = None
    """The encoded checkpoint itself."""
    expires_at: int | None = None
    holder: str = ""
    """The holder, for information: a job, a host and process."""

    def holds(self, now: int) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at

    def state(self, load_page: LoadPage | None = None) -> Manifest:
        """Return the copy of the checkpoint in the pin; `load_page` reads the pages of the pin's job."""
        if self.manifest is None:
            raise StateError(f"the {self.kind} pin {self.name!r} has no copy of checkpoint {self.sequence}")
        return decode(self.manifest, where=f"in the pin {self.name!r}", load_page=load_page)


def pin(
    name: str,
    kind: PinKind,
    state: Manifest,
    *,
    copy: bool = False,
    expires_at: int | None = None,
    holder: str = "",
) -> Pin:
    """Return a pin on all files that a checkpoint references.

    A savepoint always contains a copy of the checkpoint, other pins only with `copy`.
    """
    check_name(name)
    return Pin(
        name=name,
        kind=kind,
        sequence=state.sequence,
        files=tuple(sorted(state.needed_names())),
        manifest=encode(state) if copy or kind == "savepoint" else None,
        expires_at=expires_at,
        holder=holder,
    )


def check_name(name: str) -> str:
    """Return the name; raise if it is not a valid file name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a savepoint or pin: use 1 to 200 letters, digits and _ . = -, "
            "the first a letter, a digit or _"
        )
    return name


class Pins:
    """The pins of one job, in its folder."""

    def __init__(self, folder: Store) -> None:
        self._store = folder

    def create(self, pin: Pin) -> None:
        """Store a pin; raise `StateError` if there is another pin of that name. Storing the same pin again is allowed."""
        if not self._store.create(_path(pin.name), _encode(pin)):
            raise StateError(
                f"there is already a pin {pin.name!r} at {self._store.url}; choose another name or drop that one first"
            )

    def renew(self, pin: Pin) -> None:
        """Replace the pin of the same name, for example to extend a reader's expiry."""
        self._store.write(_path(pin.name), _encode(pin))

    def read(self, name: str) -> Pin:
        """Return the pin of that name; raise `NotFound` if there is none."""
        return self._read(_path(check_name(name)))

    def drop(self, name: str) -> None:
        """Delete a pin, if it exists."""
        self._store.delete(_path(check_name(name)))

    def all(self) -> list[Pin]:
        """Return every pin, sorted by name. Raise if one does not decode, because the files it protects are unknown."""
        while True:
            paths = [entry.path for entry in self._store.list(PINS) if entry.path.endswith(_SUFFIX)]
            try:
                return [self._read(path) for path in paths]
            except NotFound:
                # The pin was dropped after the listing. Another pin that was copied from it, with the same files, may
                # be missing in the listing too: list again.
                continue

    def _read(self, path: str) -> Pin:
        return _decode(self._store.read(path), f"pin {path} at {self._store.url}")


def _path(name: str) -> str:
    return f"{PINS}/{name}{_SUFFIX}"


def _encode(pin: Pin) -> bytes:
    return seal(MAGIC, VERSION, msgspec.msgpack.encode(pin))


def _decode(data: bytes, what: str) -> Pin:
    _, body = unseal(MAGIC, VERSION, data, what)
    try:
        return msgspec.msgpack.decode(body, type=Pin)
    except UNDECODABLE as error:
        raise CorruptError(f"{what}: its body does not decode ({error}); it was not written by this format") from None
