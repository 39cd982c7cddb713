"""The queries that PySpark's own streaming can express in one query, with RocksDB state as recommended for it."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _bids(events: DataFrame) -> DataFrame:
    return events.where("kind = 2")


def _timed(events: DataFrame) -> DataFrame:
    at = F.timestamp_micros((F.col("time") / 1000).cast("long"))
    return _bids(events).withColumn("at", at).withWatermark("at", "0 seconds")


def q0(events: DataFrame) -> DataFrame:
    """Pass bids through."""
    return _bids(events).select("auction", "bidder", "price")


def q1(events: DataFrame) -> DataFrame:
    """Prices in another currency."""
    return _bids(events).select("auction", "bidder", F.expr("price * 908 div 1000").alias("price"))


def q2(events: DataFrame) -> DataFrame:
    """Bids on some auctions."""
    return _bids(events).where("auction % 123 = 0").select("auction", "price")


def q5(events: DataFrame) -> DataFrame:
    """The auction with the most bids: one of them where several have the same number, which is less than ours gives."""
    window = F.window("at", "10 seconds", "2 seconds")
    counted = _timed(events).groupBy(window, "auction").count()
    return counted.groupBy(F.window(F.window_time("window"), "2 seconds")).agg(
        F.max_by("auction", "count"), F.max("count")
    )


def q7(events: DataFrame) -> DataFrame:
    """The highest bid of every ten seconds."""
    return _timed(events).groupBy(F.window("at", "10 seconds")).agg(F.max("price"))


def q11(events: DataFrame) -> DataFrame:
    """How often each bidder bids in a session."""
    return _timed(events).groupBy(F.session_window("at", "10 seconds"), "bidder").count()


NATIVE: dict[str, Callable[[DataFrame], DataFrame]] = {query.__name__: query for query in (q0, q1, q2, q5, q7, q11)}
