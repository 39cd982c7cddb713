from __future__ import annotations

import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tidewheel._cells.tickets import Presented
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
    text = issuer.issue("me", lifetime=60, writer_key=PUBLIC_PEM)
    validate(presented(text, Ticket(text, PRIVATE_PEM).prove(b"what is written")))
    with pytest.raises(TicketRefused, match="not signed with the key"):
        validate(presented(text, Ticket(text, PRIVATE_PEM).prove(b"something else")))


def test_leeway_forgives_clocks_that_differ():
    text = TicketIssuer(SECRET, audience="app").issue("me", lifetime=-5)
    with pytest.raises(TicketRefused, match="expired"):
        TicketValidator(SECRET, audience="app")(presented(text))
    TicketValidator(SECRET, audience="app", leeway=60)(presented(text))


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
