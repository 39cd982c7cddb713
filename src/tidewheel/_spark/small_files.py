"""Write the small files of a streaming query's batches without starting a process for each.

On a local disk Hadoop sets a file's permissions, and looks through links, by running `chmod` and `readlink`: about ten
processes a batch, half of what an empty batch takes. Spark's folder is a cache that one run writes, so it needs neither
links nor checksum files, and the one remaining `chmod` for each file starts in the quickest way.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_NEWEST_WITH_VFORK = 23


def java_option(version: int) -> str:
    """Return the Java option that makes starting a process cheap; later versions warn of it, and do without.

    >>> java_option(17), java_option(25)
    ('-Djdk.lang.Process.launchMechanism=VFORK', '')
    """
    return "-Djdk.lang.Process.launchMechanism=VFORK" if version <= _NEWEST_WITH_VFORK else ""


def write_plainly(spark: SparkSession) -> None:
    """Make this Spark write local files without checksum files. Existing checksum files are still checked.

    It is a setting of the whole process: only for a Spark that was started for the run.
    """
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    assert context is not None
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration()).setWriteChecksum(False)


def rename_plainly(session: SparkSession) -> None:
    """Have the session's queries write their folder by plain renames, which look through no links."""
    jvm = session._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(_MANAGER)
    except Py4JJavaError:
        return  # Another version of Spark has it elsewhere; its default is correct, but slower.
    session.conf.set("spark.sql.streaming.checkpointFileManagerClass", _MANAGER)
