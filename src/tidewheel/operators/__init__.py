"""One operator per file: its description in the graph, and its work in a task."""

from tidewheel.operators.aggregates import count, max_, mean, min_, sum_

__all__ = ["count", "max_", "mean", "min_", "sum_"]
