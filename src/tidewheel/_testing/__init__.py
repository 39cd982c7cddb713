"""Tools for tests of programs: runs without Spark, scripted sources, and the conformance suites."""
