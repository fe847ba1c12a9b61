"""Key files of sites and of their authority, TLS contexts made from them, and TLS of bytes."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from covey import files as files_module
from covey.errors import ConfigError, PeerRefused
from covey.server import certificates
from covey.server.certificates import CertificateReading, Span

AUTHORITY_DAYS = 3650
SITE_DAYS = 90
MOST_DAYS = 36_500
AUTHORITY_KEY, AUTHORITY_CERTIFICATE = "ca.key", "ca.crt"
_SECRET, _PUBLIC = 0o600, 0o644
_MOST_BYTES = 1 << 20
# A certificate must be valid immediately, also at a site with a slow clock.
_BACKDATED = timedelta(hours=1)
SOON = timedelta(days=14)  # before its end a certificate is reported
DAY = timedelta(days=1)  # after which that is repeated
log = logging.getLogger(__name__)


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Public information about a key, a request or a certificate."""

    kind: Literal["authority", "certificate", "request", "key"]
    name: str | None
    hosts: tuple[str, ...]
    key_hash: str
    issuer: str | None
    valid_from: datetime | None
    valid_until: datetime | None
    days_left: int | None
    state: Literal["valid", "expired", "not yet valid"] | None
    allow: str | None
    files: tuple[str, ...]


def new_authority(
    folder: Path, *, name: str = "covey", days: int = AUTHORITY_DAYS, now: datetime | None = None
) -> KeyInfo:
    """Create the key and the certificate of an authority in `folder`."""
    key = certificates.new_key()
    certificate = certificates.authority(key, name, _span(days, now))
    contents = {folder / AUTHORITY_KEY: key, folder / AUTHORITY_CERTIFICATE: certificate}
    return _create(contents, now)


def request(name: str, *, hosts: Iterable[str] = (), folder: Path) -> KeyInfo:
    """Create a site's key and a certificate request in `folder`."""
    key = certificates.new_key()
    asked = certificates.request(key, name, hosts)
    return _create({folder / f"{name}.key": key, folder / f"{name}.csr": asked}, None)


def sign(
    asked: Path,
    *,
    authority: Path,
    folder: Path | None = None,
    days: int = SITE_DAYS,
    now: datetime | None = None,
) -> KeyInfo:
    """Sign a request with an authority; the default folder is that of the request."""
    reading = _read(asked)
    if reading.kind != "request":
        raise ConfigError(f"{asked} is not a request; create one: `covey keys request NAME`")
    certificate = _signed(reading, authority, _span(days, now))
    path = (asked.parent if folder is None else folder) / f"{reading.name}.crt"
    return _create({path: certificate}, now)


def new_site(
    name: str,
    *,
    hosts: Iterable[str] = (),
    authority: Path,
    folder: Path,
    days: int = SITE_DAYS,
    now: datetime | None = None,
) -> KeyInfo:
    """Create a site's key and its signed certificate."""
    key = certificates.new_key()
    asked = certificates.read(certificates.request(key, name, hosts))
    certificate = _signed(asked, authority, _span(days, now))
    return _create({folder / f"{name}.key": key, folder / f"{name}.crt": certificate}, now)


def renew(
    path: Path, *, authority: Path, days: int = SITE_DAYS, now: datetime | None = None
) -> KeyInfo:
    """Replace a site's certificate by a new one for the same key."""
    old = _read(path)
    if old.kind != "certificate":
        raise ConfigError(f"{path} is not a site certificate; only these can be renewed")
    _check_issuer(path, authority / AUTHORITY_CERTIFICATE)
    certificate = _signed(old, authority, _span(days, now))
    with _sentences(path):
        files_module.replace(path, certificate, mode=_PUBLIC)
    return _info(certificates.read(certificate), now, [path])


def show(path: Path, *, now: datetime | None = None) -> KeyInfo:
    """Return the public information of a file."""
    return _info(_read(path), now, [path])


def check(
    certificate: Path,
    *,
    key: Path | None = None,
    authority: Path | None = None,
    now: datetime | None = None,
) -> KeyInfo:
    """Return a site's certificate if it is valid for this key and this authority.

    Raises `ConfigError` if it is expired, or of another authority or key.
    """
    info = show(certificate, now=now)
    if info.kind != "certificate":
        raise ConfigError(f"{certificate} is not a site certificate (kind: {info.kind})")
    if key is not None and _read_key(key).key_hash != info.key_hash:
        raise ConfigError(f"{key} is not the key of {certificate}; use a matching pair")
    if authority is not None:
        _check_issuer(certificate, authority)
    if info.state == "expired":
        raise ConfigError(
            f"{certificate} expired on {info.valid_until:%Y-%m-%d}; renew it: `covey keys renew`"
        )
    if info.state == "not yet valid":
        begin = f"{info.valid_from:%Y-%m-%d %H:%M} UTC"
        raise ConfigError(f"{certificate} is not valid before {begin}; check the clock")
    return info


