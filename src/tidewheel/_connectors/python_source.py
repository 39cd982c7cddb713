"""The way of a stream reader into Spark: a data source of its own, with the reader inside."""

from __future__ import annotations

import secrets

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidewheel._core import pickling


def loaded(spark: SparkSession, kind: str, reader: DataSourceStreamReader, columns: StructType) -> DataFrame:
    """Return the streaming DataFrame of a reader.

    The reader travels inside of the data source's class: options of a data source are shown in plans and in Spark's
    pages, and a reader's settings may hold passwords.
    """
    name, travelling = f"tidewheel-{kind}-{secrets.token_hex(4)}", pickling.dumps(reader)

    class Travelling(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            reader: DataSourceStreamReader = pickling.loads(travelling)
            return reader

    spark.dataSource.register(Travelling)
    return spark.readStream.format(name).load()
