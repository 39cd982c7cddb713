"""URLs with passwords: what is read from them, and that nothing shows the password."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from tidewheel._core.urls import Host, Url
from tidewheel.errors import ConfigError

SCHEMES, WHAT = ("nats", "tls"), "a server, as in nats://localhost:4222"


def test_everything_is_decoded():
    server = Url("nats://a%40b:p%40s%2Fs%2C%3F%23@one:1,[::1]:2,three/deep%20path?ca=a%40b.pem").server(
        SCHEMES, WHAT, ("ca",)
    )
    assert (server.user, server.password) == ("a@b", "p@s/s,?#")
    assert server.hosts == (Host("one", 1), Host("::1", 2), Host("three", None))
    assert (server.path, dict(server.settings)) == ("deep path", {"ca": "a@b.pem"})
    assert server.shown == "nats://one:1,[::1]:2,three/deep%20path"
    assert [host.url("nats", 4222) for host in server.hosts] == ["nats://one:1", "nats://[::1]:2", "nats://three:4222"]


def test_a_comma_in_a_password_is_no_second_host():
    server = Url("nats://ada:pa,ss@one:4222/x").server(SCHEMES, WHAT)
    assert (server.password, server.hosts) == ("pa,ss", (Host("one", 4222),))


@pytest.mark.parametrize(
    "url",
    [
        "nats://ada:SEC/RET@one:4222/x",
        "nats://ada:SEC?RET@one:4222/x",
        "nats://ada:SEC#RET@one:4222/x",
        "nats://ada:SEC@RET@one:4222/x",
        "nats://ada:12/RET@one:4222/x",
        "nats://ada:SECRET",
        "nats://ada:SEC/RET",
        "nats://SEC:RET:7/x",
        "nats://ada:SECRET@one:70000000/x",
        "nats://ada:SECRET@/x",
        "nats://ada:SECRET@one/x?SECRET=1",
        "redis://ada:SECRET@one/x",
        "redis:ada:SECRET@one/x",
        "redis:ada:SECRET",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(ConfigError) as refused:
        Url(url).server(SCHEMES, WHAT)
    text = str(refused.value).replace("unknown setting 'SECRET'", "")
    assert "SEC" not in text
    assert "RET" not in text
    assert refused.value.__cause__ is None


def test_no_form_of_printing_shows_the_password():
    @dataclass
    class Options:
        url: Url
        hosts: dict[str, Url]

    url = Url("etcd://ada:SECRET@host:2379/app?key=SECRET")
    texts = [str(url), repr(url), f"{url}", f"{url!r:>50}", repr(Options(url, {"a": url})), repr([url])]
    assert all("host:2379/app" in text and "SECRET" not in text for text in texts)
    server = url.server(("etcd",), WHAT, ("key",))
    assert "SECRET" not in repr(server)


def test_a_log_in_is_known():
    assert Url("etcd://ada@h").has_login
    assert not any(
        Url(text).has_login for text in ("etcd://h/x", "memory:a@b", "/a@b", "s3://bucket/a@b", "abfss://c@h/x")
    )


def test_it_travels_whole():
    url = pickle.loads(pickle.dumps(Url("nats://ada:SECRET@one/x")))
    assert url == Url("nats://ada:SECRET@one/x") == Url(url)
    assert url.server(SCHEMES, WHAT).password == "SECRET"


@pytest.mark.parametrize(
    "text", ["/data/me@home", "data", "file:///a@b?c", "memory:x", "s3://bucket/a@b", "abfss://c@h/x"]
)
def test_places_without_secrets_are_shown_as_they_are(text):
    assert str(Url(text)) == text