def _signed(asked: CertificateReading, folder: Path, span: Span) -> bytes:
    path, key_path = folder / AUTHORITY_CERTIFICATE, folder / AUTHORITY_KEY
    authority = _read(path)
    if authority.kind != "authority" or authority.span is None:
        raise ConfigError(f"{path} is not an authority certificate")
    if authority.key_hash != _read_key(key_path).key_hash:
        raise ConfigError(f"{key_path} is not the key of {path}; restore both from a backup")
    end = authority.span[1]
    if span[1] > end:
        days = (end - span[0] - _BACKDATED).days
        advice = f"sign for at most {days} days" if days > 0 else "create a new authority"
        raise ConfigError(f"the authority in {folder} expires on {end:%Y-%m-%d}; {advice}")
    return certificates.sign(asked, issuer=_bytes(path), issuer_key=_bytes(key_path), span=span)


def issuer(path: Path, authority: Path) -> KeyInfo:
    """Return the authority of a certificate, of those in a file; raise `ConfigError` if none is."""
    return _info(_check_issuer(path, authority), None, [authority])


def _check_issuer(path: Path, authority: Path) -> CertificateReading:
    if _read(authority).kind != "authority":
        raise ConfigError(f"{authority} is not an authority certificate")
    with _sentences(path):
        found = certificates.issuer_of(_bytes(path), _bytes(authority))
    if found is None:
        raise ConfigError(
            f"{path} was not signed by {authority}; it belongs to another network "
            "or to an earlier authority"
        )
    return found


def _read(path: Path) -> CertificateReading:
    with _sentences(path):
        return certificates.read(_bytes(path))


def _read_key(path: Path) -> CertificateReading:
    reading = _read(path)
    if reading.kind != "key":
        raise ConfigError(f"{path} is not a private key (kind: {reading.kind})")
    if path.stat().st_mode & 0o007:
        raise ConfigError(f"private key {path} is accessible to all users; run: chmod 600 {path}")
    return reading


def _bytes(path: Path) -> bytes:
    with _sentences(path):
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError("too large for a key or a certificate")
        return content


def _info(reading: CertificateReading, now: datetime | None, paths: Iterable[Path]) -> KeyInfo:
    moment = now or datetime.now(UTC)
    begin, end = reading.span or (None, None)
    allow = None
    if reading.kind in ("certificate", "request"):
        allow = f'[[peer]]\nname = "{reading.name}"\nkey = "{reading.key_hash}"'
    return KeyInfo(
        kind=reading.kind,
        name=reading.name,
        hosts=reading.hosts,
        key_hash=reading.key_hash,
        issuer=reading.issuer,
        valid_from=begin,
        valid_until=end,
        days_left=None if end is None else max(0, (end - moment).days),
        state=None if reading.span is None else _state(reading.span, moment),
        allow=allow,
        files=tuple(map(str, paths)),
    )


def _state(span: Span, now: datetime) -> Literal["valid", "expired", "not yet valid"]:
    if now > span[1]:
        return "expired"
    return "valid" if now >= span[0] else "not yet valid"


def _create(contents: dict[Path, bytes], now: datetime | None) -> KeyInfo:
    """Write all files or none, without overwriting; return the information of the last one."""
    made: list[Path] = []
    try:
        for path, content in contents.items():
            with _sentences(path):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                mode = _SECRET if path.suffix == ".key" else _PUBLIC
                files_module.create(path, content, mode=mode)
            made.append(path)
    except BaseException:
        for path in made:
            path.unlink()
        raise
    return _info(certificates.read(content), now, contents)


@contextlib.contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except ConfigError as error:
        message = str(error)
        if not message.startswith(f"{path}"):
            message = f"{path}: {message}"
        raise ConfigError(message) from None
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists and is never overwritten; move it first"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _span(days: int, now: datetime | None) -> Span:
    if not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"days is {days}; it must lie from 1 to {MOST_DAYS}")
    moment = (now or datetime.now(UTC)).replace(microsecond=0)
    return moment - _BACKDATED, moment + timedelta(days=days)


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of the port for peers: they must show a certificate of the authority."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)
    # A resumed session would skip the check that the peer's certificate is still valid.
    context.num_tickets = 0
    return context


