"""An operator, an account and a user of NATS, signed as its own tools do, for tests of `.creds` files."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import Any

import nkeys


def _key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(secrets.token_bytes(32), prefix))


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _token(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, name: str, facts: dict[str, Any]) -> str:
    claims = {
        "iss": issuer.public_key.decode(),
        "sub": subject.public_key.decode(),
        "iat": int(time.time()),
        "name": name,
        "nats": {"version": 2, **facts},
    }
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).rstrip(b"=").decode()
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
    return f"{signed}.{base64.urlsafe_b64encode(issuer.sign(signed.encode())).rstrip(b'=').decode()}"


def make_credentials(path: Path) -> str:
    """Write a `.creds` file; return the part of a server's configuration that knows its user."""
    operator, user = _key(nkeys.PREFIX_BYTE_OPERATOR), _key(nkeys.PREFIX_BYTE_USER)
    account, system = _key(nkeys.PREFIX_BYTE_ACCOUNT), _key(nkeys.PREFIX_BYTE_ACCOUNT)
    anything = {"subs": -1, "data": -1, "payload": -1}
    plenty = {**anything, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": True}
    accounts = {
        key.public_key.decode(): _token(operator, key, name, {"type": "account", "limits": plenty})
        for key, name in ((account, "tests"), (system, "system"))
    }
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{_token(account, user, 'ada', {'type': 'user', **anything})}\n"
        f"------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return (
        f"operator: {_token(operator, operator, 'tests', {'type': 'operator'})}\nresolver: MEMORY\n"
        f"system_account: {system.public_key.decode()}\n"
        f"resolver_preload: {{ {', '.join(f'{name}: {token}' for name, token in accounts.items())} }}\n"
    )
