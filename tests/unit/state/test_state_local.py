"""Local copies in one process equal a dict, whatever is applied in whatever portions."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts
from support.state_build import History, Tables, catch_up, contents, state_file
from tidewheel._state.compaction import newest_sequence
from tidewheel._state.local_copies import CopyLimits, LocalCopies, ShardCopy, folder_name
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._state.task_state import TaskState
from tidewheel.errors import ConfigError, CorruptError, LocalDiskFull, StateError

# Few different keys, so that commits meet; some longer than LMDB takes, some of which share their first bytes.
SHORT = [b"a", b"b", b"b\0", b"\xff", b"k" * 479, b"k" * 510, b"k" * 511]
LONG = [b"k" * 512, b"k" * 600, b"k" * 600 + b"x", b"a" * 2000, b"\xff" * 700]
keys = st.sampled_from(SHORT + LONG) | st.binary(min_size=1, max_size=3)
values = st.none() | st.binary(max_size=30) | st.just(b"v" * 5000)
changes = st.dictionaries(
    st.sampled_from(["sums", "sums/timers"]), st.dictionaries(keys, values, max_size=12), max_size=2
)
commits = st.lists(st.tuples(st.none() | changes, st.booleans(), st.booleans()), max_size=12)


class Folders:
    """A fresh folder for each example, and its copies closed afterwards."""

    def __init__(self, root: Path) -> None:
        self.root, self.made = root, 0
        self.opened: list[LocalCopies] = []

    def new(self) -> Path:
        self.made += 1
        return self.root / str(self.made)

    def copy(self, map_size: int = 1 << 20, **limits: int) -> ShardCopy:
        copies = LocalCopies.at(self.new(), CopyLimits(map_size, **limits))
        self.opened.append(copies)
        return copies.shard(0)

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    made = Folders(tmp_path)
    yield made
    made.close()


def read(copy: ShardCopy) -> dict[str, dict[bytes, bytes]]:
    with copy.begin() as reader:
        return contents(reader)


several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


@several
@given(commits)
def test_a_copy_equals_a_dict(folders: Folders, commits: list[tuple[Tables | None, bool, bool]]) -> None:
    """Each commit may bring a delta and a snapshot; one copy follows now and then, another starts at the end."""
    history, copy = History(folders.new()), folders.copy()
    for changed, snapshot, follow in commits:
        history.commit(changed, snapshot and bool(history.parts.deltas))
        if follow:
            catch_up(copy, history)
            assert copy.applied == newest_sequence(history.parts)
            assert read(copy) == history.expected()
    late = folders.copy()
    for each in (copy, late):
        catch_up(each, history)
        assert read(each) == history.expected()
    folders.close()


@several
@given(changes, st.lists(keys | st.just(b""), max_size=20), keys, st.none() | keys)
def test_reads_agree_with_a_dict(
    folders: Folders, changed: Tables, wanted: list[bytes], start: bytes, stop: bytes | None
) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit(changed)
    catch_up(copy, history)
    with copy.begin() as reader:
        for table in ("sums", "sums/timers", "unknown"):
            state = history.expected().get(table, {})
            assert reader.get_many(table, wanted) == [state.get(key) for key in wanted]
            assert [reader.get(table, key) for key in wanted] == [state.get(key) for key in wanted]
            assert list(reader.items(table)) == sorted(state.items())
            assert list(reader.items(table, start, stop)) == [
                (key, value) for key, value in sorted(state.items()) if key >= start and (stop is None or key < stop)
            ]
            assert reader.count(table) == len(state)
        assert reader.tables() == sorted(history.expected())
    folders.close()


@several
@given(changes, changes)
def test_a_snapshot_of_a_copy_makes_the_same_copy(folders: Folders, first: Tables, second: Tables) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit(first)
    history.commit(second)
    catch_up(copy, history)
    writer = StateFileWriter()
    with copy.begin() as reader:
        for table in reader.tables():
            writer.add(0, table, list(reader.items(table)))
    data, checksum = writer.finish()
    ref = FileRef("snapshot", len(data), checksum)
    other = folders.copy()
    other.catch_up(ShardParts(PartRef(ref, 2, 1, 1)), 2, lambda ref: StateFile.of(data, ref))
    assert read(other) == history.expected()
    folders.close()


def test_an_empty_copy_is_at_zero(folders: Folders) -> None:
    copy = folders.copy()
    assert copy.applied == 0
    assert read(copy) == {}


def test_nothing_is_fetched_or_written_when_nothing_is_lacking(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    history.fetched.clear()
    before = copy._environment.info()["last_txnid"]
    for _ in range(3):
        history.commit()
        catch_up(copy, history)
        assert copy.applied == newest_sequence(history.parts)
    assert history.fetched == []
    assert copy._environment.info()["last_txnid"] == before


def test_one_lacking_delta_is_one_transaction(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    for number in range(3):
        history.commit({"t": {b"%d" % number: b"1"}})
        before = copy._environment.info()["last_txnid"]
        catch_up(copy, history)
        assert copy._environment.info()["last_txnid"] == before + 1
        assert history.fetched == [f"delta-{number + 1}"]
        history.fetched.clear()


def test_a_copy_at_the_base_does_not_load_the_snapshot_of_the_base(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    history.commit()
    catch_up(copy, history)
    history.fetched.clear()
    history.commit({"t": {b"b": b"2"}}, snapshot=True)
    catch_up(copy, history)
    assert history.fetched == ["delta-3"]
    assert read(copy) == {"t": {b"a": b"1", b"b": b"2"}}


def test_a_copy_that_is_ahead_is_refused_and_left_alone(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    older = history.parts
    history.commit({"t": {b"a": b"2"}})
    catch_up(copy, history)
    with pytest.raises(
        StateError, match=r"shard 0 in .*ahead: it holds commit 2 of this run.*sequence 1 .*delete its folder"
    ):
        copy.catch_up(older, 1, history.fetch, history.run)
    assert read(copy) == history.expected()


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_copy_of_another_history_is_replaced(folders: Folders, commits: int) -> None:
    history, copy = History(folders.new()), folders.copy()
    other = History(folders.new(), run="other")
    history.commit({"t": {b"a": b"1"}, "only here": {b"a": b"1"}})
    catch_up(copy, history)
    for commit in range(commits):
        other.commit({"t": {b"%d" % commit: b"2"}})
    catch_up(copy, other)
    assert read(copy) == other.expected()
    assert copy.applied == commits


def test_a_copy_that_another_version_wrote_is_replaced(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    with copy._begin(write=True) as transaction:
        transaction.put(b"applied", msgspec.msgpack.encode((1, False, history.parts.deltas[0].file.checksum, False)))
        transaction.put(b"ghost", b"1", db=copy._environment.open_db(b"t:t", transaction))
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_reader_keeps_its_state_while_others_move_on(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy(1 << 30)
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    with copy.begin() as reader:
        history.commit({"t": {b"a": b"2"}, "new": {b"b": b"3"}})
        catch_up(copy, history)
        assert contents(reader) == {"t": {b"a": b"1"}}
        assert read(copy) == history.expected()
        history.commit({"t": {b"c": b"2"}}, snapshot=True)
        assert reader.get("t", b"a") == b"1"


def test_a_thread_whose_base_was_overtaken_gets_no_reader(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    history.commit({"t": {b"a": b"2"}})
    other = threading.Thread(target=catch_up, args=(copy, history))
    other.start()
    other.join()
    with pytest.raises(StateError, match="moved from commit 1 to 2"):
        copy.begin()


def test_the_map_grows(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy(map_size=1 << 16)
    for number in range(4):
        history.commit({"t": {b"%d-%d" % (number, n): os.urandom(1000) for n in range(300)}})
        catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_transaction_that_finds_the_map_full_begins_again(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardCopy, "_make_room", lambda self, raw_bytes: None)
    history, copy = History(folders.new()), folders.copy(map_size=1 << 16)
    history.commit({"t": {b"%d" % n: os.urandom(1000) for n in range(300)}, "u": {b"x" * 600: b"long"}})
    history.commit({"t": {b"%d" % n: None for n in range(200)}})
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_map_that_must_grow_under_an_open_reader_is_an_error(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy(map_size=1 << 16)
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    history.commit({"t": {b"%d" % n: os.urandom(1000) for n in range(300)}})
    with copy.begin() as reader:
        with pytest.raises(LocalDiskFull, match="1 readers of this process are open"):
            catch_up(copy, history)
        assert contents(reader) == {"t": {b"a": b"1"}}
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_damaged_file_leaves_the_copy_as_it_was(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    before = history.expected()
    history.commit({"t": {b"%d" % n: b"x" * 50 for n in range(100)}, "u": {b"b": b"2"}})
    path = history.folder / "delta-2"
    good = path.read_bytes()
    for at in range(0, len(good), 97):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CorruptError):
            catch_up(copy, history)
        assert copy.applied == 1
        assert read(copy) == before
    path.write_bytes(good)
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_file_too_large_to_fetch_ahead_is_applied_block_by_block(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy(map_size=1 << 16, fetched_ahead=1000)
    for number in range(3):
        history.commit({"t": {b"%d" % n: b"%d" % number * 100 for n in range(number, 200)}})
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_disk_use_does_not_grow_with_the_number_of_batches(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    sizes = []
    for number in range(60):
        history.commit({"t": {b"key-%d" % (n * 7919 % 2000): b"%09d" % number for n in range(500)}})
        catch_up(copy, history)
        read(copy)
        sizes.append((copy.path / "data.mdb").stat().st_blocks)
    assert max(sizes[10:]) <= sizes[9]


def test_copies_of_a_folder_are_one_object(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.new()
    folder.mkdir()
    copies = LocalCopies.at(folder)
    folders.opened.append(copies)
    monkeypatch.chdir(folder)
    assert LocalCopies.at(".") is copies
    assert copies.shard(3) is copies.shard(3)
    assert copies.shard(3) is not copies.shard(4)


def test_closed_copies_open_again(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    folders.opened.pop().close()
    copies = LocalCopies.at(copy.path.parent)
    folders.opened.append(copies)
    assert copies.shard(0).applied == 1
    assert read(copies.shard(0)) == history.expected()


def test_unused_copies_are_released_and_opened_again(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    copies = LocalCopies.at(copy.path.parent)
    with copy.begin():
        copies.relieve()
        assert copies.shard(0) is copy
    copies.relieve()
    assert copies.shard(0) is not copy
    assert read(copies.shard(0)) == history.expected()


def test_a_process_opens_no_more_shards_than_the_file_limit_allows(folders: Folders, monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (60, 1024))
    writer = StateFileWriter()
    for shard in range(64):
        writer.add(shard, "t", [(b"a", b"%d" % shard)])
    data, checksum = writer.finish()
    ref = FileRef("snapshot", len(data), checksum)
    parts = {shard: ShardParts(PartRef(ref, 2, 1, 1)) for shard in range(64)}
    copies = LocalCopies.at(folders.new())
    folders.opened.append(copies)
    state = TaskState(64, 2, parts, copies, lambda ref: StateFile.of(data, ref))
    for shard in [*range(64), *range(64)]:
        assert state.reader(shard).get("t", b"a") == b"%d" % shard
        assert len(copies._shards) <= 10
    state.close()


def test_a_process_counts_its_mapped_bytes(folders: Folders) -> None:
    copies = LocalCopies.at(folders.new())
    assert copies.crowded(limit=0)
    assert not copies.crowded(limit=1 << 40)


def test_a_large_commit_gives_its_memory_back(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy(many_keys=2, many_pages=0)
    for number in range(3):
        history.commit({"t": {bytes([65 + number, letter]): b"1" for letter in b"abc"}})
        catch_up(copy, history)
        assert read(copy) == history.expected()


def test_a_forked_child_cannot_use_the_copies_of_its_parent(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    with copy.begin() as reader:
        child = os.fork()
        if child == 0:
            refused = False
            try:
                LocalCopies.at(copy.path.parent)
            except StateError as error:
                refused = "before this process was forked" in str(error)
            finally:
                os._exit(0 if refused else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for number in range(5):
            history.commit({"t": {b"a": b"%d" % number}})
            catch_up(copy, history)
        assert contents(reader) == {"t": {b"a": b"1"}}


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StateError, match=r"shard 2 in .*file/00002.*cannot be opened"):
        LocalCopies(tmp_path / "file").shard(2)


def test_an_invalid_lmdb_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "00002").mkdir()
    (tmp_path / "00002" / "data.mdb").write_bytes(b"rubbish" * 10_000)
    with pytest.raises(StateError, match=r"shard 2 in .*cannot be opened.*delete its folder"):
        LocalCopies(tmp_path).shard(2)


def test_folder_names_distinguish_jobs_lineages_and_boots() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert folder_name("job", "l1") == f"job-l1-{boot}"
    assert "/" not in folder_name("a/b", "l1")
    assert len(folder_name("n" * 500, "l1")) < 200


def test_keys_that_do_not_ascend_are_found_when_a_snapshot_is_loaded(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateFileWriter, "_check", lambda *_: None)
    writer = StateFileWriter()
    writer.add(0, "t", [(b"b", b"1"), (b"a", b"2")])
    data, checksum = writer.finish()
    ref = FileRef("snapshot", len(data), checksum)
    with pytest.raises(CorruptError, match=r"state file snapshot, shard 0, table 't': its keys do not ascend"):
        folders.copy().catch_up(ShardParts(PartRef(ref, 2, 1, 1)), 2, lambda ref: StateFile.of(data, ref))


def test_tables_of_several_files_of_one_commit_are_applied_together(folders: Folders) -> None:
    made = {name: state_file(name, {0: {name: {b"k": name.encode()}}}) for name in ("a", "b")}
    parts = ShardParts(None, tuple(PartRef(ref, 4, 1, 1) for ref, _ in made.values()))
    copy = folders.copy()
    for _ in range(2):
        copy.catch_up(parts, 4, lambda ref: StateFile.of(made[ref.name][1], ref))
        assert read(copy) == {"a": {b"k": b"a"}, "b": {b"k": b"b"}}


@pytest.mark.parametrize("many_keys", [2, 2000])
def test_a_folder_that_is_removed_is_made_again_from_the_files(folders: Folders, many_keys: int) -> None:
    history, copy = History(folders.new()), folders.copy(many_keys=many_keys, many_pages=0)
    history.commit({"t": {b"%d" % n: b"1" for n in range(20)}})
    catch_up(copy, history)
    shutil.rmtree(copy.path.parent)
    history.commit({"t": {b"%d" % n: b"2" for n in range(10)}})
    catch_up(copy, history)
    assert read(copy) == history.expected()
    assert (copy.path / "data.mdb").exists()


def test_removing_a_folder_under_a_reader_does_not_affect_it(folders: Folders) -> None:
    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    catch_up(copy, history)
    with copy.begin() as reader:
        shutil.rmtree(copy.path.parent)
        history.commit({"t": {b"b": b"2"}})
        catch_up(copy, history)
        assert contents(reader) == {"t": {b"a": b"1"}}
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_folder_removed_during_a_commit_is_created_again(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    history, copy = History(folders.new()), folders.copy(many_keys=2, many_pages=0)
    history.commit({"t": {b"%d" % n: b"1" for n in range(20)}})
    removed: list[Path] = []
    apply = ShardCopy._apply

    def apply_and_remove(self: ShardCopy, *arguments: object) -> object:
        applied = apply(self, *arguments)  # type: ignore[arg-type]
        if not removed:
            removed.append(self.path.parent)
            shutil.rmtree(self.path.parent)
        return applied

    monkeypatch.setattr(ShardCopy, "_apply", apply_and_remove)
    catch_up(copy, history)
    assert removed
    assert read(copy) == history.expected()


@pytest.mark.parametrize(
    "error",
    [
        lmdb.MapResizedError("mdb_txn_begin: MDB_MAP_RESIZED"),
        lmdb.Error("mdb_env_open: No such file or directory"),
        FileNotFoundError(2, "No such file or directory"),
    ],
)
def test_opening_is_tried_again_while_others_enlarge_or_remove_the_copy(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failures = [error, error]
    opened = lmdb.open

    def open_later(*arguments: object, **options: object) -> object:
        if failures:
            raise failures.pop()
        return opened(*arguments, **options)

    monkeypatch.setattr(lmdb, "open", open_later)
    assert folders.copy().applied == 0
    assert not failures


def test_errors_that_reopening_cannot_cure_are_reported_at_once(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[object] = []

    def never(*arguments: object, **options: object) -> object:
        attempts.append(arguments)
        raise lmdb.InvalidError("mdb_env_open: MDB_INVALID: File is not an LMDB file")

    monkeypatch.setattr(lmdb, "open", never)
    with pytest.raises(StateError, match=r"shard 0 in .* bytes free\): it cannot be opened .*MDB_INVALID"):
        folders.copy()
    assert len(attempts) == 1


@pytest.mark.parametrize(
    "error", [lmdb.DiskError("mdb_put: No space left on device"), lmdb.Error("Disk quota exceeded")]
)
def test_a_full_local_disk_is_reported_with_its_folder(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*arguments: object) -> None:
        raise error

    history, copy = History(folders.new()), folders.copy()
    history.commit({"t": {b"a": b"1"}})
    with monkeypatch.context() as patch:
        patch.setattr("tidewheel._state.local_copy.apply_part", full)
        with pytest.raises(
            LocalDiskFull, match=rf"local disk is full, or fails: .*shard 0 in {copy.path} \([\d,]+ bytes free\)"
        ):
            catch_up(copy, history)
    catch_up(copy, history)
    assert read(copy) == history.expected()


def test_a_map_that_cannot_grow_is_reported_as_a_full_disk(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    history, copy = History(folders.new()), folders.copy(map_size=1 << 16)
    history.commit({"t": {b"%d" % n: os.urandom(1000) for n in range(300)}})
    monkeypatch.setattr(ShardCopy, "_make_room", lambda self, raw_bytes: None)

    class Fixed:
        """The environment, whose map does not grow."""

        def __init__(self, environment: object) -> None:
            self._environment = environment

        def __getattr__(self, name: str) -> object:
            return getattr(self._environment, name)

        def set_mapsize(self, size: int) -> None:
            raise lmdb.Error("mdb_env_set_mapsize: Cannot allocate memory")

    copy._environment = Fixed(copy._environment)
    with pytest.raises(LocalDiskFull, match=r"the map cannot grow to 131072 bytes"):
        catch_up(copy, history)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_only_its_user_can_read_a_copy(folders: Folders) -> None:
    folder = folders.root / "tidewheel" / "job"
    before = os.umask(0o022)
    try:
        copies = LocalCopies.at(folder)
        folders.opened.append(copies)
        copies.shard(0)
    finally:
        os.umask(before)
    assert modes(folder.parent) == {0o700, 0o600}


def test_an_open_folder_of_this_user_is_closed_to_others(folders: Folders) -> None:
    folder = folders.new()
    folder.mkdir(0o755)
    folders.opened.append(LocalCopies.at(folder))
    folders.opened[-1].shard(0)
    assert modes(folder) == {0o700, 0o600}


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_of_another_user_is_refused(folders: Folders, monkeypatch: pytest.MonkeyPatch, above: bool) -> None:
    own, other = os.geteuid(), os.geteuid() + 1
    folder = folders.new() / "job"
    folder.mkdir(0o777, parents=True)
    theirs = folder.parent if above else folder
    for name in ("lstat", "fstat"):
        monkeypatch.setattr(os, name, _owned_by(getattr(os, name), other, theirs))
    with pytest.raises(ConfigError, match=f"the folder {theirs} .* the user {other}, .*runs as user {own}"):
        LocalCopies(folder).shard(0)


def test_a_link_of_another_user_to_the_folder_is_refused(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its owner chooses whose folder gets the mode 0700, and where the local copies are."""
    other = os.geteuid() + 1
    aim, link = folders.new(), folders.new()
    aim.mkdir(0o755)
    link.symlink_to(aim)
    LocalCopies(link / "own").shard(0)
    monkeypatch.setattr(os, "lstat", _owned_by(os.lstat, other, link))
    with pytest.raises(ConfigError, match=f"the folder {link} .* is a symbolic link of the user {other}"):
        LocalCopies(link).shard(0)
    assert modes(aim) >= {0o755}


def test_a_folder_that_everybody_may_rename_is_warned_of(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    """It is not refused: so are volumes of containers, which have one user."""
    for mode, warned in ((0o1777, False), (0o777, True)):
        above = folders.new()
        above.mkdir()
        above.chmod(mode)
        LocalCopies(above / "job").shard(0)
        assert any(f"rename the content of {above}" in text for text in caplog.messages) == warned


def _owned_by(look: Callable[..., os.stat_result], owner: int, path: Path) -> Callable[..., os.stat_result]:
    """Return a function that says of one file that it has another owner: only root could make such a file."""

    def status(file: object, *arguments: object, **options: object) -> os.stat_result:
        found = look(file, *arguments, **options)
        there = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)
        return os.stat_result((*found[:4], owner, *found[5:10])) if there == str(path) else found

    return status