def open_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of the port for clients: it asks for no client certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)
    context.verify_mode = ssl.CERT_NONE
    return context


def client_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context for calls to peers; set `server_hostname` to the peer's name."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)
    context.check_hostname = True
    return context


def peer_name_and_hash(connection: ssl.SSLObject | ssl.SSLSocket) -> tuple[str, str]:
    """Return the name of the other site and the SHA-256 of its public key.

    Raises `PeerRefused` if it showed no certificate of a site.
    """
    reading = _shown(connection)
    assert reading.name is not None
    return reading.name, reading.key_hash


def _shown(connection: ssl.SSLObject | ssl.SSLSocket) -> CertificateReading:
    """Return the certificate that the other site showed."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        raise PeerRefused("the peer showed no certificate")
    try:
        reading = certificates.read_verified(der)
    except ConfigError as error:
        raise PeerRefused(f"the peer's certificate: {error}") from None
    if reading.kind != "certificate" or reading.name is None:
        raise PeerRefused("the peer showed the certificate of an authority; it must show its own")
    return reading


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
    reading = _shown(connection)
    name = certificates.check_peer(reading.name or "", reading.key_hash, allowed)
    if reading.span is not None and _state(reading.span, now or datetime.now(UTC)) == "expired":
        raise PeerRefused(f"the certificate of site {name!r} expired on {_moment(reading.span[1])}")
    return name


def valid_until(connection: ssl.SSLObject | ssl.SSLSocket) -> datetime:
    """Return the end of the certificate of the site at the other end."""
    span = _shown(connection).span
    assert span is not None  # as of all certificates
    return span[1]


def _context(protocol: int, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return a context; raise `ConfigError` if the files cannot be used, or not together.

    `authority` may hold several certificates one after the other, while one replaces another.
    """
    check(certificate, key=key, authority=authority)
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
    """The certificate that a site uses, which says in the log when its end is near."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        authority: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raise `ConfigError` if it cannot be used."""
        self._files = certificate, key, authority
        self._now = now
        self._ends = self._read()

    def ends(self) -> Mapping[str, datetime]:
        """Return when the certificate (`site`) and its authority (`authority`) expire."""
        return self._ends

    def fault(self) -> str:
        """Return why peers refuse it; empty if they do not."""
        of = min(self._ends, key=self._ends.__getitem__)
        return f"this site's own {self._problem(of)}" if self._now() > self._ends[of] else ""

    def reload(self) -> None:
        """Take over a renewed file; one that cannot be used is reported where it is loaded."""
        with contextlib.suppress(ConfigError):
            self._ends = self._read()
            log.info("certificate in use until %s", _moment(self._ends["site"]))

    async def watch(self) -> None:
        """Log the end of the certificate: at once, every day, and when it comes."""
        while True:
            self._log()
            now = self._now()
            waits = [end - now for end in self._ends.values() if end >= now]
            wait = min([DAY, *waits]).total_seconds()
            await asyncio.sleep(wait + 1)  # so that it has expired, and not just about

    def _read(self) -> dict[str, datetime]:
        certificate, key, authority = self._files
        found = check(certificate, key=key, authority=authority, now=self._now())
        above = issuer(certificate, authority)
        assert found.valid_until is not None  # as of all certificates
        assert above.valid_until is not None
        return {"site": found.valid_until, "authority": above.valid_until}

    def _log(self) -> None:
        for of, end in self._ends.items():
            left = end - self._now()
            if left < SOON:
                level = logging.ERROR if left < timedelta(0) else logging.WARNING
                log.log(level, "the %s", self._problem(of))

    def _problem(self, of: str) -> str:
        path = self._files[0 if of == "site" else 2]
        what = "certificate" if of == "site" else "authority's certificate"
        end, now = self._ends[of], self._now()
        left = f"expires in {(end - now).days} days, on" if now <= end else "expired on"
        text = f"{what} {path} {left} {_moment(end)}; peers refuse this site "
        text += "now" if now > end else "then"
        if of == "authority":
            return f"{text}: make a new authority"
        with contextlib.suppress(ConfigError):
            if self._read()["site"] > end:
                return f"{text}: the file is renewed, but not in use; send SIGHUP"
        return f"{text}: run `covey keys renew` where the authority is, then send SIGHUP"


def _moment(end: datetime) -> str:
    return f"{end:%Y-%m-%d %H:%M} UTC"
