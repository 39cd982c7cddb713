"""Measure a keyed running sum in Tidewheel and in the systems that it is compared with.

`python -m benchmarks.state.run` runs every contender in its own process, one after the other, and ends with one JSON line.
Each contender is a module of this package and can also run alone.
"""
