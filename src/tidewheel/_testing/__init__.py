"""What programs are tested with: runs without Spark, scripted sources, and the conformance suites."""
