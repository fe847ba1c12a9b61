"""Mutual TLS 1.3: both sites show a certificate and check the other's key in an allow list."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from covey import allowlist, certificates, keys
from covey.errors import ConfigError, PeerRefused


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of the port for peers: they must show a certificate of the authority.

    `authority` may hold several certificates one after the other, while one replaces another.
    Raises `ConfigError` if the files cannot be used, or not together.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)
    # A resumed session would skip the check that the peer's certificate is still valid.
    context.num_tickets = 0
    return context


def open_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of the port for clients: it asks for no client certificate.

    Raises `ConfigError` if the files cannot be used, or not together.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)
    context.verify_mode = ssl.CERT_NONE
    return context


def client_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context for calls to peers; set `server_hostname` to the peer's name.

    Raises `ConfigError` if the files cannot be used, or not together.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)
    context.check_hostname = True
    return context


def peer_name_and_hash(connection: ssl.SSLObject | ssl.SSLSocket) -> tuple[str, str]:
    """Return the name of the other site and the SHA-256 of its public key.

    Raises `PeerRefused` if it showed no certificate of a site.
    """
    der = connection.getpeercert(binary_form=True)
    if der is None:
        raise PeerRefused("the peer showed no certificate")
    try:
        reading = certificates.read_verified(der)
    except ConfigError as error:
        raise PeerRefused(f"the peer's certificate: {error}") from None
    if reading.kind != "certificate" or reading.name is None:
        raise PeerRefused("the peer showed the certificate of an authority; it must show its own")
    return reading.name, reading.key_hash


def admit(connection: ssl.SSLObject | ssl.SSLSocket, allowed: Mapping[str, str]) -> str:
    """Return the name of the site at the other end, if its key is the one on the allow list.

    Raises `PeerRefused`, whose sentence is for the own log: do not send it to the peer.
    """
    name, key_hash = peer_name_and_hash(connection)
    return allowlist.check_peer(name, key_hash, allowed)


def _context(protocol: int, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    keys.check(certificate, key=key, authority=authority)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(
            f"{certificate}, {key} and {authority} cannot be used for TLS: {error}"
        ) from None
    return context
