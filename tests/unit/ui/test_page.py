"""The page's server: every view with odd, damaged and hostile data, and changes that need a confirmation."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import msgspec
import pytest

import tidewheel
from support.page_site import HOSTILE, TOKEN, asked, replayable_job, served, stored_job, write_history
from tidewheel import Job, StoredJob, cells, sinks, sources
from tidewheel._engine.job_lease import Holder, this_process
from tidewheel._engine.job_run import JobRun
from tidewheel._observe.history import History
from tidewheel._ui.app import VIEWS
from tidewheel._ui.site import Site
from tidewheel._ui.views.jobs import jobs
from tidewheel.errors import StorageError
from tidewheel.testing import run_in_memory

STATIC = Path(tidewheel.__file__).parent / "_ui" / "static"


@pytest.fixture
def url(tmp_path):
    stored_job(f"{tmp_path}/state")
    write_history(f"{tmp_path}/state")
    return f"{tmp_path}/state"


@pytest.fixture
def page(url):
    with served(url, changes=True) as page:
        yield page


def answer(page, path):
    status, body = asked(page, path)
    assert status == 200, body
    return body


def change(page, **wanted):
    return asked(page, "/api/changes", body={"job": "clicks"} | wanted, Authorization=f"Bearer {TOKEN}")


def confirm(page, code):
    return asked(page, f"/api/changes/{code}", body={}, Authorization=f"Bearer {TOKEN}")


def test_the_list_of_jobs_shows_state_rate_lag_and_the_last_error(page):
    (job,) = answer(page, "/api/jobs")
    # What came to the sources of a job that does not run, nobody knows.
    assert (job["name"], job["state"], job["rows_behind"]) == ("clicks", "failed", None)
    assert job["rate"] is None, "it does not run"
    assert job["error"]["text"] == f"step 'count': {HOSTILE}"


def test_a_job_shows_its_graph_and_an_ended_job_its_slowest_step(page):
    job = answer(page, "/api/job?job=clicks")
    slowest = [each["name"] for each in job["steps"] if each["slowest"]]
    assert slowest == ["count"]
    assert job["worked_at"] <= job["now"]
    assert job["hot_keys"] == [{"step": "by-user", "key": "'ada'", "share": 0.5}]
    assert [each["inputs"] for each in job["steps"]] == [[], [["clicks", 0]], [["by-user", 0]], [["count", 0]]]


def test_every_view_answers(page):
    more = {
        "diff": "&before=1&after=2",
        "checkpoint": "&at=2",
        "browse": "&step=count",
        "key": "&step=count&key=ada",
        "past": "&step=count&key=ada",
    }
    for view in VIEWS.keys() - {"records"}:  # It needs the program.
        answer(page, f"/api/{view}?job=clicks{more.get(view, '')}")


def test_a_key_is_looked_up_now_and_at_every_kept_checkpoint(page):
    assert answer(page, "/api/key?job=clicks&step=count&key=ada")["value"] == 2
    past = answer(page, "/api/past?job=clicks&step=count&key=ada")
    assert [row.get("value") for row in past][-1:] == [None], "the first commit is the claim"
    assert past[0]["value"] == 2


def test_keys_are_browsed_by_prefix(page):
    found = answer(page, "/api/browse?job=clicks&step=count&prefix=a")
    assert (found["rows"], found["complete"]) == ([{"key": "ada", "value": 2}], True)


def test_a_checkpoint_shows_its_changes(page):
    (table,) = answer(page, "/api/diff?job=clicks&before=1&after=2")["tables"]
    assert (table["table"], table["added"]) == ("count", 3)
    assert HOSTILE in [change["key"] for change in table["samples"]]


def test_bad_arguments_are_refused_by_name(page):
    assert asked(page, "/api/key?job=clicks&step=count") == (400, {"error": "the argument 'key' is missing"})
    for wrong in ("soon", "nan", "inf"):
        assert asked(page, f"/api/batches?job=clicks&since={wrong}") == (409, {"error": f"'{wrong}' is not a number"})
    assert asked(page, "/api/verify?job=clicks&at=%C2%B2")[0] == 409
    assert asked(page, "/api/checkpoint?job=clicks&at=%C2%B2")[0] in (404, 409)
    assert asked(page, f"/api/key?job=clicks&step=count&key={'[' * 20_000}")[0] in (200, 404)
    assert asked(page, f"/api/key?job=clicks&{'a=1&' * 200}")[0] == 400
    status, body = asked(page, "/api/key?job=clicks&step=nowhere&key=ada")
    assert (status, "has no step 'nowhere'" in body["error"]) == (404, True)
    assert asked(page, "/api/job?job=nobody")[0] == 404
    assert asked(page, "/api/nothing?job=clicks")[0] == 404


def test_a_damaged_checkpoint_is_shown_as_one_and_the_others_stay(url, page):
    chain = Path(url) / "clicks" / "chain"
    (first, *_) = sorted(path for path in chain.iterdir())
    first.write_bytes(first.read_bytes()[:-20] + b"x" * 20)
    rows = answer(page, "/api/checkpoints?job=clicks")["checkpoints"]
    assert [row["kind"] for row in rows if "error" in row] == ["damaged"]
    assert len(rows) > 1
    assert answer(page, "/api/verify?job=clicks")["problems"]


def test_a_damaged_newest_checkpoint_does_not_hide_the_other_jobs(url):
    stored_job(url, "orders")
    newest = sorted((Path(url) / "clicks" / "chain").iterdir())[-1]
    newest.write_bytes(b"nonsense")
    with served(url) as page:
        states = {job["name"]: job["state"] for job in answer(page, "/api/jobs")}
        assert states == {"clicks": "unreadable", "orders": "stopped"}
        assert asked(page, "/api/job?job=clicks")[0] in (200, 409)


def test_a_job_that_is_deleted_while_the_page_is_open(url, page):
    answer(page, "/api/job?job=clicks")
    shutil.rmtree(f"{url}/clicks")
    for view in ("shards", "steps", "cells"):
        deadline = time.monotonic() + 60
        while (status := asked(page, f"/api/{view}?job=clicks")[0]) != 404:
            assert status in (200, 409)
            assert time.monotonic() < deadline, f"{view} goes on showing a job that is gone"
    assert answer(page, "/api/jobs")[0]["state"] == "gone", "its history is still there"


def begun(url, name="first"):
    """Begin to start a job that has no commit; return its run."""
    job = Job(name, state=url)
    job.source("in", sources.iterable([1])).sink("out", sinks.discard())
    run = JobRun(job, job.plan())
    run.enter("Spark")
    run.reserve()
    return run


def states(url):
    site = Site(url)
    try:
        return {row["name"]: (row["state"], row.get("phase")) for row in jobs(site)}
    finally:
        site.close()


def leave_lease(job, **told):
    """Leave a job's lease as a run does that this machine has killed."""
    with cells.open(job.cells_url) as connection:
        cell = connection.writer("holder", Holder, namespace="job", type_name="tidewheel.JobHolder")
        cell.write(msgspec.structs.replace(this_process("dead"), process_started=-1, **told))


