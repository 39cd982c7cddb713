"""Aggregates of columns for `aggregate` and `window`, under their plain names.

>>> from tidewheel import Job, agg, sinks, sources
>>> from tidewheel.testing import run_in_memory
>>> job = Job("totals")
>>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}, {"user": "ada", "cents": 50}]))
>>> totals = orders.key_by("by-user", "user").aggregate("totals", spent=agg.sum("cents"), largest=agg.max("cents"))
>>> _ = totals.sink("out", sinks.collect())
>>> run_in_memory(job).outputs["out"]
[{'user': 'ada', 'spent': 300, 'largest': 250}]
"""

from tidewheel._operators.aggregates.functions import count as count
from tidewheel._operators.aggregates.functions import max_ as max
from tidewheel._operators.aggregates.functions import mean as mean
from tidewheel._operators.aggregates.functions import min_ as min
from tidewheel._operators.aggregates.functions import sum_ as sum

__all__ = ["count", "max", "mean", "min", "sum"]
