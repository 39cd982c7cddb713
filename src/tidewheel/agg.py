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

from tidewheel._operators.aggregates.aggregator import Aggregator as Aggregator
from tidewheel._operators.aggregates.functions import all_ as all_
from tidewheel._operators.aggregates.functions import any_ as any_
from tidewheel._operators.aggregates.functions import approx_quantile as approx_quantile
from tidewheel._operators.aggregates.functions import collect as collect
from tidewheel._operators.aggregates.functions import count as count
from tidewheel._operators.aggregates.functions import count_distinct as count_distinct
from tidewheel._operators.aggregates.functions import first as first
from tidewheel._operators.aggregates.functions import last as last
from tidewheel._operators.aggregates.functions import max_ as max
from tidewheel._operators.aggregates.functions import mean as mean
from tidewheel._operators.aggregates.functions import min_ as min
from tidewheel._operators.aggregates.functions import of as of
from tidewheel._operators.aggregates.functions import stddev as stddev
from tidewheel._operators.aggregates.functions import sum_ as sum
from tidewheel._operators.aggregates.functions import top as top
from tidewheel._operators.aggregates.functions import variance as variance
from tidewheel._operators.aggregates.groups import Groups as Groups

__all__ = [
    "Aggregator",
    "Groups",
    "all_",
    "any_",
    "approx_quantile",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "of",
    "stddev",
    "sum",
    "top",
    "variance",
]
