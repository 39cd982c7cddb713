"""ORC files as tasks read them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.columnar_split import ROWS, ColumnarSplit, read_errors
from tidewheel._connectors.files.fitting import Fitting, widens

_OF_BOTH_CALENDARS = datetime.date(1582, 10, 15)
"""From this day on a day is the same in the calendars that writers of ORC files have used."""
_UNNAMED = "_col"
"""How old writers name columns; Spark then goes by their order."""


def why_not_orc(columns: pa.Schema) -> str | None:
    """Return why ORC files with these columns cannot be read directly; None if they can."""
    for field in columns:
        if _has_times(field.type):
            return f"the ORC column {field.name!r} has times, which depend on the zone of the writer"
    return None


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        children = [kind.field(number).type for number in range(kind.num_fields)]
        # Days inside of other values are not looked at one by one.
        return any(_has_times(child) or pa.types.is_date32(child) for child in children)
    return bool(pa.types.is_timestamp(kind))


@dataclass(frozen=True)
class OrcSplit(ColumnarSplit):
    """An ORC file."""

    def read(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import orc

        with read_errors(self.path, "an ORC file"):
            file = orc.ORCFile(self.path)
            fitting = self._fitting(file.schema).of(self.only)
            # Without any column Arrow would tell of no record at all.
            wanted = fitting.wanted or file.schema.names[:1]
            for stripe in range(file.nstripes):
                whole = file.read_stripe(stripe, columns=wanted)
                for start in range(0, whole.num_rows, ROWS):
                    yield self._checked(fitting.fitted(whole.slice(start, ROWS)))

    def _fitting(self, present: pa.Schema) -> Fitting:
        if any(name.startswith(_UNNAMED) for name in present.names):
            raise ReadBySpark(f"{self.path} has columns without names")
        fitting = Fitting(self.path, present, self.columns)
        for name, field in zip(fitting.names, self.columns, strict=True):
            if name is not None:
                given = present.field(name).type
                if given != field.type and not widens(given, field.type):
                    raise ReadBySpark(f"{self.path} has {given} where the source has {field.type}")
        return fitting

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for column in batch.columns:
            if pa.types.is_date32(column.type):
                first = pc.min(column).as_py()
                if first is not None and first < _OF_BOTH_CALENDARS:
                    raise ReadBySpark(f"{self.path} has the day {first}, which depends on the calendar of the writer")
        return batch
