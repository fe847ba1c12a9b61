"""Keys and certificates of sites, the keys that a site accepts of its peers, and TLS of bytes.

A site's certificate is signed by the site's own key. A peer's file has that key, so it is all that
a certificate is checked against.
"""

import base64
import contextlib
import hmac
import ipaddress
import logging
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from covey import files
from covey.errors import ConfigError, MissingExtra, PeerRefused, need_of

try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise MissingExtra(need_of("keys and certificates", "cryptography", extra="node")) from missing

log = logging.getLogger(__name__)
Span = tuple[datetime, datetime]
SITE_DAYS = 365
MOST_DAYS = 36_500
# A certificate must be valid immediately, also at a site with a slow clock.
BACKDATED = timedelta(hours=1)
SOON = timedelta(days=14)  # before its end a certificate is reported
LONGEST_NAME, LONGEST_HOST = 63, 253
# Valid as host name labels, so that TLS can verify a site's name independently of its address.
# No double hyphens: `xn--` is the prefix of encoded names.
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", re.ASCII)
HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*", re.ASCII)
SCHEME = "covey://"  # of the name of a site in its certificate
KIND = "p256:"  # before the point of a public key on the curve P-256, compressed
SECRET_MODE, PUBLIC_MODE = 0o600, 0o644
MOST_BYTES = 1 << 20
OTHER_KIND = "unsupported key type; use `covey keys` (EC, P-256)"
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The public content of a key or of a certificate."""

    kind: Literal["certificate", "key"]
    key: str  # the public one, as peers list it
    name: str | None = None
    hosts: tuple[str, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    days_left: int | None = None
    state: Literal["valid", "expired", "not yet valid"] | None = None
    allow: str | None = None  # the table for the files of peers
    files: tuple[str, ...] = ()


# -- names, hosts and public keys as text ---------------------------------------------------------


def check_name(name: str) -> str:
    """Return a site's name; raise `ConfigError` if it is invalid.

    >>> check_name("north-2")
    'north-2'
    """
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
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


def check_key(key: str, where: str) -> None:
    """Raise `ConfigError` that names the place unless this is the text of a public key."""
    try:
        _public(key)
    except ValueError:
        raise ConfigError(
            f"{where}: {_short(key)} is not a public key; use the output of `covey keys show`, "
            f'like "{KIND}A..."'
        ) from None


def check_peer(name: str, key: str, allowed: Mapping[str, str]) -> str:
    """Return the name of a peer with a listed key; raise `PeerRefused` for any other."""
    if name not in allowed:
        raise PeerRefused(
            f"site {name!r} is not on the allow list; "
            f'to allow it, add [[peer]] with name = "{name}" and key = "{key}"'
        )
    if not hmac.compare_digest(key.encode(), allowed[name].encode()):
        raise PeerRefused(
            f"site {name!r} presented key {key}, which differs from the allow list; "
            "if the key was replaced on purpose, update the list"
        )
    return name


def _host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        lower = host.lower()
    if len(lower) > LONGEST_HOST or not HOST.fullmatch(lower):
        raise ConfigError(
            f"{_short(host)} is not a valid host; use an address like 10.0.0.7 "
            "or a name like node.example, without a port"
        )
    return lower


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_NAME else f"{text[:20]}...")


def _text(public: object) -> str:
    """Return a public key as peers list it."""
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(
        public.curve, ec.SECP256R1
    ):
        raise ConfigError(OTHER_KIND)
    point = public.public_bytes(forms.Encoding.X962, forms.PublicFormat.CompressedPoint)
    return KIND + base64.urlsafe_b64encode(point).decode()


def _public(text: str) -> ec.EllipticCurvePublicKey:
    """Return the public key of a text; raise `ValueError` if it is none."""
    point = base64.b64decode(text.removeprefix(KIND), altchars=b"-_", validate=True)
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    if _text(public) != text:  # a key has one text only
        raise ValueError
    return public


# -- certificates ---------------------------------------------------------------------------------


def new(
    name: str,
    *,
    hosts: Iterable[str] = (),
    folder: Path,
    days: int = SITE_DAYS,
    now: datetime | None = None,
) -> KeyInfo:
    """Create a site's key and certificate, `NAME.key` and `NAME.crt`; overwrite neither."""
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    certificate = _signed(key, check_name(name), hosts, _span(days, now))
    contents = {folder / f"{name}.key": secret, folder / f"{name}.crt": certificate}
    made: list[Path] = []
    try:
        for path, content in contents.items():
            with _file_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                mode = SECRET_MODE if content is secret else PUBLIC_MODE
                files.create(path, content, mode=mode)
            made.append(path)
    except BaseException:
        for path in made:
            path.unlink()
        raise
    return _info(certificate, now, contents)


