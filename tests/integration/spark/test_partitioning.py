"""Rows go to the partition that a column names, with `repartitionById` and without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tidewheel._spark import partitioning
from tidewheel._spark.partitioning import landing_numbers, partitioned, spark_hash


@given(st.integers(1, 300))
def test_each_partition_has_a_number_that_lands_on_it(parallelism):
    numbers = landing_numbers(parallelism)
    assert [spark_hash(number) % parallelism for number in numbers] == list(range(parallelism))


def test_the_hash_is_spark_s_own(spark):
    numbers = [0, 1, 7, 1000, 2**31 - 1]
    rows = spark.createDataFrame([(number,) for number in numbers], "number int").select(F.hash("number")).collect()
    assert [row[0] for row in rows] == [spark_hash(number) for number in numbers]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_row_is_where_its_target_says(spark, monkeypatch, by_id):
    if by_id and not partitioning._HAS_IDS:
        pytest.skip("this Spark has no repartitionById")
    monkeypatch.setattr(partitioning, "_HAS_IDS", by_id)
    frame = spark.range(50).select((F.col("id") % 7).cast("int").alias("target"))
    rows = partitioned(frame, 7).withColumn("partition", F.spark_partition_id()).collect()
    assert len(rows) == 50
    assert all(row.target == row.partition for row in rows)
