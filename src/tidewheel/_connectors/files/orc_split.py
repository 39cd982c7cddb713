"""ORC files as tasks read them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.files.arrow_types import spark_type
from tidewheel._connectors.files.columnar_split import ColumnarSplit
from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.files.input_file import InputFile
from tidewheel.errors import StepError

_OF_BOTH_CALENDARS = datetime.date(1582, 10, 15)
"""From this day on a day is the same in the calendars that writers of ORC files have used."""
_UNNAMED = "_col"
"""How old writers name columns."""


@dataclass(frozen=True)
class OrcSplit(ColumnarSplit):
    """Stripes of an ORC file."""

    def _batches(self) -> Iterator[tuple[Fitting, pa.RecordBatch]]:
        from pyarrow import orc

        with self.file.opened("an ORC file") as opened:
            file = orc.ORCFile(opened)
            fitting = _fitting(self.file.shown, file.schema, self.columns)
            # Without any column Arrow would return no records.
            wanted = fitting.wanted(self.only) or file.schema.names[:1]
            for stripe in range(*(self.units or (0, file.nstripes))):
                batch = file.read_stripe(stripe, columns=wanted)
                _check_days(self.file.shown, batch)
                yield fitting, batch

    @classmethod
    def count(cls, file: InputFile) -> int:
        from pyarrow import orc

        with file.opened("an ORC file") as opened:
            return int(orc.ORCFile(opened).nstripes)

    @classmethod
    def schema_of(cls, file: InputFile) -> pa.Schema:
        from pyarrow import orc

        with file.opened("an ORC file") as opened:
            columns = orc.ORCFile(opened).schema
        # The plain time of ORC has no zone, and is a time of UTC here.
        return pa.schema(
            [
                (
                    column.name,
                    pa.timestamp("us", "UTC") if pa.types.is_timestamp(column.type) else spark_type(column.type),
                )
                for column in columns
            ]
        )


def _fitting(path: str, present: pa.Schema, columns: pa.Schema) -> Fitting:
    if any(name.startswith(_UNNAMED) for name in present.names):
        raise StepError(f"{path} has columns without names, such as old writers leave; write it again with names")
    return Fitting(path, present, columns, present.names)


def _check_days(path: str, batch: pa.RecordBatch) -> None:
    for column in batch.columns:
        if pa.types.is_date32(column.type):
            first = pc.min(column).as_py()
            if first is not None and first < _OF_BOTH_CALENDARS:
                raise StepError(f"{path} has the day {first}, which depends on the calendar of the writer")
