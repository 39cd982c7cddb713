"""Readers of CSV, JSON and text: any bytes, cut anywhere, give the records and the errors that one exact pass gives."""

from __future__ import annotations

import datetime
import os
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewheel._connectors.bad_lines import BadLine, parted
from tidewheel._connectors.files.csv_fields import CsvForm
from tidewheel._connectors.files.csv_split import CsvSplit
from tidewheel._connectors.files.file_splits import ranges
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.json_split import JsonSplit
from tidewheel._connectors.files.line_split import LineSplit, NotPlain
from tidewheel._connectors.files.lines import Part
from tidewheel._connectors.files.text_split import TextSplit
from tidewheel._connectors.schema import declared_schema

COLUMNS = declared_schema(
    "k string, n int, l long, f double, r float, b boolean, d decimal(6,2), t timestamp, z timestamp_ntz, day date"
)

EXAMPLES = 80
MANY = 3000
"""Of the long versions, which `make soak` runs."""


def written(folder: str | Path, data: bytes, name: str = "file") -> InputFile:
    path = os.path.join(folder, name)
    Path(path).write_bytes(data)
    status = os.stat(path)
    return InputFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def read(splits: list[LineSplit]) -> tuple[list[str], list[BadLine]]:
    """Return the records of splits, as text since nan is not nan, and the lines that are none."""
    records, bad = [], []
    for split in splits:
        for batch in split.read():
            found, lines = parted(batch)
            assert found.schema == split.columns
            found.validate(full=True)
            records += [repr(record) for record in found.to_pylist()]
            bad += lines
    return records, sorted(bad, key=lambda line: line.line)


def exactly(kind: type[LineSplit]) -> type[LineSplit]:
    """Return the reader without its fast way."""

    class Exact(kind):
        def _fast(self, block):
            raise NotPlain

    return Exact


def check_any_cut(kind, data: bytes, cuts: list[int], block: int, *arguments) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = written(folder, data)
        expected = read([exactly(kind)(Part(file), *arguments)])
        assert read([kind(Part(file), *arguments)]) == expected
        edges = sorted({0, *(cut % (len(data) + 1) for cut in cuts)})
        parts = [Part(file, start, end) for start, end in zip(edges, [*edges[1:], None], strict=True)]
        assert read([kind(part, *arguments, block_bytes=block) for part in parts]) == expected


CUTS = st.lists(st.integers(0, 500), max_size=4)
BLOCKS = st.integers(3, 200)
NUMBERS = [
    "0",
    "7",
    "-1",
    "+5",
    "007",
    "1.0",
    "1e2",
    "1e999",
    "0x1F",
    "9223372036854775808",
    "2147483648",
    "1.555",
    ".5",
    "5.",
]
WORDS = ["NA", "null", "NaN", "nan", "inf", "-Infinity", "true", "TRUE", "yes", "None", "N/A", "", " ", "ä", "\u2028"]
TIMES = [
    "2026-03-01T10:30:00Z",
    "2026-03-01 10:30:00.5+01:00",
    "2026-03-01",
    "2026-02-30",
    "0001-01-01T00:00:00+05:00",
    "9999-12-31T23:59:59.999999Z",
    "2026-03-01T10:30",
    "0000-01-01",
    "1582-10-10T00:00:00",
]
TEXTS = st.sampled_from([*NUMBERS, *WORDS, *TIMES]) | st.text(max_size=5)
SEPARATOR = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r", ""])


@st.composite
def csv_files(draw) -> bytes:
    def field() -> str:
        text = draw(TEXTS)
        match draw(st.integers(0, 5)):
            case 0:
                return '"' + text.replace('"', '""') + '"'
            case 1:
                return draw(st.sampled_from(['"', '""', 'a"b', '"a"b', '"a', ' "x"', " 5 ", '"5"']))
        return text

    lines = []
    for _ in range(draw(st.integers(0, 6))):
        lines.append(",".join(field() for _ in range(draw(st.sampled_from([10, 10, 10, 9, 11, 1])))) + draw(SEPARATOR))
    return _mixed(draw, "".join(lines))


def good_csv(line: int) -> str:
    times = "2026-03-01T10:30:00Z,2026-03-01 10:30:00,2026-03-01"
    return f'"key ""{line % 7}""",{line},{-line},{line / 3},0.5,true,{line}.25,{times}\n'