def test_a_job_in_its_first_start_is_listed_and_can_be_stopped(url, page):
    run = begun(url)
    assert states(url)["first"] == ("starting", "Spark")
    deadline = time.monotonic() + 60
    while len(answer(page, "/api/jobs")) < 2:
        assert time.monotonic() < deadline, "the page does not show a job that is starting"
    assert answer(page, "/api/job?job=first")["state"] == "starting"
    for view in ("batches", "shards", "checkpoints", "steps", "cells", "errors"):
        assert asked(page, f"/api/{view}?job=first")[0] in (200, 404), view
    status, first = change(page, job="first", what="stop")
    assert (status, "The run of first finishes" in first["says"]) == (200, True)
    run.release()
    assert "first" not in states(url), "nothing is left of it"


def test_a_killed_or_failed_first_start_is_shown_as_such(url):
    begun(url, "failed").release(failed=True)
    run = begun(url, "killed")
    run.release()
    leave_lease(run.job, phase="hosts")
    told = states(url)
    assert (told["failed"], told["killed"]) == (("failed", "Spark"), ("killed", "hosts"))


def test_a_run_killed_while_starting_is_shown_as_killed(tmp_path):
    url = f"{tmp_path}/quiet"
    job = stored_job(url)
    assert states(url) == {"clicks": ("stopped", None)}
    leave_lease(job, phase="Spark")
    assert states(url) == {"clicks": ("killed", "Spark")}, "also of a job without a history"


def test_a_store_that_does_not_answer_for_a_moment_hides_no_other_job(url, monkeypatch):
    stored_job(url, "other")
    run = begun(url)

    def away(self, job, run):
        raise StorageError("the server does not answer")

    monkeypatch.setattr(History, "lag", away)
    site = Site(url)
    told = {row["name"]: row for row in jobs(site)}
    site.close()
    assert (told["first"]["state"], told["first"]["error"]["text"]) == ("unreachable", "the server does not answer")
    assert (told["clicks"]["state"], told["other"]["state"]) == ("failed", "stopped")
    run.release()


def test_a_change_is_asked_twice(url, page):
    status, first = change(page, what="savepoint", name="before-upgrade")
    assert status == 200, first
    assert StoredJob("clicks", state=url).savepoints() == [], "asking alone changes nothing"
    assert confirm(page, first["code"]) == (200, {"done": "savepoint before-upgrade of checkpoint 3"})
    assert [pin.name for pin in StoredJob("clicks", state=url).savepoints()] == ["before-upgrade"]
    assert confirm(page, first["code"])[0] == 404, "a code is good once"


