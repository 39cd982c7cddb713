"""Aggregators with sketches of Apache DataSketches: approximate counts of distinct values, approximate quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tidewheel._operators.aggregates.aggregator import Aggregator
from tidewheel._operators.aggregates.groups import Groups
from tidewheel._operators.aggregates.lists import Distinct
from tidewheel.errors import GraphError

_LG_K = 12
"""The sketch of distinct values has up to 2**12 registers of a byte: a relative error of about 1.6 % (one sigma)."""
_COMPRESSION = 200
"""How many centroids a digest has, about."""


def datasketches() -> Any:
    """Return the package with the sketches; raise a `GraphError` that says how to install it."""
    try:
        import datasketches
    except ImportError:
        raise GraphError(
            "approximate aggregates need the package datasketches; install it with pip install 'tidewheel[sketches]'"
        ) from None
    return datasketches


class ApproximateDistinct(Aggregator):
    """About how many different values there are, by HyperLogLog; up to a few hundred it is exact."""

    name = "hll"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        states = Distinct().fold(groups, columns[0])
        values, ends = _hashable(states.flatten()), states.offsets.to_pylist()
        sketches = datasketches()
        made = []
        for begin, end in pairwise(ends):
            sketch = sketches.hll_sketch(_LG_K)
            for value in values[begin:end]:
                sketch.update(value)
            made.append(sketch.serialize_compact())
        return pa.array(made, pa.binary())

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        sketches = datasketches()

        def merged(parts: list[bytes]) -> bytes:
            union = sketches.hll_union(_LG_K)
            for part in parts:
                union.update(sketches.hll_sketch.deserialize(part))
            whole: bytes = union.get_result().serialize_compact()
            return whole

        return _merged(groups, states, merged)

    def result(self, states: pa.Array) -> pa.Array:
        read = datasketches().hll_sketch.deserialize
        return pa.array([round(read(state).get_estimate()) for state in states.to_pylist()], pa.int64())

    def results(self, states: pa.Array) -> pa.Array:
        """Return 0 for a group without values."""
        return super().results(states).cast(pa.int64()).fill_null(0)


@dataclass(frozen=True)
class ApproximateQuantile(Aggregator):
    """About the value below which a share of the values is, by a t-digest, whose result depends on no chance."""

    share: float
    name = "tdigest"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        values = columns[0].cast(pa.float64(), safe=False).to_numpy()[groups.order]
        sketches, starts = datasketches(), groups.starts.tolist()
        made = []
        for begin, end in zip(starts, [*starts[1:], len(values)], strict=True):
            digest = sketches.tdigest_double(_COMPRESSION)
            digest.update(values[begin:end])
            made.append(digest.serialize())
        return pa.array(made, pa.binary())

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        read = datasketches().tdigest_double.deserialize

        def merged(parts: list[bytes]) -> bytes:
            digest, *others = map(read, parts)
            for other in others:
                digest.merge(other)
            whole: bytes = digest.serialize()
            return whole

        return _merged(groups, states, merged)

    def result(self, states: pa.Array) -> pa.Array:
        digests = map(datasketches().tdigest_double.deserialize, states.to_pylist())
        # A digest does not count NaN, so that of a group with nothing else is empty.
        return pa.array([None if each.is_empty() else each.get_quantile(self.share) for each in digests], pa.float64())


def _merged(groups: Groups, states: pa.Array, merged: Any) -> pa.Array:
    parts = groups.lists(states)
    return pa.array([each[0] if len(each) == 1 else merged(each) for each in parts.to_pylist()], pa.binary())


def _hashable(values: pa.Array) -> list[Any]:
    """Convert values for the sketch: numbers and text stay, other values become text."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.to_numpy().tolist()  # type: ignore[no-any-return]
    # The sketch ignores the empty text.
    return [f"={value}" for value in values.to_pylist()]