def _mixed(draw, text: str) -> bytes:
    """Return text as bytes, perhaps with a byte-order mark, perhaps with bytes that are no text, perhaps with any bytes."""
    data = text.encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 9)):
        case 0:
            return b"\xef\xbb\xbf" + data
        case 1:
            at = draw(st.integers(0, len(data)))
            return data[:at] + draw(st.binary(max_size=4)) + data[at:]
        case 2:
            return draw(st.binary(max_size=60))
    return data


@settings(max_examples=EXAMPLES, deadline=None)
@given(csv_files(), CUTS, BLOCKS)
@example(b"NA,1,2,3,4,true,5,,,\n\n,,,,,,,,,\n", [], 200)
def test_csv_gives_the_same_records_and_errors_wherever_it_is_cut(data, cuts, block):
    check_any_cut(CsvSplit, data, cuts, block, COLUMNS, COLUMNS.names)


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None)
@given(csv_files(), CUTS, BLOCKS)
def test_csv_gives_the_same_records_wherever_it_is_cut_many_times(data, cuts, block):
    check_any_cut(CsvSplit, data, cuts, block, COLUMNS, COLUMNS.names)


@st.composite
def json_files(draw) -> bytes:
    def value() -> str:
        text = draw(TEXTS)
        match draw(st.integers(0, 7)):
            case 0:
                return draw(
                    st.sampled_from(["null", "true", "{}", "[]", "[1]", '{"k":"a"}', "NaN", "-Inf", "01", '"\\ud800"'])
                )
            case 1 | 2:
                return text
            case 3:
                return '"' + text + '"'
        return _json_text(text)

    def record() -> str:
        names = draw(st.lists(st.sampled_from([*COLUMNS.names, "K", "x"]), max_size=5))
        return "{" + ",".join(f'"{name}":{value()}' for name in names) + "}"

    lines = []
    for _ in range(draw(st.integers(0, 6))):
        line = draw(st.sampled_from(["", "", "", "null", "[1]", " ", "{", "}", '"a"', "7", "{}", "\x00"])) or record()
        lines.append(line + draw(SEPARATOR))
    return _mixed(draw, "".join(lines))


def _json_text(text: str) -> str:
    import json

    return json.dumps(text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(json_files(), CUTS, BLOCKS)
@example(b'null\n{"k":"a"}\n', [], 200)
@example(b'{"k":"a"}{"k":"b"}\n\n', [], 200)
def test_json_gives_the_same_records_and_errors_wherever_it_is_cut(data, cuts, block):
    check_any_cut(JsonSplit, data, cuts, block, COLUMNS)


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None)
@given(json_files(), CUTS, BLOCKS)
def test_json_gives_the_same_records_wherever_it_is_cut_many_times(data, cuts, block):
    check_any_cut(JsonSplit, data, cuts, block, COLUMNS)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")), CUTS, BLOCKS
)
def test_text_gives_the_same_lines_wherever_it_is_cut(data, cuts, block):
    check_any_cut(TextSplit, data, cuts, block, declared_schema("value string"))


def test_a_bad_line_among_many_is_the_only_one_that_is_lost(tmp_path):
    lines = [good_csv(line) for line in range(5000)]
    lines[4321] = lines[4321].replace("4321", "many", 1)
    file = written(tmp_path, "".join(lines).encode())
    splits = [
        CsvSplit(Part(file, *edges), COLUMNS, COLUMNS.names, block_bytes=20_000) for edges in ranges(file.size, 5)
    ]
    records, bad = read(splits)
    assert len(records) == 4999
    assert [(line.line, line.column) for line in bad] == [(4322, "n")]
    assert bad[0].where == f"line 4322 of {file.path}, column 'n'"
    assert bad[0].reason == "'many' is not a whole number of 32 bits"


def test_blocks_of_good_lines_never_leave_the_fast_way(tmp_path):
    file = written(tmp_path, "".join(map(good_csv, range(300))).encode())
    split = CsvSplit(Part(file), COLUMNS, COLUMNS.names)
    assert [split._fast(block).num_rows for block in split._blocks()] == [300]
    record = (
        '{"k":"a","n":1,"l":2,"f":1.5,"r":2,"b":true,"t":"2026-03-01T10:30:00Z","z":null,"day":"2026-03-01","x":[1]}\n'
    )
    file = written(tmp_path, (record * 300).encode())
    without_decimal = pa.schema([field for field in COLUMNS if field.name != "d"])
    split = JsonSplit(Part(file), without_decimal)
    assert [split._fast(block).num_rows for block in split._blocks()] == [300]


