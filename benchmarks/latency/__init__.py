"""How long a message takes from its publication to the moment at which its result is visible, exactly once.

    python -m benchmarks.latency.run [--rate 50 --rate 1000] [--only nats]

A job reads a stream, decodes JSON, counts by user in a `stateful_map`, and sends the totals to a stream of the same system,
exactly once. It runs in a process of its own with two cores; messages are sent at an even rate, each with the time at which it
was sent, and a consumer that sees committed messages alone notes when each total arrives. Beside them, in the same run, a
`foreachBatch` that does nothing, over files of 200 rows, with Spark as it is shipped.

The last line is one JSON object. `nats_50_p50_ms` and so on are the figures; `p50_ms`, `p99_ms`, `p50_vs_empty` and
`p99_vs_empty` are those of NATS with 50 messages a second, the ratios being to the median batch of the empty `foreachBatch`.
"""
