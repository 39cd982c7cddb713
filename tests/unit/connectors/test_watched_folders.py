"""Large folders, in which only names that the system reports are looked at."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

import pytest

from support.waiting import eventually
from tidewheel._connectors.files.listing import LocalListing, Pattern
from tidewheel._connectors.files.taken import TakenFiles


@pytest.fixture
def watched(tmp_path):
    """Return a listing that watches every folder, however small."""
    listing = LocalListing(str(tmp_path), Pattern(), watched_from=0)
    listing.files(TakenFiles())
    yield listing
    listing.close()


def paths(listing: LocalListing, taken: TakenFiles) -> set[str]:
    return {file.path for file in listing.files(taken)}


def test_new_names_in_a_watched_folder_need_no_listing(watched, tmp_path, monkeypatch):
    taken = TakenFiles()
    monkeypatch.setattr(os, "listdir", None)
    for number in range(50):
        hidden = tmp_path / f".{number}.json"
        hidden.write_text("{}")
        assert watched.files(taken) == []
        hidden.rename(tmp_path / f"{number}.json")
        assert paths(watched, taken) == {f"{tmp_path}/{number}.json"}
        # Another look finds a file that no batch has taken.
        assert paths(watched, taken) == {f"{tmp_path}/{number}.json"}
        taken.add(f"{tmp_path}/{number}.json")


def test_a_change_that_is_not_reported_leads_to_a_listing(watched, tmp_path):
    """For example one that another host makes on a network file system."""
    (tmp_path / "a.json").write_text("{}")
    watched._watch.appeared()
    assert paths(watched, TakenFiles()) == {f"{tmp_path}/a.json"}


def test_reports_that_the_system_dropped_lead_to_a_listing(watched, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("{}")
    assert paths(watched, TakenFiles()) == {f"{tmp_path}/a.json"}
    (tmp_path / "b.json").write_text("{}")
    monkeypatch.setattr(watched._watch, "appeared", lambda: None)
    assert paths(watched, TakenFiles()) == {f"{tmp_path}/{name}.json" for name in "ab"}


@pytest.mark.parametrize("seed", range(20))
def test_a_watched_folder_equals_a_plain_listing_after_any_changes(watched, tmp_path, seed):
    draw, taken = random.Random(seed), TakenFiles()
    held: set[str] = set()

    def folder() -> Path:
        return draw.choice([tmp_path, *sorted(tmp_path.glob("day=*"))])

    def remove_folder() -> None:
        for found in sorted(tmp_path.glob("day=*"))[:1]:
            shutil.rmtree(found)

    def take() -> None:
        for file in watched.files(taken)[: draw.randint(0, 3)]:
            taken.add(file.path)
            held.add(file.path)

    def give_back() -> None:
        for path in sorted(held)[:1]:
            held.discard(path)
            taken.discard(path)
            watched.forget()

    def rename() -> None:
        (folder() / ".part").write_text("")
        for found in sorted(tmp_path.rglob(".part"))[:1]:
            found.rename(found.with_name(f"{draw.randint(0, 9)}.csv"))

    def delete() -> None:
        for found in sorted(tmp_path.rglob("*.csv"))[:1]:
            found.unlink()

    changes = [
        lambda: (folder() / f"{draw.randint(0, 9)}.csv").write_text(""),
        lambda: (tmp_path / f"day={draw.randint(0, 2)}").mkdir(exist_ok=True),
        rename,
        delete,
        remove_folder,
        take,
        give_back,
    ]
    for _ in range(60):
        for change in draw.sample(changes, draw.randint(1, 2)):
            change()
        plain = LocalListing(str(tmp_path), Pattern())
        assert paths(watched, taken) == paths(plain, taken), f"seed {seed}"


def test_no_file_of_racing_writers_is_missed(watched, tmp_path):
    def write(writer: int) -> None:
        for number in range(300):
            part = tmp_path / f".{writer}-{number}"
            part.write_text("")
            part.rename(tmp_path / f"{writer}-{number}.csv")

    writers = [threading.Thread(target=write, args=[number]) for number in range(3)]
    for writer in writers:
        writer.start()
    taken, found = TakenFiles(), list[str]()

    def all_found() -> bool:
        for file in watched.files(taken):
            taken.add(file.path)
            found.append(file.path)
        return len(found) >= 900

    eventually(all_found, "all files")
    assert len(set(found)) == len(found) == 900
