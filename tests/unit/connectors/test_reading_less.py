"""A file that the source's schema refuses is refused also where a program reads other columns of it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import feather, orc, parquet

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.arrow_split import ArrowSplit
from tidewheel._connectors.files.orc_split import OrcSplit
from tidewheel._connectors.files.parquet_split import ParquetSplit
from tidewheel.errors import TidewheelError

COLUMNS = pa.schema([("user", pa.string()), ("cents", pa.int64()), ("note", pa.string())])
KINDS = [
    (ParquetSplit, parquet.write_table, ReadBySpark),
    (OrcSplit, orc.write_table, ReadBySpark),
    (ArrowSplit, feather.write_feather, TidewheelError),
]


@pytest.mark.parametrize(("split", "write", "error"), KINDS)
def test_a_wrong_type_in_a_column_that_is_not_read_is_noticed(tmp_path, split, write, error):
    path = str(tmp_path / "file")
    write(pa.table({"user": ["ada"], "cents": [3], "note": [1.5]}), path)
    narrow = split(path, 1, COLUMNS).narrowed({"user", "cents"})
    with pytest.raises(error, match=r"file has double"):
        list(narrow.read())


@pytest.mark.parametrize(("split", "write", "error"), KINDS)
def test_what_is_not_read_is_not_given(tmp_path, split, write, error):
    path = str(tmp_path / "file")
    write(pa.table({"note": ["x"], "cents": [3]}), path)
    rows = [row for batch in split(path, 1, COLUMNS).narrowed({"user", "cents"}).read() for row in batch.to_pylist()]
    assert rows == [{"user": None, "cents": 3}]
