"""Measure programs that take whole records, compared with the same program over one column.

`python -m benchmarks.records.run` runs every program in its own process, one after the other, then Bytewax and
`transformWithState` on the same records, and ends with one JSON line.
"""
