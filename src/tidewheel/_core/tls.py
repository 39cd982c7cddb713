"""TLS to a server: whose certificates are believed, and which one is shown."""

from __future__ import annotations

import ssl

from tidewheel.errors import ConfigError

SETTINGS = ("ca", "cert", "key")
"""In a URL: the file of an authority, of the client's certificate, and of its key."""


def tls_context(where: str, ca: str | None = None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return a context that believes one authority (without it the system's) and shows a certificate, if one is given."""
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
