"""Tickets: proof that a writer may write, checked by readers.

A ticket is a signed JWT (HS256 with a shared secret, or EdDSA with an Ed25519 key pair) with a subject, an audience, an
expiry and an id by which it can be revoked. The ticket is stored with the value, so anybody who can read the backend
can copy it. To make copies worthless, issue the ticket for the writer's public key: the writer then signs every value.

    issuer = TicketIssuer(secret, audience="thresholds")
    cell.present(issuer.issue("node-1", lifetime="1 hour"))
    reader.require_ticket(TicketValidator(secret, audience="thresholds"))
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Container
from typing import Any

from tidewheel._cells.credentials import Presented
from tidewheel._cells.errors import TicketRefused
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError


class TicketIssuer:
    """Issues tickets. `key` is the secret (bytes or str, HS256) or the Ed25519 private key (PEM or object, EdDSA)."""

    def __init__(self, key: Any, *, audience: str, algorithm: str = "HS256", issuer: str | None = None) -> None:
        _check_key(key, algorithm)
        self._key = key
        self._audience = audience
        self._algorithm = algorithm
        self._issuer = issuer

    def issue(self, subject: str, *, lifetime: Duration, ticket_id: str | None = None, writer_key: Any = None) -> str:
        """Return a ticket for `subject`, valid for `lifetime`, such as "1 hour".

        With `writer_key`, an Ed25519 public key (PEM or object), the ticket is valid only with the private key.
        """
        now = time.time()
        claims: dict[str, Any] = {
            "sub": subject,
            "aud": self._audience,
            "iat": now,
            "exp": now + seconds(lifetime, "the lifetime of a ticket"),
            "jti": ticket_id or str(uuid.uuid4()),
        }
        if self._issuer is not None:
            claims["iss"] = self._issuer
        if writer_key is not None:
            claims["cnf"] = {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": _public_text(writer_key)}}
        text: str = _jwt().encode(claims, self._key, algorithm=self._algorithm)
        return text


class TicketValidator:
    """Accepts tickets of one issuer for one audience: give it to `require_ticket`.

    `revoked` is a collection of revoked ids, or a function that is called each time (for example `lambda ticket_id:
    ticket_id in (revocations.read() or ())` over a cell). To tolerate differing clocks, a ticket issued up to `ahead`
    in the future, by the reader's clock, is valid, and so is a ticket that expired up to `leeway` ago.
    """

    def __init__(
        self,
        key: Any,
        *,
        audience: str,
        algorithm: str = "HS256",
        issuer: str | None = None,
        revoked: Container[str] | Callable[[str], bool] = (),
        leeway: Duration = "0 s",
        ahead: Duration = "30 s",
    ) -> None:
        _check_key(key, algorithm)
        self._key = key
        self._audience = audience
        self._algorithm = algorithm
        self._issuer = issuer
        self._revoked = revoked if callable(revoked) else revoked.__contains__
        self._leeway, self._ahead = seconds(leeway, "leeway="), seconds(ahead, "ahead=")

    def __call__(self, presented: Presented) -> None:
        """Raise `TicketRefused` unless the ticket is valid now and, if it names a key, the value is signed by it."""
        if presented.ticket is None:
            raise TicketRefused("its writer had no ticket")
        jwt = _jwt()
        try:
            claims = jwt.decode(
                presented.ticket,
                self._key,
                algorithms=[self._algorithm],
                audience=self._audience,
                issuer=self._issuer,
                # The package truncates times to seconds, so that a short-lived ticket would never be valid.
                options={
                    "require": ["exp", "aud", "jti"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
            self._check_times(claims, time.time())
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise TicketRefused(f"its writer's ticket is not valid: {error}") from None
        if self._revoked(claims["jti"]):
            raise TicketRefused(f"its writer's ticket {claims['jti']} was revoked")
        if "cnf" in claims:
            self._check_proof(claims["cnf"], presented)

    def _check_times(self, claims: dict[str, Any], now: float) -> None:
        if now >= float(claims["exp"]) + self._leeway:
            raise TicketRefused("its writer's ticket is not valid: it has expired")
        begin = max(float(claims.get("iat", 0)), float(claims.get("nbf", 0)))
        if begin > now + self._ahead:
            raise TicketRefused(
                f"its writer's ticket is not valid yet: it begins {begin - now:.0f} s from now by this clock; "
                "set the clocks of issuer and reader, or give the validator a larger ahead="
            )

    @staticmethod
    def _check_proof(confirmation: Any, presented: Presented) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            text = confirmation["jwk"]["x"]
            key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            key.verify(presented.proof or b"", presented.signed)
        except (InvalidSignature, KeyError, TypeError, ValueError):
            raise TicketRefused("it is not signed with the key that its writer's ticket was issued for") from None


def _jwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise ConfigError("tickets need PyJWT; install tidewheel[tickets]") from None
    return jwt


def _check_key(key: Any, algorithm: str) -> None:
    """Raise early, not at the first value, if the algorithm cannot use the key."""
    if algorithm not in ("HS256", "EdDSA"):
        raise ConfigError(f"tickets are signed with HS256 or EdDSA, not {algorithm!r}")
    if algorithm == "HS256" and (not isinstance(key, str | bytes) or len(key) < 32):
        raise ConfigError("an HS256 secret must be a text or bytes of at least 32 characters")
    try:
        _jwt().get_algorithm_by_name(algorithm).prepare_key(key)
    except (ValueError, TypeError, _jwt().PyJWTError) as error:
        raise ConfigError(f"the key cannot be used with {algorithm}: {error}") from None


def _public_text(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    if isinstance(key, str | bytes):
        key = load_pem_public_key(key.encode() if isinstance(key, str) else key)
    raw: bytes = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
