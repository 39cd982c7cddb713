"""Data files of an Iceberg table: tasks write them with the table's field ids, and describe them in their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from tidewheel._connectors.files import hive
from tidewheel._connectors.files.data_files import FILE_BYTES, DataFile, DataFilesPartition, Partition
from tidewheel._connectors.files.table_columns import fitted
from tidewheel._connectors.iceberg.io_store import folder_of, place_of
from tidewheel._connectors.iceberg.sorting import computed, field_id, order_id, row_order
from tidewheel._connectors.sink import Staging
from tidewheel._connectors.staging import read_token

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import PrimitiveType


class _Statistics(msgspec.Struct, frozen=True):
    """The statistics of a file by field id, as a manifest stores them."""

    record_count: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


def columns_of(table: Table) -> pa.Schema:
    """Return the columns of a table, with their field ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema: pa.Schema = schema_to_pyarrow(table.schema())
    return schema


def partitioning(table: Table) -> tuple[str, ...]:
    """Return a text for each partition field. Files belong to the table only if they were divided by the same fields."""
    return tuple(f"{each.source_id}:{each.field_id}:{each.transform}" for each in table.spec().fields)


def unsupported(table: Table) -> list[str]:
    """Return the required features of a table that the sink does not support."""
    found = [f"the format version {table.format_version}"] if table.format_version > 2 else []
    sources = [each.source_id for each in table.spec().fields]
    for each in table.spec().fields:
        what = f"the partition field {each.name} ({each.transform})"
        name = table.schema().find_column_name(each.source_id)
        if sources.count(each.source_id) > 1:
            found.append(f"{what}, which shares its column with another one")
        elif name is None or table.schema().find_field(name).field_id not in {
            f.field_id for f in table.schema().fields
        }:
            found.append(f"{what}, whose column is inside another one")
        elif not computed(each.transform, table.schema().find_type(each.source_id), columns_of(table).field(name).type):
            found.append(f"{what}, which pyiceberg cannot compute, or only with pyiceberg-core")
    return found


class TableFiles(DataFilesPartition):
    """Write rows to data files of a table, divided by its partition fields."""

    def __init__(self, table: Table, staging: Staging, *, rounds: bool = False, file_bytes: float = FILE_BYTES) -> None:
        self.columns = columns_of(table)
        """The columns of the table."""
        order = row_order(table, self.columns)
        super().__init__(staging, place_of(table), "", partitioning(table), file_bytes=file_bytes, order=order)
        self._table, self._rounds = table, rounds
        self._who = f"sink {staging.sink!r}"

    def write(self, columns: pa.RecordBatch) -> None:
        self.add(fitted(columns, self.columns, self._who, "the table", rounds=self._rounds))

    def parts(self, columns: pa.RecordBatch) -> Iterable[tuple[Partition, pa.RecordBatch]]:
        fields = self._table.spec().fields
        if not fields:
            return [((), columns)]
        return self._divided(columns, fields)

    def _divided(
        self, columns: pa.RecordBatch, fields: Sequence[PartitionField]
    ) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.partitioning import partition_record_value

        schema = self._table.schema()
        keyed, names = columns, []
        for number, each in enumerate(fields):
            source = columns.column(schema.find_column_name(each.source_id))
            values = each.transform.pyarrow_transform(schema.find_type(each.source_id))(source)
            names.append(f"tidewheel partition {number}")
            keyed = keyed.append_column(names[-1], values)
        for values, rows in hive.split(keyed, names):
            found = [partition_record_value(each, value, schema) for each, value in zip(fields, values, strict=True)]
            yield (
                tuple(
                    None if value is None else to_bytes(_stored(self._table, each), value).hex()
                    for each, value in zip(fields, found, strict=True)
                ),
                rows,
            )

    def statistics(self, metadata: object) -> bytes:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        schema = self._table.schema()
        found = data_file_statistics_from_parquet_metadata(
            metadata, compute_statistics_plan(schema, self._table.properties), parquet_path_to_id_mapping(schema)
        )
        return msgspec.msgpack.encode(found.to_serialized_dict())


def described(table: Table, file: DataFile, sink: str) -> IcebergFile:
    """Convert a staged data file to a manifest entry."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    values: list[Any] = [
        None if text is None else from_bytes(_stored(table, each), bytes.fromhex(text))
        for each, text in zip(table.spec().fields, file.partition, strict=True)
    ]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{folder_of(table)}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.size,
        sort_order_id=order_id(table, file.order),
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **msgspec.structs.asdict(read_token(file.statistics, _Statistics, sink)),
    )


def has_delete_files(table: Table, snapshot: Snapshot) -> bool:
    """Return whether a snapshot has delete files, which remove rows of data files that are older than they are."""
    return any(manifest.content.name == "DELETES" for manifest in snapshot.manifests(table.io))


def has_fields(table: pa.Schema, columns: pa.Schema) -> bool:
    """Return whether a table still has the columns of a file, by id and type, and requires no others."""
    types = {field_id(field): field.type for field in table}
    needed = {field_id(field) for field in table if not field.nullable}
    return needed <= {field_id(field) for field in columns} and all(
        field_id(field) in types and types[field_id(field)] == field.type for field in columns
    )


def _stored(table: Table, field: PartitionField) -> PrimitiveType:
    """Return the type of the values of a partition field."""
    return cast("PrimitiveType", field.transform.result_type(table.schema().find_type(field.source_id)))
