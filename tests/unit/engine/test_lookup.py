"""Live look-ups: the last committed value of a key and its sequence, from Python and over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

import pytest

from tidewheel import Job
from tidewheel._engine.query_server import Endpoint
from tidewheel.errors import ConfigError, GraphError, NotFound
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


@dataclass
class Seen:
    n: int = 0


def count(key, record: dict, seen: Seen) -> tuple[int, Seen]:
    return seen.n, Seen(seen.n + 1)


@pytest.fixture
def job(tmp_path) -> Job:
    made = Job("live", state=f"file://{tmp_path}/state", n_shards=4)
    stream = made.source("in", iterable([]), type=dict).key_by("by", lambda record: record["key"])
    stream.stateful_map("seen", count).sink("out", collect())
    return made


def batch(run: MemoryRun, *keys) -> None:
    for key in keys:
        run.batch({"in": [{"key": key}]})


def test_a_query_answers_with_the_last_committed_value_while_the_job_runs(job):
    with pytest.raises(NotFound):
        job.query("seen", "ada")
    with MemoryRun(job) as run:
        assert job.query("seen", "ada").found is False
        batch(run, "ada")
        found = job.query("seen", "ada")
        assert (found.value, found.sequence) == (Seen(1), 2)
        batch(run, "ada", "bob")
        found = job.query("seen", "ada")
        assert (found.value, found.sequence) == (Seen(2), 4)
    with pytest.raises(GraphError, match="no step 'sean' with state; there are 'seen'"):
        job.query("sean", "ada")


def fetch(url: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_endpoint_answers_the_same_on_the_loopback_interface_alone(job):
    with MemoryRun(job) as run, Endpoint(job._lookup(), 0) as endpoint:
        batch(run, "a/b c", "ä")
        assert endpoint.url.startswith("http://127.0.0.1:")
        answer = {"step": "seen", "key": "a/b c", "found": True, "value": {"n": 1}, "sequence": 3}
        assert fetch(f"{endpoint.url}/seen/a%2Fb%20c") == (200, answer)
        assert fetch(f"{endpoint.url}/seen/%C3%A4")[0] == 200
        status, answer = fetch(f"{endpoint.url}/seen/nobody")
        assert (status, answer["found"], answer["value"]) == (404, False, None)
        status, answer = fetch(f"{endpoint.url}/nothing/ada")
        assert (status, "no step 'nothing'" in answer["error"]) == (404, True)
        assert fetch(f"{endpoint.url}/seen")[0] == 400
        with pytest.raises(ConfigError, match=f"port {endpoint.port}"):
            Endpoint(job._lookup(), endpoint.port)


def test_a_number_in_a_request_is_the_number_or_the_text_that_has_state(job):
    with MemoryRun(job) as run, Endpoint(job._lookup(), 0) as endpoint:
        batch(run, 7)
        assert fetch(f"{endpoint.url}/seen/7")[1]["key"] == 7
    job.state += "-2"
    with MemoryRun(job) as run, Endpoint(job._lookup(), 0) as endpoint:
        batch(run, "7")
        assert fetch(f"{endpoint.url}/seen/7")[1]["key"] == "7"
