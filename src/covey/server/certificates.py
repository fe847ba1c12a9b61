"""X.509 certificates, and the list of peers' names and keys that a site accepts."""

import contextlib
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from covey.errors import ConfigError, MissingExtra, PeerRefused, need_of

LONGEST_NAME = 63
LONGEST_HOST = 253
# Valid as host name labels, so that TLS can verify a site's name independently of its address.
# No double hyphens: `xn--` is the prefix of encoded names.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", re.ASCII)
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*", re.ASCII)
_KEY_HASH = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def check_name(name: str) -> str:
    """Return a site's name; raise `ConfigError` if it is invalid.

    >>> check_name("north-2")
    'north-2'
    """
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{_short(name)} is not a valid site name; use a-z, 0-9 and single hyphens inside, "
            f"begin with a letter, at most {LONGEST_NAME} characters"
        )
    return name


def check_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return addresses and host names in normal form, without duplicates.

    >>> check_hosts(["10.0.0.7", "Node.Example", "10.0.0.7", "::0001"])
    ('10.0.0.7', 'node.example', '::1')
    """
    return tuple(dict.fromkeys(_host(host) for host in hosts))


def check_key_hash(key_hash: str, where: str) -> None:
    """Raise `ConfigError` that names the place unless this is the hash of a key."""
    if not _KEY_HASH.fullmatch(key_hash):
        raise ConfigError(
            f"{where}: not a key hash; use the output of `covey keys show`: "
            '"sha256:" and 64 hexadecimal digits'
        )


def check_peer(name: str, key_hash: str, allowed: Mapping[str, str]) -> str:
    """Return the name of a peer with a listed key; raise `PeerRefused` for any other."""
    if name not in allowed:
        raise PeerRefused(
            f"site {name!r} is not on the allow list; "
            f'to allow it, add [[peer]] with name = "{name}" and key = "{key_hash}"'
        )
    if not hmac.compare_digest(key_hash.encode(), allowed[name].encode()):
        raise PeerRefused(
            f"site {name!r} presented key {key_hash}, which differs from the allow list; "
            "if the key was replaced on purpose, update the list"
        )
    return name


def _host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        lower = host.lower()
    if len(lower) > LONGEST_HOST or not _HOST.fullmatch(lower):
        raise ConfigError(
            f"{_short(host)} is not a valid host; use an address like 10.0.0.7 "
            "or a name like node.example, without a port"
        )
    return lower


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_NAME else f"{text[:20]}...")


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
    raise MissingExtra(need_of("keys and served sites", "cryptography", extra="node")) from None

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


class CertificateReading(msgspec.Struct, frozen=True, kw_only=True):
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
    made = x509.CertificateSigningRequestBuilder(_subject(check_name(name)))
    made = made.add_extension(_alternatives(name, hosts), critical=False)
    return made.sign(_private(key), hashes.SHA256()).public_bytes(Encoding.PEM)


def sign(asked: CertificateReading, *, issuer: bytes, issuer_key: bytes, span: Span) -> bytes:
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


def read(pem: bytes) -> CertificateReading:
    """Return the content of a file (the first certificate of several).

    Raises `ConfigError` for a file that covey does not create.
    """
    with _sentences():
        if b"-----BEGIN CERTIFICATE REQUEST-----" in pem:
            return _read_request(x509.load_pem_x509_csr(pem))
        if b"-----BEGIN PRIVATE KEY-----" in pem:
            return CertificateReading(kind="key", public=_spki(_private(pem).public_key()))
        return _read_certificate(x509.load_pem_x509_certificates(pem)[0])


@lru_cache(maxsize=256)
def read_verified(der: bytes) -> CertificateReading:
    """Return the content of a TLS peer's certificate.

    Cached, because every request needs it and parsing is slow. The allow list is checked per
    request, because it can change.
    """
    with _sentences():
        return _read_certificate(x509.load_der_x509_certificate(der))


def issuer_of(pem: bytes, authorities: bytes) -> CertificateReading | None:
    """Return the authority in a file that signed a certificate; None: none of them did."""
    with _sentences():
        found = x509.load_pem_x509_certificate(pem)
        for certificate in x509.load_pem_x509_certificates(authorities):
            with contextlib.suppress(ValueError, TypeError, InvalidSignature):
                found.verify_directly_issued_by(certificate)
                return _read_certificate(certificate)
    return None


def _read_certificate(found: x509.Certificate) -> CertificateReading:
    span = found.not_valid_before_utc, found.not_valid_after_utc
    public, issuer = _spki(found.public_key()), _common_name(found.issuer)
    constraints = _extension(found.extensions, x509.BasicConstraints)
    is_authority = constraints is not None and constraints.ca
    name, hosts = (_common_name(found.subject), ()) if is_authority else _site(found.extensions)
    return CertificateReading(
        kind="authority" if is_authority else "certificate",
        public=public,
        name=name,
        hosts=hosts,
        issuer=issuer,
        span=span,
    )


def _read_request(found: x509.CertificateSigningRequest) -> CertificateReading:
    if not found.is_signature_valid:
        raise ConfigError("invalid signature; create a new request")
    name, hosts = _site(found.extensions)
    return CertificateReading(
        kind="request", public=_spki(found.public_key()), name=name, hosts=hosts
    )


def _extension(extensions: x509.Extensions, kind: Any) -> Any:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _site(extensions: x509.Extensions) -> tuple[str, tuple[str, ...]]:
    """Return the one name of a site, and its hosts."""
    held = _extension(extensions, x509.SubjectAlternativeName) or x509.SubjectAlternativeName([])
    links = held.get_values_for_type(x509.UniformResourceIdentifier)
    names = [link.removeprefix(_SCHEME) for link in links if link.startswith(_SCHEME)]
    if len(names) != 1:
        raise ConfigError("it must contain exactly one site name, as covey://NAME")
    name = check_name(names[0])
    hosts = [str(address) for address in held.get_values_for_type(x509.IPAddress)]
    hosts += held.get_values_for_type(x509.DNSName)
    return name, tuple(host for host in check_hosts(hosts) if host != name)


def _alternatives(name: str, hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(_SCHEME + name)]
    for host in dict.fromkeys([name, *check_hosts(hosts)]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


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