def csv_record(tmp_path, line: str, schema: str, **form) -> dict | BadLine:
    columns = declared_schema(schema)
    file = written(tmp_path, line.encode())
    [batch] = CsvSplit(Part(file), columns, columns.names, CsvForm(header=False, **form)).read()
    records, bad = parted(batch)
    return bad[0] if bad else records.to_pylist()[0]


@pytest.mark.parametrize(
    ("line", "schema", "record"),
    [
        ("NA,null", "a string, b string", {"a": "NA", "b": "null"}),
        (',""', "a string, b string", {"a": None, "b": ""}),
        ("\t", "a string, b int", None),
        ('"say ""hi"" now",1', "a string, n int", {"a": 'say "hi" now', "n": 1}),
        ('a"b,1', "a string, n int", {"a": 'a"b', "n": 1}),
        (" a , 5 ", "a string, n int", {"a": " a ", "n": 5}),
        ('"","5"', "n int, m int", {"n": None, "m": 5}),
        ("007,+5", "n int, m long", {"n": 7, "m": 5}),
        ("True,FALSE", "a boolean, b boolean", {"a": True, "b": False}),
        ("1.5,1e3", "d decimal(6,2), e decimal(6,2)", {"d": Decimal("1.50"), "e": Decimal("1000.00")}),
        (
            "2026-03-01 10:30:00+01:00,2026-03-01",
            "t timestamp, d date",
            {"t": datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.UTC), "d": datetime.date(2026, 3, 1)},
        ),
    ],
)
def test_fields_of_csv_become_values(tmp_path, line, schema, record):
    if record is not None:
        assert csv_record(tmp_path, line, schema) == record
    else:
        assert isinstance(csv_record(tmp_path, line, schema), BadLine)


@pytest.mark.parametrize(
    ("line", "schema", "column", "reason"),
    [
        ("0x1F,1", "n int, m int", "n", "'0x1F' is not a whole number of 32 bits"),
        ("1.0,1", "n int, m int", "n", "'1.0' is not a whole number of 32 bits"),
        ("1,2147483648", "n int, m int", "m", "'2147483648' is not a whole number of 32 bits"),
        ("1e999,1", "f double, m int", "f", "'1e999' is not a number of 64 bits"),
        ("1,a", "b boolean, s string", "b", "'1' is not true or false"),
        (
            "1.555,a",
            "d decimal(6,2), s string",
            "d",
            "'1.555' is not a number with at most 4 digits before and 2 behind the point",
        ),
        ("2026-02-30,a", "d date, s string", "d", "'2026-02-30' is not a day like 2026-03-01"),
        ("a", "a string, b string", None, "it has 1 field instead of 2"),
        ("a,b,c", "a string, b string", None, "it has 3 fields instead of 2"),
        ('"a"x,b', "a string, b string", None, "field 1 has 'x,b' behind its closing quote, where ',' was expected"),
    ],
)
def test_a_field_that_does_not_fit_is_named(tmp_path, line, schema, column, reason):
    bad = csv_record(tmp_path, line, schema)
    assert (bad.line, bad.column, bad.reason, bad.text) == (1, column, reason, line)


def test_csv_forms(tmp_path):
    two = "a string, b string"
    assert csv_record(tmp_path, "x;'y;''z'", two, separator=";", quote="'") == {"a": "x", "b": "y;'z"}
    assert csv_record(tmp_path, r'x,"say \"hi\", \\"', two, escape="\\") == {"a": "x", "b": 'say "hi", \\'}
    assert csv_record(tmp_path, '"x,"y', two, quote="") == {"a": '"x', "b": '"y'}
    assert csv_record(tmp_path, 'NA,"NA"', two, null="NA") == {"a": None, "b": "NA"}
    assert csv_record(tmp_path, 'x,"one\ntwo"\n', two, multi_line=True) == {"a": "x", "b": "one\ntwo"}
    unclosed = csv_record(tmp_path, 'x,"one\ntwo', two, multi_line=True)
    assert "no closing quote" in unclosed.reason
    assert unclosed.line == 1
