"""Aggregators of the spread of numbers: variance and stddev."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.aggregator import Aggregator
from tidewheel._operators.aggregates.groups import Groups


@dataclass(frozen=True)
class Spread(Aggregator):
    """Variance or standard deviation. The state is the count, the mean, and the sum of squared distances from it.

    States are merged as by Chan, Golub and LeVeque: no difference of large sums loses digits.
    """

    root: bool
    population: bool
    name = "moments"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        values = columns[0].cast(pa.float64(), safe=False).to_numpy()
        nothing = np.zeros(len(values))
        return self._merged(groups, np.ones(len(values)), values, nothing)

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return self._merged(groups, *(states.field(name).to_numpy() for name in ("n", "mean", "m2")))

    def _merged(self, groups: Groups, n: Any, mean: Any, m2: Any) -> pa.Array:
        def total(values: Any) -> Any:
            return np.bincount(groups.index, values, groups.count)

        counts = total(n)
        # Distances from one value of the group, which keeps the sum small.
        origin = mean[groups.first_rows]
        means = origin + total(n * (mean - origin[groups.index])) / counts
        squares = total(m2) + total(n * (mean - means[groups.index]) ** 2)
        names = ["n", "mean", "m2"]
        return pa.StructArray.from_arrays(
            [pa.array(counts.astype(np.int64)), pa.array(means), pa.array(squares)], names
        )

    def result(self, states: pa.Array) -> pa.Array:
        n = states.field("n").to_numpy() - (0 if self.population else 1)
        variance = states.field("m2").to_numpy() / np.maximum(n, 1)
        return pa.array(np.sqrt(variance) if self.root else variance, mask=n < 1)
