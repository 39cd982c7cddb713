"""The state benchmark: a keyed running sum, by Tidewheel and by those it is compared with.

`python -m benchmarks.state.run` runs every contender in a process of its own, one after the other, and
ends with one JSON line. Each contender is a module here that can also be run alone.
"""
