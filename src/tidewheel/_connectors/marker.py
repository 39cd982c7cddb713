"""The batch marker: what a place says it holds of one sink of one job, written in the transaction that writes the output."""

from __future__ import annotations

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._connectors.other_state import other_state
from tidewheel._connectors.sink import Publication
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError, StateError

_REMEMBERED = 64


class Outrun(Exception):
    """Another publication came first: the place is not as it was when it was looked at. Look again."""


class Marker(msgspec.Struct, frozen=True):
    """The newest published sequences, each with a digest of its tokens.

    A token names files that no other attempt has, so the digest tells a commit from that of another life of the job
    under the same number.
    """

    published: dict[int, int] = {}

    @property
    def sequence(self) -> int:
        """The newest sequence that is published; 0 if none is."""
        return max(self.published, default=0)

    def has(self, publication: Publication) -> bool:
        """Tell whether a publication is there already; refuse one that cannot be told apart from what is.

        A driver that was paused and overtaken asks for an older sequence, and is told that it is there. A job whose
        state was removed begins to count anew, below what the place holds: leaving its output out would lose it.
        """
        sequence = publication.sequence
        if sequence > self.sequence:
            return False
        if self.published.get(sequence) == digest(publication):
            return True
        raise StateError(
            f"sink {publication.sink!r}: sequence {sequence} of job {publication.job!r} is not what was published under this "
            f"number, and {self.sequence} is published already: {other_state(publication.job)}; or the run was overtaken long ago"
        )

    def after(self, publication: Publication) -> Marker:
        """Return the marker of a place that has this publication too."""
        newest = sorted(self.published)[-_REMEMBERED + 1 :]
        return Marker(
            {**{number: self.published[number] for number in newest}, publication.sequence: digest(publication)}
        )

    def encoded(self) -> bytes:
        """Return it as JSON: a person may have to read it."""
        return msgspec.json.encode(self)

    @staticmethod
    def decoded(data: bytes | str | None) -> Marker:
        """Return the marker that was encoded; None is the marker of a place that holds nothing."""
        try:
            return Marker() if data is None else msgspec.json.decode(data, type=Marker)
        except UNDECODABLE as error:
            raise CorruptError(
                f"what should be a sink's marker does not decode ({error}); something else wrote it"
            ) from None


def digest(publication: Publication) -> int:
    """Return a number that tells a publication from every other."""
    # Half of 64 bits, so that every JSON reader and every database column takes it.
    return int(xxh64_intdigest(b"\0".join(publication.tokens))) >> 1
