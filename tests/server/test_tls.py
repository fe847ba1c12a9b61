"""The handshakes of sites: which peers are admitted, and which are not."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from covey.errors import ConfigError, PeerRefused
from covey.server import keys

LONG_AGO = datetime.now(UTC) - timedelta(days=400)
Contexts = Callable[[Path], ssl.SSLContext]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities of the same name, and sites of both."""
    root = tmp_path_factory.mktemp("network")
    for authority in ("ca", "other"):
        keys.new_authority(root / authority, now=LONG_AGO)
    for name in ("north", "south", "west"):
        keys.new_site(name, authority=root / "ca", folder=root)
    keys.new_site("south", authority=root / "other", folder=root / "foreign")
    keys.new_site("south", authority=root / "ca", folder=root / "twin")
    keys.new_site("south", authority=root / "ca", folder=root / "expired", now=LONG_AGO)
    return root


def files(network: Path, name: str) -> tuple[Path, Path, Path]:
    return network / f"{name}.crt", network / f"{name}.key", network / "ca" / "ca.crt"


def server(network: Path) -> ssl.SSLContext:
    return keys.server_context(*files(network, "north"))


def client(network: Path, name: str = "south") -> ssl.SSLContext:
    return keys.client_context(*files(network, name))


def careless(protocol: int, certificate: Path | None, *, is_old: bool = False) -> ssl.SSLContext:
    """A context that checks nothing, neither files nor peers."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if is_old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def caller(network: Path, name: str | None, *, is_old: bool = False) -> ssl.SSLContext:
    path = None if name is None else network / f"{name}.crt"
    return careless(ssl.PROTOCOL_TLS_CLIENT, path, is_old=is_old)


def host(network: Path, name: str, *, is_old: bool = False) -> ssl.SSLContext:
    return careless(ssl.PROTOCOL_TLS_SERVER, network / f"{name}.crt", is_old=is_old)


def handshake(
    serving: ssl.SSLContext, calling: ssl.SSLContext, hostname: str = "north"
) -> tuple[str, tuple[ssl.SSLObject, ssl.SSLObject]]:
    """Return why a handshake failed, or "agreed", and both ends, the caller first."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        calling.wrap_bio(down, up, server_hostname=hostname),
        serving.wrap_bio(up, down, server_side=True),
    )
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message, ends
        except ssl.SSLError as error:
            return str(error.reason), ends
    return "agreed", ends


def met(serving: ssl.SSLContext, calling: ssl.SSLContext, allowed: dict[str, str]) -> str:
    """Return whom a server admits, or why it does not."""
    why, (_, end) = handshake(serving, calling)
    if why != "agreed":
        return why
    try:
        return keys.admit(end, allowed)
    except PeerRefused as error:
        return str(error)


@pytest.mark.parametrize(
    ("calling", "said"),
    [
        (client, "south"),
        (lambda network: caller(network, "south"), "south"),
        (lambda network: client(network, "west"), "'west' is not on the allow list"),
        (lambda network: client(network, "twin/south"), "'south' presented key"),
        (lambda network: caller(network, "foreign/south"), "unable to get local issuer"),
        (lambda network: caller(network, "expired/south"), "certificate has expired"),
        (lambda network: caller(network, None), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (lambda network: caller(network, "south", is_old=True), "UNSUPPORTED_PROTOCOL"),
    ],
)
def test_a_server_admits_listed_peers_of_its_authority_over_tls_1_3(
    network: Path, calling: Contexts, said: str
) -> None:
    allowed = {"south": keys.show(network / "south.crt").key_hash}

    assert said in met(server(network), calling(network), allowed)


@pytest.mark.parametrize(
    ("serving", "hostname", "said"),
    [
        (server, "north", "agreed"),
        (server, "west", "Hostname mismatch"),
        (lambda network: host(network, "foreign/south"), "south", "unable to get local issuer"),
        (lambda network: host(network, "expired/south"), "south", "certificate has expired"),
        (lambda network: host(network, "north", is_old=True), "north", "UNSUPPORTED_PROTOCOL"),
    ],
)
def test_a_caller_leaves_a_server_that_is_not_the_site_it_means(
    network: Path, serving: Contexts, hostname: str, said: str
) -> None:
    why, (end, _) = handshake(serving(network), client(network), hostname)

    assert said in why
    if why == "agreed":
        expected = hostname, keys.show(network / "north.crt").key_hash
        assert keys.peer_name_and_hash(end) == expected


def test_two_authorities_count_while_one_replaces_the_other(network: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.crt"
    both.write_bytes((network / "other/ca.crt").read_bytes() + (network / "ca/ca.crt").read_bytes())
    serving = keys.server_context(network / "north.crt", network / "north.key", both)
    for name in ("foreign/south", "south"):
        allowed = {"south": keys.show(network / f"{name}.crt").key_hash}

        assert met(serving, caller(network, name), allowed) == "south"


def test_a_peer_without_a_certificate_or_with_that_of_an_authority_has_no_name(
    network: Path,
) -> None:
    _, (_, nameless) = handshake(host(network, "north"), caller(network, "south"))
    _, (authority, _) = handshake(host(network, "ca/ca"), caller(network, None))

    for end, said in ((nameless, "showed no certificate"), (authority, "of an authority")):
        with pytest.raises(PeerRefused, match=said):
            keys.peer_name_and_hash(end)


@pytest.mark.parametrize("make", [keys.server_context, keys.client_context])
@pytest.mark.parametrize(
    ("certificate", "key", "authority", "said"),
    [
        ("expired/south.crt", "expired/south.key", "ca/ca.crt", "expired on"),
        ("foreign/south.crt", "foreign/south.key", "ca/ca.crt", "was not signed by"),
        ("south.crt", "north.key", "ca/ca.crt", "is not the key of"),
        ("south.crt", "south.crt", "ca/ca.crt", "is not a private key"),
        ("nowhere.crt", "south.key", "ca/ca.crt", "No such file"),
        ("ca/ca.crt", "ca/ca.key", "ca/ca.crt", "is not a site certificate"),
        ("broken/south.crt", "south.key", "ca/ca.crt", "broken/south.crt"),
        ("south.crt", "south.key", "broken/ca.crt", "broken/ca.crt"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_a_port_is_opened(
    network: Path,
    make: Callable[..., ssl.SSLContext],
    certificate: str,
    key: str,
    authority: str,
    said: str,
) -> None:
    (network / "broken").mkdir(exist_ok=True)
    junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for whole in ("south.crt", "ca/ca.crt"):
        path = network / "broken" / Path(whole).name
        path.write_text((network / whole).read_text() + junk)

    with pytest.raises(ConfigError, match=said):
        make(network / certificate, network / key, network / authority)