def renew(
    path: Path, *, before: int | None = None, days: int = SITE_DAYS, now: datetime | None = None
) -> KeyInfo | None:
    """Replace a site's certificate by one for the same key, so that its peers change nothing.

    With `before`, None is returned, and nothing is done, if it lasts that many days or more.
    """
    info = show(path, now=now)
    if info.kind != "certificate" or info.name is None:
        raise ConfigError(f"{path} is not a site certificate; only these can be renewed")
    if before is not None and info.state == "valid" and (info.days_left or 0) >= before:
        return None
    secret = path.with_suffix(".key")
    if _read_key(secret).key != info.key:
        raise ConfigError(f"{secret} is not the key of {path}; use a matching pair")
    certificate = _signed(_private(_bytes(secret)), info.name, info.hosts, _span(days, now))
    with _file_errors(path):
        files.replace(path, certificate, mode=PUBLIC_MODE)
    return _info(certificate, now, [path])


def show(path: Path, *, now: datetime | None = None) -> KeyInfo:
    """Return the public content of a file."""
    with _file_errors(path):
        return _info(_bytes(path), now, [path])


def check(certificate: Path, *, key: Path | None = None, now: datetime | None = None) -> KeyInfo:
    """Return a site's certificate if it is valid, and for this key; raise `ConfigError` if not."""
    info = show(certificate, now=now)
    if info.kind != "certificate":
        raise ConfigError(f"{certificate} is not a site certificate (kind: {info.kind})")
    if key is not None and _read_key(key).key != info.key:
        raise ConfigError(f"{key} is not the key of {certificate}; use a matching pair")
    if info.state == "expired":
        raise ConfigError(
            f"{certificate} expired on {info.valid_until:%Y-%m-%d}; renew it: `covey keys renew`"
        )
    if info.state == "not yet valid":
        begin = f"{info.valid_from:%Y-%m-%d %H:%M} UTC"
        raise ConfigError(f"{certificate} is not valid before {begin}; check the clock")
    return info


