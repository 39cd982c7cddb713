"""Measure the steps that enrich records.

`async_s`: records a second through `map_async` in one task, against a service on loopback that answers after 50 ms, fails
1 % of the requests and hangs at 0.1 % of them, with 100 calls in flight. The goal is at least 1,000; no more than 2,000 are
possible.

`distinct_vs_sum`, `quantile_vs_sum`, `top_vs_sum`: the speed of `count_distinct`, `approx_quantile` and `top(10)`, divided by the
speed of a `sum` over the same records, in one task: 1,000 keys, batches of 250,000 records, up to 1,000 different values for
each key. The goal is at least 0.5 for each.

`early_vs_none`: the speed of windows of an hour with a sum and `early="1 minute"`, divided by the speed of the same windows
without early results, over the same records, 1,000 for each second. The goal is at least 0.7.

`lookup_vs_none`: the speed of a job that sums the price of each order by user, divided by the speed of the same job without
the look-up of the price, in one task: batches of 250,000 records, a reference table of 1,000,000 rows. The goal is at least 0.7.
"""
