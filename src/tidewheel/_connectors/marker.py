"""The marker of a sink: which commits its output includes, written in the same transaction as the output."""

from __future__ import annotations

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._connectors.other_state import other_state
from tidewheel._connectors.sink import Publication
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError, StateError

_REMEMBERED = 64


class Outrun(Exception):
    """Another publication came first, so the marker has changed. Read it again."""


class Marker(msgspec.Struct, frozen=True):
    """The newest published sequences, each with a digest of its tokens.

    A token names files that no other attempt has. So the digest distinguishes a commit from one with the same number that
    the job made before its state was deleted.
    """

    published: dict[int, int] = {}

    @property
    def sequence(self) -> int:
        """The newest published sequence; 0 if there is none."""
        return max(self.published, default=0)

    def has(self, publication: Publication) -> bool:
        """Return whether a publication is already included; raise an error if it conflicts with what was published.

        A driver that was paused and replaced asks for an older sequence, and the answer is yes. A job whose state was
        deleted starts again with low sequences: skipping its output as already published would lose it.
        """
        sequence = publication.sequence
        if sequence > self.sequence:
            return False
        if self.published.get(sequence) == digest(publication):
            return True
        raise StateError(
            f"sink {publication.sink!r}: sequence {sequence} of job {publication.job!r} differs from what was "
            "published under this "
            f"number, and {self.sequence} is already published: {other_state(publication.job)}; or another run "
            "replaced this one long ago"
        )

    def after(self, publication: Publication) -> Marker:
        """Return the marker that also includes this publication."""
        newest = sorted(self.published)[-_REMEMBERED + 1 :]
        return Marker(
            {**{number: self.published[number] for number in newest}, publication.sequence: digest(publication)}
        )

    def encoded(self) -> bytes:
        """Return it as JSON, which people can read."""
        return msgspec.json.encode(self)

    @staticmethod
    def decoded(data: bytes | str | None) -> Marker:
        """Decode a marker; None gives the empty marker."""
        try:
            return Marker() if data is None else msgspec.json.decode(data, type=Marker)
        except UNDECODABLE as error:
            raise CorruptError(
                f"the marker of a sink does not decode ({error}); another program has overwritten it"
            ) from None


def digest(publication: Publication) -> int:
    """Return a number that identifies a publication."""
    # 32 bits, so that every JSON reader and every integer column of a database can hold it.
    return int(xxh64_intdigest(b"\0".join(publication.tokens))) >> 1