def _signed(key: ec.EllipticCurvePrivateKey, name: str, hosts: Iterable[str], span: Span) -> bytes:
    """Return a site's certificate, and after it the one of its key, by which clients check it."""
    public = key.public_key()
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(SCHEME + name)]
    for host in dict.fromkeys([name, *check_hosts(hosts)]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    parent = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    certificate = (
        _builder(name, name, public, span, signs=False)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(parent, critical=False)
    )
    signed = certificate.sign(key, hashes.SHA256()).public_bytes(forms.Encoding.PEM)
    return signed + _anchor(name, public, key)


def _anchor(
    name: str, public: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePrivateKey
) -> bytes:
    """Return the certificate of a site's key, against which TLS checks that of the site."""
    span = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    made = _builder(name, None, public, span, signs=True)
    return made.sign(signer, hashes.SHA256()).public_bytes(forms.Encoding.PEM)


@lru_cache(maxsize=1_024)
def _trusted(name: str, key: str) -> str:
    """Return what TLS checks a peer's certificate against, made of the key that its table has.

    TLS looks only at the key of what it trusts, so any key may sign this.
    """
    return _anchor(name, _public(key), ec.generate_private_key(ec.SECP256R1())).decode()


def _builder(
    site: str, name: str | None, public: ec.EllipticCurvePublicKey, span: Span, *, signs: bool
) -> x509.CertificateBuilder:
    key = f"key of {site}"
    issuer, subject = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])
        for text in (key, name or key)
    )
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    path_length = 0 if signs else None
    return (
        x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=span[0],
            not_valid_after=span[1],
        )
        .add_extension(x509.BasicConstraints(ca=signs, path_length=path_length), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _info(pem: bytes, now: datetime | None, paths: Iterable[Path]) -> KeyInfo:
    """Return the content of a file; raise `ConfigError` for one that covey does not create."""
    with _parsing_errors():
        if b"-----BEGIN PRIVATE KEY-----" in pem:
            info = KeyInfo(kind="key", key=_text(_private(pem).public_key()))
        else:
            info = _read(x509.load_pem_x509_certificates(pem)[0], now)
    return msgspec.structs.replace(info, files=tuple(map(str, paths)))


def _read(certificate: x509.Certificate, now: datetime | None) -> KeyInfo:
    """Return the content of a certificate; it must have one name of a site."""
    key = _text(certificate.public_key())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        raise ConfigError("it is not the certificate of a site; name NAME.crt") from None
    names = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    sites = [name.removeprefix(SCHEME) for name in names if name.startswith(SCHEME)]
    if len(sites) != 1:
        raise ConfigError("it must contain exactly one site name, as covey://NAME")
    name = check_name(sites[0])
    hosts = [str(address) for address in extension.value.get_values_for_type(x509.IPAddress)]
    hosts += extension.value.get_values_for_type(x509.DNSName)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    moment = now or datetime.now(UTC)
    state: Literal["valid", "expired", "not yet valid"] = "valid"
    if not begin <= moment <= end:
        state = "expired" if moment > end else "not yet valid"
    return KeyInfo(
        kind="certificate",
        key=key,
        name=name,
        hosts=tuple(host for host in check_hosts(hosts) if host != name),
        valid_from=begin,
        valid_until=end,
        days_left=max(0, (end - moment).days),
        state=state,
        allow=f'[[peer]]\nname = "{name}"\nkey = "{key}"',
    )


@lru_cache(maxsize=256)
def _read_shown(der: bytes) -> KeyInfo:
    """Return the content of a TLS peer's certificate; every request needs it, parsing is slow."""
    with _parsing_errors():
        return _read(x509.load_der_x509_certificate(der), None)


def _read_key(path: Path) -> KeyInfo:
    info = show(path)
    if info.kind != "key":
        raise ConfigError(f"{path} is not a private key (kind: {info.kind})")
    if path.stat().st_mode & 0o007:
        raise ConfigError(f"private key {path} is accessible to all users; run: chmod 600 {path}")
    return info


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = forms.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(OTHER_KIND)
    return key


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError("too large for a key or a certificate")
    return content


def _span(days: int, now: datetime | None) -> Span:
    if not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"days is {days}; it must lie from 1 to {MOST_DAYS}")
    moment = (now or datetime.now(UTC)).replace(microsecond=0)
    return moment - BACKDATED, moment + timedelta(days=days)


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists and is never overwritten; move it first"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _parsing_errors() -> Iterator[None]:
    """Convert parsing errors to a message that does not quote the input."""
    try:
        yield
    except ConfigError:
        raise
    except UNREADABLE:
        raise ConfigError("not a key or a certificate that can be read (PEM form)") from None


# -- TLS ------------------------------------------------------------------------------------------


def server_context(certificate: Path, key: Path, allowed: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of the port for peers: they must show a certificate of a listed key."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, allowed)
    # A resumed session would skip the check that the peer's certificate is still valid.
    context.num_tickets = 0
    return context


def open_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of the port for clients: it asks for no client certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, {})
    context.verify_mode = ssl.CERT_NONE
    return context


