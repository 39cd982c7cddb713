"""Use any streaming DataFrame of Spark as a source, with joins and functions of Spark SQL before the first step.

tidewheel run examples/spark_dataframe.py --until caught-up
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"


def orders_with_names(spark: SparkSession) -> DataFrame:
    """Return the orders, joined with a table of products."""
    products = spark.read.option("header", True).csv(f"{DATA}/prices")
    orders = spark.readStream.schema("user string, product string, cents long").json(f"{DATA}/orders")
    return orders.join(products, "product").select("user", "name", "cents")


def most_expensive(user: str, order: dict, best: dict) -> tuple[dict, dict]:
    """Return the most expensive order of a user so far."""
    best = max(best, {"name": order["name"], "cents": order["cents"]}, key=lambda order: order["cents"])
    return best, best


job = Job("spark-dataframe")
orders = job.source("orders", sources.dataframe(orders_with_names), type=dict)
best = orders.key_by("by-user", "user").stateful_map("best", most_expensive, default={"name": "", "cents": 0})
best.sink("out", sinks.files("out/best", format="json"))
