"""TLS to a server: trusted authorities, and the client's certificate."""

from __future__ import annotations

import ssl

from tidewheel.errors import ConfigError

SETTINGS = ("ca", "cert", "key")
"""Settings in a URL: the files of an authority, of the client's certificate, and of its key."""


def tls_context(where: str, ca: str | None = None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts one authority (by default the system's) and presents a certificate, if one is given."""
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except OSError as error:
        raise ConfigError(
            f"the certificates for {where} cannot be read ({error}); ca=, cert= and key= are the paths of PEM files"
        ) from None
    if key and not cert:
        raise ConfigError(f"{where} has key= without cert=; give both, or only cert= for a file that holds both")
    return context
