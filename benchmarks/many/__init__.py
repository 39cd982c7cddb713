"""Measure sessions and several branches: jobs over the flights of a month, which are out of order by up to a month.

    python -m benchmarks.many.run [--before COMMIT]

`map` is a `stateful_map` over dicts by aircraft, `carriers` and `aircraft` are windows of a day, `sessions` are sessions of
twelve hours by aircraft, and `three` is `map`, `carriers` and `sessions` in one job. Batches have 28,000 records with nine
columns, one of them a timestamp with a zone. With `--before`, the jobs of that commit also run with its source, over the same
files.

The last line is one JSON object: `rows_s` is the speed of `three`, `sessions_s` the speed of `sessions`, both in records a
second; `rows_vs_before` and `sessions_vs_before` are the ratios to the commit.
"""
