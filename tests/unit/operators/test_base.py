"""Common behaviour of steps: one call per value, and the annotations of functions."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._operators.annotations import hints, item_of, parameter, returned
from tidewheel._operators.base import each, without
from tidewheel._values import SCALAR, Batch


class Context:
    """Keeps what is rejected."""

    def __init__(self) -> None:
        self.rejected: list[tuple[int, str]] = []

    def reject(self, error: Exception, batch: Batch, position: int) -> None:
        self.rejected.append((position, type(error).__name__))


@given(st.lists(st.sampled_from(["fine", "raise", "stop"])))
def test_every_value_is_handled_once_or_rejected_at_its_position(values):
    seen: list[int] = []

    def function(at: int) -> int:
        seen.append(at)
        if values[at] == "raise":
            raise ValueError(at)
        return next(iter([at] if values[at] == "fine" else []))

    context, batch = Context(), Batch(SCALAR, values=list(range(len(values))))
    results, rejected = each(context, batch, function)
    assert seen == list(range(len(values)))
    assert results == [at for at, kind in enumerate(values) if kind == "fine"]
    assert rejected == [at for at, kind in enumerate(values) if kind != "fine"]
    assert context.rejected == [
        (at, "ValueError" if kind == "raise" else "StepError") for at, kind in enumerate(values) if kind != "fine"
    ]
    assert without(batch, rejected).values == results


def test_annotations_are_read_where_there_are_any():
    def annotated(key: str, value: int, state: dict[str, int]) -> list[int]: ...

    def unresolved(value: Missing) -> Missing: ...  # noqa: F821

    assert returned(annotated) == list[int]
    assert item_of(list[int]) is int
    assert item_of(Iterable[str]) is str
    assert item_of(dict[str, int]) is None
    assert item_of(int) is None
    assert parameter(annotated, 2) == dict[str, int]
    assert parameter(annotated, 3) is None
    assert parameter(lambda key, value: None, 1) is None
    assert parameter(len, 5) is None
    assert hints(unresolved) == {}
