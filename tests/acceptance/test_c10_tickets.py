"""C10: readers ignore values whose writer had no valid ticket; all validators must pass."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.waiting import IN_TIME, eventually
from tidewheel.cells import Ticket, TicketIssuer, TicketValidator

SECRET, OTHER_SECRET = "s" * 32, "o" * 32
ISSUER = TicketIssuer(SECRET, audience="app")


@pytest.fixture
def writer(place):
    return place.open().writer("x", int)


@pytest.fixture
def reader(place):
    return place.open().reader("x", int)


def ignores(reader, version):
    """Wait until the reader has looked at a version and ignored it."""
    eventually(lambda: reader.ignored is not None and reader.ignored[0] == version)
    return reader.ignored[1]


def test_c10_a_value_without_a_ticket_is_ignored(writer, reader):
    reader.require_ticket(TicketValidator(SECRET, audience="app"))
    assert "no ticket" in ignores(reader, writer.write(1))
    assert reader.snapshot() == (0, None)


def test_c10_a_value_with_a_valid_ticket_is_shown(writer, reader):
    reader.require_ticket(TicketValidator(SECRET, audience="app"))
    version = writer.present(ISSUER.issue("me", lifetime="1 hour")).write(1)
    assert reader.when.reaches(version, timeout=IN_TIME) == (version, 1)


def test_c10_the_last_valid_value_stays_until_another_valid_one_comes(writer, reader):
    reader.require_ticket(TicketValidator(SECRET, audience="app"))
    ticket = ISSUER.issue("me", lifetime="1 hour")
    good = writer.present(ticket).write(1)
    reader.when.reaches(good, timeout=IN_TIME)
    ignores(reader, writer.present(None).write(2))
    assert reader.snapshot() == (good, 1)
    better = writer.present(ticket).write(3)
    assert reader.when.reaches(better, timeout=IN_TIME) == (better, 3)


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        (ISSUER.issue("me", lifetime="0 s"), "expired"),
        (ISSUER.issue("me", lifetime="1 hour", ticket_id="stolen"), "revoked"),
        (TicketIssuer(OTHER_SECRET, audience="app").issue("me", lifetime="1 hour"), "Signature"),
        (TicketIssuer(SECRET, audience="elsewhere").issue("me", lifetime="1 hour"), "Audience"),
        ("not a ticket at all", "not valid"),
    ],
    ids=["expired", "revoked", "forged", "other audience", "nonsense"],
)
def test_c10_invalid_tickets_are_refused(writer, reader, ticket, reason):
    reader.require_ticket(TicketValidator(SECRET, audience="app", revoked={"stolen"}))
    assert reason in ignores(reader, writer.present(ticket).write(1))
    assert reader.is_empty()


def test_c10_all_validators_must_pass(place, writer):
    strict = place.open().reader("x", int)
    strict.require_ticket(TicketValidator(SECRET, audience="app")).require_ticket(
        TicketValidator(SECRET, audience="app", issuer="head office")
    )
    ignores(strict, writer.present(ISSUER.issue("me", lifetime="1 hour")).write(1))
    issuer = TicketIssuer(SECRET, audience="app", issuer="head office")
    version = writer.present(issuer.issue("me", lifetime="1 hour")).write(2)
    assert strict.when.reaches(version, timeout=IN_TIME).value == 2


def test_c10_a_late_reader_does_not_see_a_value_without_a_valid_ticket(place, writer):
    writer.write(1)
    assert place.open().reader("x", int).require_ticket(TicketValidator(SECRET, audience="app")).is_empty()


def test_c10_revocation_may_be_a_cell(place, writer, reader):
    revocations = place.open().writer("revoked", list[str])
    reader.require_ticket(TicketValidator(SECRET, audience="app", revoked=lambda i: i in (revocations.read() or ())))
    writer.present(ISSUER.issue("me", lifetime="1 hour", ticket_id="t1"))
    version = writer.write(1)
    assert reader.when.reaches(version, timeout=IN_TIME).value == 1
    revocations.write(["t1"])
    assert "revoked" in ignores(reader, writer.write(2))


def test_c10_keys_instead_of_a_shared_secret(writer, reader):
    key = Ed25519PrivateKey.generate()
    issuer = TicketIssuer(key, audience="app", algorithm="EdDSA")
    reader.require_ticket(TicketValidator(key.public_key(), audience="app", algorithm="EdDSA"))
    version = writer.present(issuer.issue("me", lifetime="1 hour")).write(1)
    assert reader.when.reaches(version, timeout=IN_TIME).value == 1
    forged = TicketIssuer(Ed25519PrivateKey.generate(), audience="app", algorithm="EdDSA")
    ignores(reader, writer.present(forged.issue("me", lifetime="1 hour")).write(2))


def test_c10_a_copied_ticket_is_worthless_without_its_writer_s_key(place, writer, reader):
    key = Ed25519PrivateKey.generate()
    text = ISSUER.issue("me", lifetime="1 hour", writer_key=key.public_key())
    reader.require_ticket(TicketValidator(SECRET, audience="app"))
    version = writer.present(Ticket(text, key)).write(1)
    assert reader.when.reaches(version, timeout=IN_TIME).value == 1
    thief = place.open().writer("x", int).present(text)
    assert "not signed" in ignores(reader, thief.write(2))
    thief.present(Ticket(text, Ed25519PrivateKey.generate()))
    assert "not signed" in ignores(reader, thief.write(3))


def test_c10_to_an_exchange_a_value_without_a_valid_ticket_is_none(place, writer):
    writer.write(1)
    strict = place.open().writer("x", int).require_ticket(TicketValidator(SECRET, audience="app"))
    strict.present(ISSUER.issue("me", lifetime="1 hour"))
    assert not strict.compare_exchange(1, 2).applied
    assert strict.compare_exchange(None, 3).applied
    assert strict.read() == 3
