"""Which requests the page accepts from whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._core.http_guard import guard_for, open_guard_for

OURS = {"host": "127.0.0.1:7080"}
WITH_TOKEN = OURS | {"authorization": "Bearer secret"}


def status(guard, method, path, headers):
    refused = guard.refusal(method, path, headers)
    return None if refused is None else refused[0]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7080", "127.0.0.1.evil.example", "", "[::2]:7080"])
def test_a_name_that_a_stranger_points_at_this_machine_is_refused(host):
    assert status(guard_for("127.0.0.1"), "GET", "/api/jobs", {"host": host}) == 421


@pytest.mark.parametrize("host", ["127.0.0.1:7080", "localhost:7080", "LOCALHOST", "[::1]:7080"])
def test_reading_needs_the_token_on_this_machine_too(host):
    """Every user of the machine reaches its loopback."""
    guard = guard_for("127.0.0.1", token="secret")
    assert status(guard, "GET", "/api/jobs", {"host": host}) == 401
    assert status(guard, "GET", "/api/jobs", {"host": host, "authorization": "Bearer secret"}) is None
    assert status(guard, "GET", "/", {"host": host}) is None, "the page itself holds nothing of a job"


@pytest.mark.parametrize(
    ("bound", "host", "refused"),
    [
        ("127.0.0.1", "127.0.0.1:9090", None),
        ("127.0.0.1", "localhost", None),
        ("127.0.0.1", "evil.example:9090", 421),
        ("127.0.0.1", "10.0.0.7:9090", 421),
        ("0.0.0.0", "10.0.0.7:9090", None),
        ("0.0.0.0", "[fd00::7]:9090", None),
        ("0.0.0.0", "clicks-metrics:9090", None),
        ("0.0.0.0", "clicks.jobs.svc:9090", None),
        ("0.0.0.0", "evil.example:9090", 421),
        ("0.0.0.0", "", 421),
        ("metrics.example", "metrics.example:9090", None),
    ],
)
def test_metrics_are_served_to_addresses_and_private_names_only(bound, host, refused):
    assert status(open_guard_for(bound), "GET", "/metrics", {"host": host}) == refused


def test_only_a_server_with_the_option_names_allow_host():
    for guard, named in ((guard_for("127.0.0.1"), True), (open_guard_for("127.0.0.1"), False)):
        assert ("--allow-host" in guard.refusal("GET", "/metrics", {"host": "evil.example"})[1]) == named


def test_requests_from_another_page_are_refused():
    guard = guard_for("127.0.0.1", changes=True, token="secret")
    for foreign in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert status(guard, "GET", "/api/jobs", OURS | foreign) == 403
        assert status(guard, "POST", "/api/changes", WITH_TOKEN | foreign) == 403
    own = {"origin": "http://127.0.0.1:7080", "sec-fetch-site": "same-origin"}
    assert status(guard, "POST", "/api/changes", WITH_TOKEN | own) is None


def test_changes_need_the_option_and_the_token():
    assert status(guard_for("127.0.0.1", token="secret"), "POST", "/api/changes", WITH_TOKEN) == 403
    guard = guard_for("127.0.0.1", changes=True, token="secret")
    assert status(guard, "POST", "/api/changes", OURS) == 401
    for wrong in ("Bearer other", "secret", "Bearer", "Basic secret", "Bearer sécret"):
        assert status(guard, "POST", "/api/changes", OURS | {"authorization": wrong}) == 401
    assert status(guard, "POST", "/api/changes", WITH_TOKEN) is None


def test_where_others_can_ask_reading_needs_the_token():
    guard = guard_for("0.0.0.0", ("tide.example",), token="secret")
    asked = {"host": "tide.example"}
    assert status(guard, "GET", "/api/jobs", asked) == 401
    assert status(guard, "GET", "/api/jobs", asked | {"authorization": "Bearer secret"}) is None
    assert status(guard, "GET", "/", asked) is None, "the page itself holds nothing of a job"
    assert status(guard, "GET", "/", {"host": "other.example"}) == 421


def test_two_pages_have_two_tokens():
    assert guard_for("127.0.0.1").token != guard_for("127.0.0.1").token


@given(
    method=st.sampled_from(["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
    token=st.text(max_size=8),
    path=st.sampled_from(["/", "/api/changes", "/api/jobs", "/static/main.js"]),
)
def test_no_guess_changes_anything(method, token, path):
    guard = guard_for("127.0.0.1", changes=True, token="a-long-token")
    assert status(guard, method, path, OURS | {"authorization": f"Bearer {token}"}) in (401, 405)
