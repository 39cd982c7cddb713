"""The queries that PySpark's streaming can express as one query, with RocksDB state."""

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
    """Find the auction with the most bids. Unlike Tidewheel's query, it returns only one of several equal auctions."""
    window = F.window("at", "10 seconds", "2 seconds")
    counted = _timed(events).groupBy(window, "auction").count()
    return counted.groupBy(F.window(F.window_time("window"), "2 seconds")).agg(
        F.max_by("auction", "count"), F.max("count")
    )


def q7(events: DataFrame) -> DataFrame:
    """Find the highest bid of every ten seconds."""
    return _timed(events).groupBy(F.window("at", "10 seconds")).agg(F.max("price"))


def q11(events: DataFrame) -> DataFrame:
    """Count the bids of each bidder in a session."""
    return _timed(events).groupBy(F.session_window("at", "10 seconds"), "bidder").count()


def q13(events: DataFrame) -> DataFrame:
    """Bids with a column of a small table."""
    rows = [(n, f"side {n}") for n in range(1000)]
    side = events.sparkSession.createDataFrame(rows, "side long, label string")
    return _bids(events).withColumn("side", F.col("auction") % 1000).join(F.broadcast(side), "side")


def q14(events: DataFrame) -> DataFrame:
    """Bids of some prices in another currency, with the part of the day and a function of the user."""
    zeros = F.udf(lambda auction: str(auction).count("0"), "long")
    hour = F.expr("time % 86400000000000 div 3600000000000")
    part = F.when(hour.between(8, 18), "day").when((hour <= 6) | (hour >= 20), "night").otherwise("other")
    some = _bids(events).withColumn("price", F.expr("price * 908 div 1000")).where("price > 1000 and price < 50000")
    return some.select("auction", "bidder", "price", part.alias("part"), zeros("auction").alias("zeros"))


def q17(events: DataFrame) -> DataFrame:
    """The bids of each auction and day, so far."""
    ranks = [
        F.count_if(F.expr(where)) for where in ("price < 10000", "price between 10000 and 49999", "price >= 50000")
    ]
    prices = [F.min("price"), F.max("price"), F.avg("price"), F.sum("price")]
    return _bids(events).groupBy(F.expr("time div 86400000000000"), "auction").agg(F.count("*"), *ranks, *prices)


def q20(events: DataFrame) -> DataFrame:
    """Bids on auctions of category 10, with these auctions."""
    auctions = events.where("kind = 1 and category = 10").select(F.col("id").alias("auction"), "seller", "expires")
    return _bids(events).select("auction", "bidder", "price").join(auctions, "auction")


UPDATED = ("q17",)
"""Queries whose results are replaced by later ones."""
NATIVE: dict[str, Callable[[DataFrame], DataFrame]] = {
    query.__name__: query for query in (q0, q1, q2, q5, q7, q11, q13, q14, q17, q20)
}
