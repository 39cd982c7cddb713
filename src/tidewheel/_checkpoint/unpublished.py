"""What a commit still owes the outside: output that may not be published yet, output that must be taken back.

Both travel in the metadata from commit to commit until a run has done them. A batch or a flush begins with nothing owed:
whoever commits one has published and taken back everything before.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidewheel._checkpoint.manifest import Manifest

OUTPUTS_OF = "outputs-of"
_RETRACT = "retract"
_RETRACTED = "retracted"


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The sequences above `after` and below `before`."""

    after: int
    before: int

    def __contains__(self, sequence: int) -> bool:
        return self.after < sequence < self.before


def outputs_of(state: Manifest) -> int:
    """Return the sequence under which a manifest's output is published: one that is no batch carries that of an earlier one."""
    return state.sequence if _computed(state) else int(state.metadata.get(OUTPUTS_OF, state.sequence))


def carrying(metadata: Mapping[str, str], base: Manifest) -> dict[str, str]:
    """Return the metadata of a commit that carries on the output of `base`."""
    return {**metadata, OUTPUTS_OF: str(outputs_of(base))}


def to_retract(state: Manifest) -> Span | None:
    """Return whose published output a restore has made void and nobody may have taken back yet."""
    text = state.metadata.get(_RETRACT)
    return None if text is None else _span(text)


def retracted(state: Manifest) -> list[Span]:
    """Return the sequences whose output may be gone: a run has been told to take it back."""
    spans = [_span(text) for text in state.metadata.get(_RETRACTED, "").split(",") if text]
    # Only a run takes output back, and it claims the job first.
    return spans if state.kind == "restore" else spans + [span for span in [to_retract(state)] if span is not None]


def with_retraction(metadata: Mapping[str, str], newest: Manifest, span: Span | None) -> dict[str, str]:
    """Return the metadata of a restore that follows `newest`, goes back to `metadata`, and voids `span`'s output."""
    kept = {name: value for name, value in metadata.items() if name not in (_RETRACT, _RETRACTED, OUTPUTS_OF)}
    gone = ",".join(map(_text, retracted(newest)))
    if gone:
        kept[_RETRACTED] = gone
    if span is not None:
        kept[_RETRACT] = _text(span)
    return kept


def settled(state: Manifest) -> dict[str, str]:
    """Return the metadata of a batch that follows: what was to be taken back is taken back."""
    gone = ",".join(map(_text, retracted(state)))
    kept = {name: value for name, value in state.metadata.items() if name not in (_RETRACT, OUTPUTS_OF)}
    return {**kept, _RETRACTED: gone} if gone else kept


def _computed(state: Manifest) -> bool:
    return state.kind in ("batch", "flush")


def _text(span: Span) -> str:
    return f"{span.after}-{span.before}"


def _span(text: str) -> Span:
    after, _, before = text.partition("-")
    return Span(int(after), int(before))
