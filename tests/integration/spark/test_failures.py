"""The messages for errors that came through the JVM."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._spark import driver
from tidewheel._spark.failures import (
    disk_full,
    lost_executor,
    start_failure,
    summary_line,
    worker_crashed,
    worker_start_timed_out,
)
from tidewheel.errors import TidewheelError

SOURCE = """[STREAM_FAILED] Query [id = eb95-1, runId = da3e-2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "/lib/python_streaming_source_runner.py", line 269, in main
  File "/program.py", line 11, in latestOffset
    raise ConfigError("topic 'x' is not there")
tidewheel.errors.ConfigError: topic 'x' is not there;
create it
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = eb95-1, runId = da3e-2]
"""

TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times (TID 1): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/first.py", line 1, in inner
KeyError: 'user'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/second.py", line 2, in outer
zlib.error: Error -3 while decompressing
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_of_a_failed_python_source_its_own_words_on_one_line():
    assert summary_line(Exception(SOURCE)) == "topic 'x' is not there; create it"


def test_of_several_exceptions_the_last_with_its_name_where_it_is_not_ours():
    assert summary_line(Exception(TASK)) == "zlib.error: Error -3 while decompressing"


def test_a_spark_error_is_shortened_to_its_first_meaningful_line():
    wrapped = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: No space left SQLSTATE: XXKST\n=== Streaming"
    assert summary_line(Exception(wrapped)) == "No space left"


def test_a_start_that_failed_has_a_reason_of_one_line():
    stopped = (
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was"
    )
    assert start_failure(Exception(stopped)).startswith("no master has answered there; start it")
    nested = (
        "KubernetesClientException: An error has occurred.\n\tat io.fabric8\nCaused by: java.io.IOException: refused\n"
    )
    assert start_failure(Exception(nested)) == "refused"


def test_a_spark_error_at_the_start_shows_its_deepest_cause(spark, tmp_path, monkeypatch):
    def fails(spark, plan):
        raise PySparkException(
            "Job aborted\n\tat org.apache\nCaused by: java.io.IOException: no host answers\n\tat org.apache"
        )

    monkeypatch.setattr(driver, "check_hosts", fails)
    job = Job("odd", state=f"file://{tmp_path}")
    job.source("in", sources.iterable([1])).sink("out", sinks.collect())
    with pytest.raises(TidewheelError, match=r"^the start of job 'odd' failed: no host answers$"):
        job.run(until="caught-up", options=RunOptions(spark=spark))


def test_of_an_error_without_words_its_name():
    assert summary_line(ValueError()) == "ValueError"


def test_of_a_traceback_that_is_cut_off_nothing_is_made_up():
    assert (
        summary_line(Exception("gone: Traceback (most recent call last):"))
        == "gone: Traceback (most recent call last):"
    )


def test_of_an_error_that_a_java_process_was_to_explain_which_has_ended():
    class Gone(Exception):
        def __str__(self):
            raise ConnectionRefusedError

    assert summary_line(Gone()) == "Spark's JVM has ended"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Job aborted: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", lost_executor),
        ("ResultStage 9 (collect) has failed the maximum allowable number of times: 1.", lost_executor),
        ("ShuffleMapStage 3 (name=c) has been resubmitted for the maximum allowable number of times: 1", lost_executor),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider", worker_crashed),
        ("terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST", worker_start_timed_out),
        ("java.io.IOException: No space left on device", disk_full),
        ("lmdb.MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached", disk_full),
        ("OSError: [Errno 122] Disk quota exceeded: '/x'", disk_full),
        ("KeyError: 'user'", None),
    ],
)
def test_a_failure_is_reported_with_the_text_of_the_error(text, kind):
    assert [
        each for each in (lost_executor, worker_crashed, worker_start_timed_out, disk_full) if each(Exception(text))
    ] == ([kind] if kind else [])


NOT_PARQUET = """An error occurred while calling o142.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///clicks/a.json.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors(x.scala:2)
Caused by: java.lang.RuntimeException: {cause}
\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:3)
\t... 20 more
"""


def test_of_an_error_in_the_jvm_the_deepest_cause_in_its_own_words():
    error = Exception(NOT_PARQUET.replace("{cause}", "file:/clicks/a.json is not a Parquet file"))
    assert summary_line(error) == "file:/clicks/a.json is not a Parquet file"


def test_a_cause_that_does_not_name_the_file_that_was_read_gets_its_name():
    error = Exception(NOT_PARQUET.replace("{cause}", "unexpected end"))
    assert summary_line(error) == "file:///clicks/a.json: unexpected end"


def test_a_jvm_error_without_causes_shows_the_text_after_the_call():
    text = "An error occurred while calling o7.load.\n: org.apache.spark.SparkException: the table is gone\n\tat x.y(z.scala)"
    assert summary_line(Exception(text)) == "the table is gone"
    named = text.replace(
        "org.apache.spark.SparkException: the table is gone", "java.net.UnknownHostException: broker-1"
    )
    assert summary_line(Exception(named)) == "UnknownHostException: broker-1"
