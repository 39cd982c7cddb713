"""The records benchmark: programs that take whole records, beside the same program over one column.

`python -m benchmarks.records.run` runs every program in a process of its own, one after the other, beside Bytewax and
`transformWithState` on the same records, and ends with one JSON line.
"""
