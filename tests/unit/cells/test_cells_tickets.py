from __future__ import annotations

import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tidewheel import cells
from tidewheel._cells.credentials import Presented
from tidewheel._cells.record import FORMAT, CellRecord, encode
from tidewheel.cells import Ticket, TicketIssuer, TicketRefused, TicketValidator
from tidewheel.errors import ConfigError

SECRET = "s" * 32
KEY = Ed25519PrivateKey.generate()
PRIVATE_PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC_PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def presented(text, proof=None, signed=b"what is written"):
    return Presented(text, proof, signed)


def test_keys_may_be_pem():
    issuer = TicketIssuer(PRIVATE_PEM, audience="app", algorithm="EdDSA")
    validate = TicketValidator(PUBLIC_PEM, audience="app", algorithm="EdDSA")
    text = issuer.issue("me", lifetime="60 s", writer_key=PUBLIC_PEM)
    validate(presented(text, Ticket(text, PRIVATE_PEM).prove(b"what is written")))
    with pytest.raises(TicketRefused, match="not signed with the key"):
        validate(presented(text, Ticket(text, PRIVATE_PEM).prove(b"something else")))


def test_leeway_forgives_clocks_that_differ():
    text = TicketIssuer(SECRET, audience="app").issue("me", lifetime="0 s")
    with pytest.raises(TicketRefused, match="expired"):
        TicketValidator(SECRET, audience="app")(presented(text))
    TicketValidator(SECRET, audience="app", leeway="60 s")(presented(text))


def issued_ahead(monkeypatch, seconds, lifetime="1 hour"):
    """Return a ticket of an issuer whose clock is ahead."""
    real = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: real() + seconds)
        return TicketIssuer(SECRET, audience="app").issue("me", lifetime=lifetime)


def test_an_issuer_s_clock_may_be_some_seconds_ahead(monkeypatch):
    TicketValidator(SECRET, audience="app")(presented(issued_ahead(monkeypatch, 10)))
    with pytest.raises(TicketRefused, match="not valid yet: it begins 600 s from now by this clock"):
        TicketValidator(SECRET, audience="app")(presented(issued_ahead(monkeypatch, 600)))
    TicketValidator(SECRET, audience="app", ahead="700 s")(presented(issued_ahead(monkeypatch, 600)))


def test_a_ticket_that_was_too_early_is_judged_again(monkeypatch):
    ticket = issued_ahead(monkeypatch, 600)
    with cells.open("memory:") as connection:
        reader = connection.reader("x", int).require_ticket(TicketValidator(SECRET, audience="app"))
        version = connection.writer("x", int).present(ticket).write(1)
        assert reader.read() is None
        assert reader.ignored[0] == version
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 590)
        assert reader.refresh() == (version, 1)
        assert reader.ignored is None


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.95])
def test_a_life_of_less_than_a_second_is_not_over_at_once(monkeypatch, fraction):
    begin = 1_800_000_000 + fraction
    monkeypatch.setattr(time, "time", lambda: begin)
    text = TicketIssuer(SECRET, audience="app").issue("me", lifetime="0.8 s")
    validate = TicketValidator(SECRET, audience="app")
    validate(presented(text))
    monkeypatch.setattr(time, "time", lambda: begin + 0.79)
    validate(presented(text))
    monkeypatch.setattr(time, "time", lambda: begin + 0.81)
    with pytest.raises(TicketRefused, match="expired"):
        validate(presented(text))


@pytest.mark.parametrize("claim", ["exp", "iat", "nbf"])
def test_a_time_that_is_none_is_refused(claim):
    claims = {"aud": "app", "exp": time.time() + 60, "jti": "1", claim: "soon"}
    with pytest.raises(TicketRefused, match="not valid"):
        TicketValidator(SECRET, audience="app")(presented(jwt.encode(claims, SECRET)))


def test_an_algorithm_named_by_the_ticket_is_not_believed():
    """A public key is no secret: taken as an HS256 one, anybody could sign with it."""
    claims = {"aud": "app", "exp": time.time() + 60, "jti": "1"}
    unsigned = jwt.encode(claims, None, algorithm="none")
    validate = TicketValidator(KEY.public_key(), audience="app", algorithm="EdDSA")
    for text in (unsigned, jwt.encode(claims, SECRET, algorithm="HS256")):
        with pytest.raises(TicketRefused, match="not valid"):
            validate(presented(text))


@pytest.mark.parametrize("missing", ["exp", "aud", "jti"])
def test_a_ticket_without_end_audience_or_id_is_refused(missing):
    claims = {"aud": "app", "exp": time.time() + 60, "jti": "1"}
    del claims[missing]
    with pytest.raises(TicketRefused, match=missing):
        TicketValidator(SECRET, audience="app")(presented(jwt.encode(claims, SECRET)))


def test_a_confirmation_that_makes_no_sense_is_refused():
    claims = {"aud": "app", "exp": time.time() + 60, "jti": "1", "cnf": {"jwk": {"x": "!"}}}
    with pytest.raises(TicketRefused, match="not signed"):
        TicketValidator(SECRET, audience="app")(presented(jwt.encode(claims, SECRET)))


@pytest.mark.parametrize(
    ("key", "algorithm", "says"),
    [
        (SECRET, "RS256", "HS256 or EdDSA, not 'RS256'"),
        (SECRET, "none", "HS256 or EdDSA"),
        ("short", "HS256", "at least 32"),
        (KEY, "HS256", "at least 32"),
        (SECRET, "EdDSA", "cannot be used with EdDSA"),
    ],
)
def test_keys_that_cannot_work_are_refused_when_they_are_given(key, algorithm, says):
    for make in (TicketIssuer, TicketValidator):
        with pytest.raises(ConfigError, match=says):
            make(key, audience="app", algorithm=algorithm)


@pytest.mark.parametrize("disturbance", ["another type", "bytes that are no record", "a record of a newer version"])
def test_a_writer_without_a_ticket_cannot_disturb_readers_that_demand_one(disturbance):
    with cells.open("memory:") as connection:
        writer = connection.writer("x", float).present(
            TicketIssuer(SECRET, audience="app").issue("me", lifetime="1 hour")
        )
        writer.require_ticket(TicketValidator(SECRET, audience="app"))
        reader = connection.reader("x", float).require_ticket(TicketValidator(SECRET, audience="app"))
        writer.write(1.0)
        backend = connection._backend
        held = backend.load(writer.path, connection.deadline())
        record = {
            "another type": encode(CellRecord(FORMAT, "str", b"t", b"boo")),
            "bytes that are no record": b"boo",
            "a record of a newer version": encode(CellRecord(FORMAT + 1, "float", b"t", b"boo")),
        }[disturbance]
        assert backend.swap(writer.path, held, record, connection.deadline()).applied
        assert reader.refresh().value == 1.0
        assert reader.ignored is not None
        assert reader.error is None
        late = connection.reader("x", float, validator=TicketValidator(SECRET, audience="app"))
        assert late.is_empty()
        assert writer.compare_exchange(None, 2.0).applied
        assert reader.refresh().value == late.refresh().value == 2.0
