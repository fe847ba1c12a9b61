"""Create, sign and read certificates. The only module that imports cryptography.

Keys are EC P-256. A certificate contains the site's name as `covey://NAME`, and as a host name,
so that TLS can verify it independently of the site's address.
"""

import contextlib
import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Literal

import msgspec

from covey import allowlist
from covey.errors import ConfigError, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_der_public_key,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError:
    raise MissingExtra(
        'keys need cryptography; install it with pip install "covey[node]"'
    ) from None

Span = tuple[datetime, datetime]
_SCHEME = "covey://"
_OTHER_KIND = "unsupported key type; expected EC P-256"
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a key, a request or a certificate, without its secrets."""

    kind: Literal["authority", "certificate", "request", "key"]
    public: bytes
    name: str | None = None
    hosts: tuple[str, ...] = ()
    issuer: str | None = None
    span: Span | None = None

    @property
    def key_hash(self) -> str:
        """The hash of the key in allow lists."""
        return f"sha256:{hashlib.sha256(self.public).hexdigest()}"


def new_key() -> bytes:
    """Return a new private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def authority(key: bytes, name: str, span: Span) -> bytes:
    """Return the self-signed certificate of an authority."""
    if not 1 <= len(name) <= 64 or not name.isascii() or not name.isprintable():
        raise ConfigError("an authority's name must be 1 to 64 printable ASCII characters")
    private = _private(key)
    public = private.public_key()
    made = (
        _builder(_subject(name), _subject(name), public, span)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return made.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM)


def request(key: bytes, name: str, hosts: Iterable[str]) -> bytes:
    """Return a certificate request."""
    made = x509.CertificateSigningRequestBuilder(_subject(allowlist.check_name(name)))
    made = made.add_extension(_alternatives(name, hosts), critical=False)
    return made.sign(_private(key), hashes.SHA256()).public_bytes(Encoding.PEM)


def sign(asked: Reading, *, issuer: bytes, issuer_key: bytes, span: Span) -> bytes:
    """Return a site's certificate with the name, hosts and public key of a request."""
    if asked.name is None:
        raise ConfigError("only a request or a certificate of a site can be signed")
    private, parent = _private(issuer_key), x509.load_pem_x509_certificate(issuer)
    public = load_der_public_key(asked.public)
    assert isinstance(public, ec.EllipticCurvePublicKey)  # all that a Reading can hold
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    parent_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key())
    made = (
        _builder(_subject(asked.name), parent.subject, public, span)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_alternatives(asked.name, asked.hosts), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(parent_key, critical=False)
    )
    return made.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM)


def read(pem: bytes) -> Reading:
    """Return the content of a file (the first certificate of several).

    Raises `ConfigError` for a file that covey does not create.
    """
    with _sentences():
        if b"-----BEGIN CERTIFICATE REQUEST-----" in pem:
            return _read_request(x509.load_pem_x509_csr(pem))
        if b"-----BEGIN PRIVATE KEY-----" in pem:
            return Reading(kind="key", public=_spki(_private(pem).public_key()))
        return _read_certificate(x509.load_pem_x509_certificates(pem)[0])


@lru_cache(maxsize=256)
def read_verified(der: bytes) -> Reading:
    """Return the content of a TLS peer's certificate.

    Cached, because every request needs it and parsing is slow. The allow list is checked per
    request, because it can change.
    """
    with _sentences():
        return _read_certificate(x509.load_der_x509_certificate(der))


def is_signed(pem: bytes, authorities: bytes) -> bool:
    """Return whether one of the authorities in a file signed a certificate."""
    with _sentences():
        found = x509.load_pem_x509_certificate(pem)
        return any(_issued(found, one) for one in x509.load_pem_x509_certificates(authorities))


def _issued(found: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read_certificate(found: x509.Certificate) -> Reading:
    span = found.not_valid_before_utc, found.not_valid_after_utc
    public, issuer = _spki(found.public_key()), _common_name(found.issuer)
    if _is_authority(found):
        name = _common_name(found.subject)
        return Reading(kind="authority", public=public, name=name, issuer=issuer, span=span)
    name, hosts = _site(found.extensions)
    return Reading(
        kind="certificate", public=public, name=name, hosts=hosts, issuer=issuer, span=span
    )


def _read_request(found: x509.CertificateSigningRequest) -> Reading:
    if not found.is_signature_valid:
        raise ConfigError("invalid signature; create a new request")
    name, hosts = _site(found.extensions)
    return Reading(kind="request", public=_spki(found.public_key()), name=name, hosts=hosts)


def _is_authority(found: x509.Certificate) -> bool:
    try:
        return found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _site(extensions: x509.Extensions) -> tuple[str, tuple[str, ...]]:
    """Return the one name of a site, and its hosts."""
    try:
        held = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        held = x509.SubjectAlternativeName([])
    links = held.get_values_for_type(x509.UniformResourceIdentifier)
    names = [link.removeprefix(_SCHEME) for link in links if link.startswith(_SCHEME)]
    if len(names) != 1:
        raise ConfigError("it must contain exactly one site name, as covey://NAME")
    name = allowlist.check_name(names[0])
    hosts = [str(address) for address in held.get_values_for_type(x509.IPAddress)]
    hosts += held.get_values_for_type(x509.DNSName)
    return name, tuple(host for host in allowlist.check_hosts(hosts) if host != name)


def _alternatives(name: str, hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    own = [x509.UniformResourceIdentifier(_SCHEME + name), x509.DNSName(name)]
    given = [_general_name(host) for host in allowlist.check_hosts(hosts) if host != name]
    return x509.SubjectAlternativeName([*own, *given])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, span: Span
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=span[0],
        not_valid_after=span[1],
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _common_name(name: x509.Name) -> str:
    values = [str(one.value) for one in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return "".join(filter(str.isprintable, "".join(values[:1])))


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(_OTHER_KIND)
    return key


def _spki(public: object) -> bytes:
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    raise ConfigError(_OTHER_KIND)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Convert parsing errors to a message that does not quote the input."""
    try:
        yield
    except ConfigError:
        raise
    except _UNREADABLE:
        raise ConfigError(
            "not a key, a request or a certificate that can be read (PEM form)"
        ) from None