def test_a_savepoint_holds_the_shown_checkpoint_although_the_job_moved_on(url, page):
    _, said = change(page, what="savepoint", name="shown")
    assert said["says"].startswith("Checkpoint 3 of clicks gets the name")
    assert StoredJob("clicks", state=url).restore(1).sequence == 4
    assert confirm(page, said["code"])[1] == {"done": "savepoint shown of checkpoint 3"}


def test_a_savepoint_of_a_savepoint_is_of_the_checkpoint_that_was_named(page):
    for wanted in ({"name": "old", "at": 1}, {"name": "copy", "at": "old"}):
        _, said = change(page, what="savepoint", **wanted)
        assert said["says"].startswith("Checkpoint 1 of clicks")
        assert confirm(page, said["code"])[1] == {"done": f"savepoint {wanted['name']} of checkpoint 1"}


def test_impossible_changes_are_refused_at_the_request(page):
    for wanted, words in [
        ({"what": "set_cell", "name": "treshold", "value": 1}, "it declares threshold"),
        ({"what": "set_cell", "name": "threshold", "value": "many"}, "declared as int"),
        ({"what": "rescale", "parallelism": 1000}, "from 1 to 64"),
        ({"what": "savepoint"}, "needs a name"),
        ({"what": "explode"}, "not understood"),
        ({"what": "stop", "more": 1}, "not understood"),
    ]:
        status, body = change(page, **wanted)
        assert status in (400, 404, 409)
        assert words in body["error"]


def test_a_value_that_is_not_of_a_cells_type_is_refused(url, page):
    job = Job("rated", state=url)
    job.cell("rates", dict[str, float], default={})
    job.source("in", sources.iterable([{"user": "ada"}])).sink("out", sinks.collect())
    run_in_memory(job, state=url)
    for value in ("hello", [1], {"EUR": "0.9"}):
        status, body = change(page, job="rated", what="set_cell", name="rates", value=value)
        assert status == 409, body
        assert "declared as dict[str, float]" in body["error"]
    assert change(page, job="rated", what="set_cell", name="rates", value={"EUR": 0.9})[0] == 200


def test_a_cell_is_set_and_the_change_is_logged(page, caplog):
    code = change(page, what="set_cell", name="threshold", value=9)[1]["code"]
    assert confirm(page, code)[0] == 200
    (cell,) = answer(page, "/api/cells?job=clicks")
    assert (cell["value"], cell["type"]) == (9, "int")
    assert cell["author"]["program"] == "tidewheel ui"
    assert "changed from the page: job clicks, set_cell" in caplog.text


def test_without_the_token_nothing_changes(url, page):
    stop = {"job": "clicks", "what": "stop"}
    assert asked(page, "/api/changes", body=stop, Authorization="Bearer guess")[0] == 401
    assert asked(page, "/api/jobs", Authorization="")[0] == 401
    with served(url) as reading:
        assert change(reading, what="stop")[0] == 403


def test_the_page_asks_no_other_host_and_reads_nothing_as_html():
    sources = [
        path for path in STATIC.rglob("*") if path.suffix in (".js", ".html", ".css") and path.parent.name != "vendor"
    ]
    assert sources
    for path in sources:
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        outside = [link for link in re.findall(r"https?://[^\s\"')]+", text) if "www.w3.org" not in link]
        assert not outside, path


def test_vendored_libraries_carry_their_licences():
    names = {path.name for path in (STATIC / "vendor").iterdir()}
    for library in {name.split("-")[0] for name in names}:
        assert f"{library}-LICENSE" in names


def test_answers_have_headers_that_restrict_the_browser(page):
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/") as got:
        assert "default-src 'none'" in got.headers["Content-Security-Policy"]
        assert got.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_shows_the_records_of_a_key_in_a_batch(tmp_path):
    url = f"{tmp_path}/state"
    program = replayable_job(url)
    with served(url, programs={"spent": program}) as page:
        newest, before = [row["sequence"] for row in answer(page, "/api/past?job=spent&step=total&key=ada")][1:3]
        found = []
        for sequence in (before, newest):
            path = f"/api/records?job=spent&step=total&key=ada&at={sequence}"
            while (told := answer(page, path)).get("running"):
                pass
            found.append([(row["place"], row["before"], row["after"], row["dropped"]) for row in told["records"]])
        assert found == [
            [({"item": 0}, None, 5, None)],
            [({"item": 2}, None, None, "step 'paid'"), ({"item": 3}, 5, -895, None)],
        ]
        status, told = asked(page, "/api/records?job=spent&step=total&key=ada&at=1")
        assert (status, "has no batch" in told["error"]) == (409, True)
    with served(url) as page:
        status, told = asked(page, f"/api/records?job=spent&step=total&key=ada&at={newest}")
        assert (status, "tidewheel ui --records PROGRAM" in told["error"]) == (409, True)
