"""The doctor's checks of a state URL, against a folder, a real S3 server, and a server without conditional puts."""

from __future__ import annotations

import os
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidewheel import Job, sinks, sources
from tidewheel._doctor.store import check_store, remove
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError
from tidewheel.testing import MemoryRun

LISTING = (
    '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>',
    "<Contents><Key>{}</Key><Size>{}</Size><LastModified>2026-11-18T08:00:00.000Z</LastModified><ETag>1</ETag></Contents>",
)


def levels(url: str) -> list[tuple[str, str]]:
    """Return level and text of the findings, and check that nothing is left behind."""
    store = open_store(url)
    found = list(check_store(store, "doctor-test"))
    remove(store, "doctor-test")
    assert store.list() == []
    return [(finding.level, finding.text) for finding in found]


def test_a_folder_passes_every_check(tmp_path):
    found = levels(f"file://{tmp_path}/state")
    assert [text.partition(" takes")[0] for _, text in found][1:] == [
        "it has conditional puts: of several writers, one succeeds",
        "its clock is within 5 s of this machine's",
        "to create an object",
        "to read an object",
    ]
    assert {level for level, _ in found} <= {"fine", "slow"}


def test_an_s3_server_with_conditional_puts_passes(seaweedfs):
    assert "missing" not in {level for level, _ in levels(seaweedfs.url("doctor"))}


class WithoutConditions(BaseHTTPRequestHandler):
    """An S3 server that ignores If-None-Match, and whose clock stands still."""

    objects: dict[str, bytes]

    def do_PUT(self):
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"", {"ETag": '"1"'})

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if query:
            bucket, prefix = path.rstrip("/") + "/", urllib.parse.parse_qs(query).get("prefix", [""])[0]
            keys = {key.removeprefix(bucket): len(data) for key, data in self.objects.items()}
            entries = [LISTING[1].format(key, size) for key, size in sorted(keys.items()) if key.startswith(prefix)]
            self.answer(200, LISTING[0].format("".join(entries)).encode(), {"Content-Type": "application/xml"})
        elif path in self.objects:
            made = {"ETag": '"1"', "Last-Modified": "Wed, 18 Nov 2026 08:00:00 GMT"}
            self.answer(200, self.objects[path], made)
        else:
            self.answer(404, b"", {})

    def do_POST(self):
        """Delete several objects."""
        keys = re.findall("<Key>(.*?)</Key>", self.rfile.read(int(self.headers["Content-Length"])).decode())
        for key in keys:
            self.objects.pop(f"{self.path.partition('?')[0].rstrip('/')}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {"Content-Type": "application/xml"})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def without_conditions(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    handler = type("Handler", (WithoutConditions,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"s3://bucket/state?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1"
        server.shutdown()
        thread.join()


def test_a_store_without_conditional_puts_is_refused(without_conditions):
    found = list(check_store(open_store(without_conditions), "doctor-test"))
    (refused,) = [finding for finding in found if finding.level == "missing"]
    assert "has no conditional puts, so two runs could overwrite each other: 8 of 8 writers" in refused.text
    assert refused.fix.startswith("use a store with conditional puts: S3, GCS, Azure")


def test_the_first_start_of_a_job_refuses_a_store_without_conditional_puts(without_conditions):
    job = Job("unsafe", state=without_conditions)
    job.source("in", sources.iterable([])).sink("out", sinks.collect())
    with pytest.raises(
        ConfigError, match=r"two runs could overwrite each other; use a store with conditional puts: S3"
    ):
        MemoryRun(job)
    assert not any("/probe-" in entry.path for entry in open_store(without_conditions).list())


def test_a_store_whose_clock_is_wrong_is_reported(without_conditions):
    (wrong,) = [text for level, text in levels(without_conditions) if level == "slow" and "clock" in text]
    assert "this machine's: ages and lags will be wrong" in wrong


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "state").write_text("a file")
    (refused,) = check_store(open_store(f"file://{tmp_path}/state"), "doctor-test")
    assert refused.level == "missing"
    assert refused.fix.startswith("correct --state")


def test_credentials_that_are_refused_are_named(seaweedfs, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    # A client is kept for each URL, with the credentials that it was made with.
    url = seaweedfs.url(f"doctor-{os.getpid()}")
    (refused,) = check_store(open_store(url), "doctor-test")
    assert (refused.level, refused.fix.partition(",")[0]) == ("missing", "allow the job to read")
