"""Sessions and many branches: jobs over flights of a month, which come out of order by up to a month.

    python -m benchmarks.many.run [--before COMMIT]

`map` is a `stateful_map` over dicts by aircraft, `carriers` and `aircraft` are windows of a day, `sessions` those of twelve hours
by aircraft, and `three` is `map`, `carriers` and `sessions` in one job. Batches have 28,000 records of nine columns, one of
them a timestamp with a zone. With `--before`, each job also runs with the source of that commit, from the same files.

The last line is one JSON object: `rows_s` is the speed of `three`, `sessions_s` that of `sessions`, both in records a second;
`rows_vs_before` and `sessions_vs_before` are the ratios to the commit.
"""