def client_context(certificate: Path, key: Path, allowed: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for calls to peers; set `server_hostname` to the peer's name."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, allowed)
    context.check_hostname = True
    return context


def _context(
    protocol: int, certificate: Path, key: Path, allowed: Mapping[str, str]
) -> ssl.SSLContext:
    """Return a context that trusts the listed keys; raise `ConfigError` if it cannot be made."""
    check(certificate, key=key)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        if allowed:
            anchors = "".join(_trusted(name, key) for name, key in allowed.items())
            context.load_verify_locations(cadata=anchors)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(f"{certificate} and {key} cannot be used for TLS: {error}") from None
    return context


def shown(connection: ssl.SSLObject | ssl.SSLSocket) -> KeyInfo:
    """Return the certificate that the other site showed; raise `PeerRefused` if it is none."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        raise PeerRefused("the peer showed no certificate")
    try:
        return _read_shown(der)
    except ConfigError as error:
        raise PeerRefused(f"the peer's certificate: {error}") from None


def admit(
    connection: ssl.SSLObject | ssl.SSLSocket,
    allowed: Mapping[str, str],
    *,
    now: datetime | None = None,
) -> str:
    """Return the name of the site at the other end, if its key is the one on the allow list.

    Raises `PeerRefused`, whose sentence is for the own log: do not send it to the peer. TLS looks
    at the end of a certificate in the handshake alone, and a connection may stay open for months.
    """
    info = shown(connection)
    name = check_peer(info.name or "", info.key, allowed)
    if info.valid_until is not None and info.valid_until < (now or datetime.now(UTC)):
        raise PeerRefused(
            f"the certificate of site {name!r} expired on {_moment(info.valid_until)}"
        )
    return name


class Tls:
    """The server's end of a connection, from bytes to bytes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self._outgoing, server_side=True)

    def shake(self) -> bool:
        """Return whether the handshake is complete; raise `ssl.SSLError` if it fails."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self, into: memoryview) -> int | None:
        """Return how many bytes were decrypted; 0 at the end, None if more must come first."""
        if not self.incoming.pending and not self.object.pending():
            return None  # an exception for the usual case would cost as much as the rest
        try:
            return self.object.read(len(into), into)  # type: ignore[return-value] # a count, here
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError:
            return 0

    def sealed(self, data: bytes) -> bytes:
        """Return what to send for some data, and for the handshake."""
        if data:
            self.object.write(data)
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return what to send last."""
        with contextlib.suppress(ssl.SSLError):  # the other end has yet to close
            self.object.unwrap()
        return self._outgoing.read()


class OwnCertificate:
    """The certificate that a site uses, and when it ends."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raise `ConfigError` if it cannot be used."""
        self._certificate, self._key, self._now = certificate, key, now
        self._version = files.version(certificate)
        self.end = self._read()

    def problem(self) -> str:
        """Return when it ends, if that is soon; else an empty text."""
        left = self.end - self._now()
        if left > SOON:
            return ""
        over = left < timedelta(0)
        text = "expired on" if over else f"expires in {left.days} days, on"
        text = f"certificate {self._certificate} {text} {_moment(self.end)}"
        return f"{text}; peers refuse this site {'now' if over else 'then'}"

    def fault(self) -> str:
        """Return why peers refuse it; empty if they do not."""
        return f"this site's own {self.problem()}" if self._now() > self.end else ""

    def is_replaced(self) -> bool:
        """Return whether the file has changed since it was read, or this was last asked."""
        before, self._version = self._version, files.version(self._certificate)
        return before != self._version

    def reload(self) -> None:
        """Take over a renewed file; one that cannot be used is reported where it is loaded."""
        with contextlib.suppress(ConfigError):
            self.end = self._read()
            log.info("certificate in use until %s", _moment(self.end))

    def _read(self) -> datetime:
        end = check(self._certificate, key=self._key, now=self._now()).valid_until
        assert end is not None  # as of all certificates
        return end


def _moment(end: datetime) -> str:
    return f"{end:%Y-%m-%d %H:%M} UTC"
