"""A writer of the state store reaches nothing beyond it: tokens, staged files and schemas are untrusted input."""

from __future__ import annotations

import os
import uuid

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servers.nats_server import nats  # noqa: F401
from servers.postgres_server import PASSWORD
from tidewheel import sinks
from tidewheel._connectors.files.target_folder import OutputFile
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.messages import count
from tidewheel._connectors.postgres.columns import _CREATED, created_type
from tidewheel._connectors.sink import Publication, Staging
from tidewheel._connectors.staging import StagedRef, read_token, stage, to_arrow
from tidewheel._storage import open_store
from tidewheel.errors import CorruptError, StorageError, TidewheelError

_encode = msgspec.msgpack.encode


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "state"))


def token_of(sink, store, sequence=1, **columns):
    part = sink.open(Staging(store, "j", "out", sequence, "run-0-0"))
    part.write(pa.RecordBatch.from_pydict(columns))
    return part.prepare()


def publication(store, *tokens, sequence=1):
    return Publication(store, "j", "out", sequence, tokens, None)


def staged(store, *batches, name="out"):
    """Stage what no sink of ours would; return its token."""
    rows = sum(batch.num_rows for batch in batches)
    return _encode(stage(Staging(store, "j", name, 1, "run-0-0"), "arrow", to_arrow(list(batches)), rows))


@pytest.mark.parametrize(
    "change",
    [
        {"final": "../../home/.profile"},
        {"final": "/etc/profile"},
        {"final": "a=1/../../home/.profile"},
        {"final": "_tidewheel/j~out/published-00000000000000000009"},
        {"final": "other~out~00000000000000000001~0-0.json"},
        {"final": "j~out~00000000000000000002~0-0.json"},
        {"final": ""},
        {"staged": "../../../../state/secret"},
        {"staged": "/etc/passwd"},
        {"staged": "00000000000000000001-/../../../x"},
        {"final": "j~out~00000000000000000001~\0"},
    ],
    ids=str,
)
def test_a_token_of_a_files_sink_moves_its_own_files_only(tmp_path, store, change):
    home = tmp_path / "home"
    home.mkdir()
    sink = sinks.files(str(tmp_path / "data" / "out"), "json")
    (file,) = msgspec.msgpack.decode(token_of(sink, store, x=["evil"]), type=list[OutputFile])
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(CorruptError, match="something else has written to the state store"):
        sink.publish(publication(store, _encode([msgspec.structs.replace(file, **change)])))
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    sink.publish(publication(store, _encode([file])))


def test_folders_named_by_odd_values_are_still_published(tmp_path, store):
    sink = sinks.files(str(tmp_path / "out"), "json", partition_by="p")
    values = ["..", "../x", "a=b", ".", "", "a/b", "~", "\n"]
    sink.publish(publication(store, token_of(sink, store, p=values, x=list(range(len(values))))))
    assert len(sinks.whole_files(str(tmp_path / "out"))) == len(values)


@pytest.mark.parametrize(
    "name",
    [
        "../other/state/x",
        "/etc/passwd",
        "chain/00000000000000000001.rec",
        "state/00000000000000000001-run-0-0.delta",
        "staged/../chain/x",
        "staged/00000000000000000001-run-0-0-out/../../../x",
        "",
    ],
)
def test_a_token_names_a_staged_file_only(store, name):
    forged = publication(store, _encode([name, 1, 1, 1]))
    for use in (sinks.collect().publish, count):
        with pytest.raises(CorruptError, match="a token of the commit is invalid"):
            use(forged)


@given(st.binary(max_size=64))
@example(b"\x94\xa3\x00\x00\x80")  # Text that is not UTF-8.
def test_a_token_of_any_bytes_is_refused_or_names_a_staged_file(data):
    for kind in (StagedRef, list[OutputFile]):
        try:
            read = read_token(data, kind, "out")
        except CorruptError:
            continue
        assert isinstance(read, list) or read.name.startswith("staged/")


@given(st.data())
def test_staged_bytes_that_were_changed_are_an_error_and_never_a_crash(data):
    store = open_store(f"memory:{uuid.uuid4()}")
    good = to_arrow([pa.RecordBatch.from_pydict({"text": ["a", "bc", None], "n": [[1], [], None]})])
    at = data.draw(st.integers(0, len(good) - 1))
    changed = good[:at] + data.draw(st.binary(min_size=1, max_size=8)) + good[at + 1 :]
    token = _encode(stage(Staging(store, "j", "out", 1, "run-0-0"), "arrow", changed, 3))
    sink = sinks.collect()
    try:
        sink.publish(publication(store, token))
    except TidewheelError:
        return
    assert all(isinstance(row, dict) for row in sink.records)


def test_a_staged_column_whose_name_is_no_text_is_an_error():
    for columns in ({"namename": [1]}, {"outer": [{"namename": 1}]}):
        store = open_store(f"memory:{uuid.uuid4()}")
        good = to_arrow([pa.RecordBatch.from_pydict(columns)])
        assert b"namename" in good
        changed = good.replace(b"namename", b"\x80amename")
        token = _encode(stage(Staging(store, "j", "out", 1, "run-0-0"), "arrow", changed, 1))
        with pytest.raises(CorruptError, match="is not a valid Arrow file"):
            sinks.collect().publish(publication(store, token))


def test_a_staged_schema_runs_no_statement(postgres, store, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    postgres.query("CREATE TABLE victim (x int)")
    crafted = pa.field("x", pa.int64(), metadata={b"postgres": b"int); DROP TABLE victim; CREATE TABLE oops (y int"})
    token = staged(store, pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([crafted])))
    sink = sinks.postgres(postgres.dsn, "made", create=True)
    with pytest.raises(CorruptError, match=r"the column 'x' is a 'int\); DROP TABLE"):
        sink.publish(publication(store, token))
    assert postgres.query("SELECT to_regclass('victim')::text, to_regclass('oops')::text") == [("victim", None)]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()),
        *(pa.decimal128(10, 2), pa.decimal256(70, -3), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()),
        *(pa.time64("us"), pa.binary(), pa.string(), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=str,
)
def test_every_type_that_a_sink_writes_is_believed(kind):
    assert _CREATED.fullmatch(created_type(kind))


def test_a_staged_message_goes_to_no_other_subject(nats, store):  # noqa: F811
    nats.make_stream("hostile", allow_atomic=True)
    sink = sinks.nats(nats.server, "hostile.out.{user}")
    for address in ("hostile.tidewheel.j~out", "hostile.out.a.b", "hostile.out.*", "hostile.out.", "elsewhere", None):
        batch = pa.RecordBatch.from_pydict(
            {"data": pa.array([b"1"], pa.binary()), "address": pa.array([address], pa.string())}
        )
        token = staged(store, batch, name=f"o{len(str(address))}")
        with pytest.raises(CorruptError, match=r"which 'hostile\.out\.\{user\}' cannot produce"):
            sink.publish(publication(store, token))
    assert nats.messages("hostile") == []
    sink.publish(publication(store, token_of(sink, store, user=["ada"])))
    assert [subject for subject, _ in nats.messages("hostile", "hostile.out.*")] == ["hostile.out.ada"]


def test_an_invalid_marker_is_reported():
    with pytest.raises(CorruptError, match="marker of a sink does not decode"):
        Marker.decoded(b"{]")


def test_paths_from_the_store_stay_in_the_store(store):
    for path in ("../x", "/x", "a/../../x", "a//b", ""):
        with pytest.raises(StorageError, match="is refused"):
            store.read(path)
    assert not os.path.exists(os.path.join(store.root, "x"))
