"""Measure the time from the publication of a message until its result is visible, exactly once.

    python -m benchmarks.latency.run [--rate 50 --rate 1000] [--only nats] [--only kafka --only rtm]

A job reads a stream, decodes JSON, counts by user in a `stateful_map`, and sends the totals to a stream of the same system,
exactly once. It runs in its own process with two cores. Messages are sent at a constant rate, each with the time at which it
was sent, and a consumer that sees only committed messages records when each total arrives. In the same run: Spark's Real-Time
Mode, which counts by user from Kafka to Kafka in the JVM, at least once (`realtime.py`), and an empty `foreachBatch` over files
of 200 rows, on Spark with its default settings.

The last line is one JSON object. `nats_50_p50_ms` and similar keys are the figures; `…_behind` is how many messages had no
result when the last one was sent, `…_late_ms` and `…_stored_p99_ms` show whether the sender and the server kept up.
`p50_vs_empty` and `p99_vs_empty` compare NATS at 50 messages a second with the median batch of the empty `foreachBatch`;
`kafka_1000_p50_vs_rtm` and `kafka_1000_p99_vs_rtm` compare with Real-Time Mode.
"""
