"""Kafka to lakes: one job that appends to a Delta table, merges into another, and appends to an Iceberg table.

It is killed while it publishes and at random, with the servers of the topic, the store and the catalog. The tables hold exactly
the expected rows, and readers that look all the while never see anything else than a part of them.
"""

from __future__ import annotations

import json

import pytest

from chaos import readers
from chaos.pairs import Pair, survives_all
from chaos.pairs_program import REMOVED_BITS
from servers.iceberg_rest import iceberg_rest  # noqa: F401
from tidewheel._connectors.delta.table import TableLocation

TABLE = "pairs.numbered"


class KafkaToLakes(Pair):
    # It is not killed at each fault point: the conformance tests of the sinks do that.
    sinks = ("sink", "catalog")

    def __init__(self, *arguments, catalog, store=None, rest=None) -> None:
        super().__init__(*arguments)
        self.catalog, self.store, self.rest = catalog, store, rest

    def url(self, table: str) -> str:
        return f"{self.folder}/{table}" if self.store is None else self.store.url(f"{self.folder.name}-{table}")

    def target(self):
        catalog = json.dumps(self.catalog)
        return {"pair": "lakes", "target": self.url("appended"), "merged": self.url("merged"), "catalog": catalog}

    def delta(self, table: str):
        from deltalake import DeltaTable

        place, options = TableLocation(self.url(table)).resolved()
        return DeltaTable(place, storage_options=options).to_pyarrow_table()

    def iceberg(self):
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.catalog).load_table(TABLE).scan().to_arrow()

    def numbered(self):
        return _numbered(self.delta("appended"))

    def check_totals(self, counts, totals):
        assert sorted(_numbered(self.iceberg())) == sorted(self.numbered())
        current = {user: (counts[user], totals[user]) for user in counts if counts[user] & REMOVED_BITS}
        assert {user: (n, total) for user, n, total in _numbered(self.delta("merged"))} == current

    def reader(self, expected):
        tables = (lambda: self.delta("appended"), self.iceberg)
        return readers.lakes_reader(tables, lambda: self.delta("merged"), expected)

    @property
    def servers(self):
        return {"source": self.broker, "sink": self.store, "catalog": self.rest}


def _numbered(found):
    return list(zip(*(found[name].to_pylist() for name in ("user", "n", "total")), strict=True))


def test_kafka_to_lakes_small(tmp_path, kafka):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    pair = KafkaToLakes(tmp_path / "lakes", kafka, 600, 100, catalog=catalog)
    pair.killed_at("iceberg.added", 2)
    pair.ends()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kafka_to_lakes(tmp_path, durable_kafka, mortal_seaweedfs, iceberg_rest):  # noqa: F811
    if not mortal_seaweedfs.is_running:
        mortal_seaweedfs.start()
    pair = KafkaToLakes(
        tmp_path / "lakes-full",
        durable_kafka,
        200_000,
        2_000,
        catalog=iceberg_rest.properties,
        store=mortal_seaweedfs,
        rest=iceberg_rest,
    )
    survives_all(pair)
