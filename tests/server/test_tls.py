"""Sites over real TLS on the loopback: which are admitted, and which are not."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from covey.errors import ConfigError, PeerRefused
from covey.server import keys

pytestmark = pytest.mark.beside_the_kernel

LONG_AGO = datetime.now(UTC) - timedelta(days=400)


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


def allow(network: Path, *names: str) -> dict[str, str]:
    return {name: keys.show(network / f"{name}.crt").key_hash for name in names}


def server(network: Path, name: str = "north") -> ssl.SSLContext:
    return keys.server_context(
        network / f"{name}.crt", network / f"{name}.key", network / "ca" / "ca.crt"
    )


def client(network: Path, name: str = "south") -> ssl.SSLContext:
    return keys.client_context(
        network / f"{name}.crt", network / f"{name}.key", network / "ca" / "ca.crt"
    )


def careless(protocol: int, certificate: Path | None) -> ssl.SSLContext:
    """A context that checks nothing, neither files nor peers."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


async def call(
    serving: ssl.SSLContext,
    calling: ssl.SSLContext,
    allowed: dict[str, str],
    *,
    hostname: str = "north",
    met: list[str] | None = None,
) -> tuple[bytes, list[str]]:
    """Return what a caller hears, and whom the server met, let in or refused by its list."""
    met = [] if met is None else met

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            met.append(keys.admit(writer.get_extra_info("ssl_object"), allowed))
            writer.write(f"welcome, {met[-1]}".encode())
        except PeerRefused as error:
            met.append(f"refused: {error}")
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=serving)
    try:
        port = listening.sockets[0].getsockname()[1]
        return await hear(port, calling, hostname), met
    finally:
        listening.close()
        await listening.wait_closed()


async def hear(port: int, calling: ssl.SSLContext, hostname: str) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=calling, server_hostname=hostname
    )
    try:
        return await reader.read()
    finally:
        writer.transport.abort()


def refused(serving: ssl.SSLContext, calling: ssl.SSLContext, hostname: str = "north") -> bool:
    """Whether the two do not connect, so that no peer was admitted."""
    met: list[str] = []
    try:
        asyncio.run(call(serving, calling, {}, hostname=hostname, met=met))
    except (ssl.SSLError, ConnectionError):
        return not met
    return not met


def handshake(
    serving: ssl.SSLContext, calling: ssl.SSLContext, hostname: str = "north"
) -> tuple[str, tuple[ssl.SSLObject, ssl.SSLObject]]:
    """Return why a handshake failed, which asyncio keeps to itself, and both ends, caller first."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = calling.wrap_bio(down, up, server_hostname=hostname)
    host = serving.wrap_bio(up, down, server_side=True)
    for end in (caller, host) * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message, (caller, host)
        except ssl.SSLError as error:
            return str(error.reason), (caller, host)
    return "agreed", (caller, host)


def reason(serving: ssl.SSLContext, calling: ssl.SSLContext, hostname: str = "north") -> str:
    return handshake(serving, calling, hostname)[0]


def test_listed_sites_of_one_authority_connect(network: Path) -> None:
    said, met = asyncio.run(call(server(network), client(network), allow(network, "south")))

    assert (said, met) == (b"welcome, south", ["south"])


def test_a_caller_gets_the_name_and_the_key_of_the_peer(network: Path) -> None:
    async def look() -> tuple[str, str]:
        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(wait, "127.0.0.1", 0, ssl=server(network))
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client(network), server_hostname="north"
        )
        found = keys.peer_name_and_hash(writer.get_extra_info("ssl_object"))
        writer.close()
        await writer.wait_closed()
        listening.close()
        await listening.wait_closed()
        return found

    name, key_hash = asyncio.run(look())

    assert {name: key_hash} == allow(network, "north")


def test_a_site_that_is_signed_but_not_listed_is_refused(network: Path) -> None:
    said, met = asyncio.run(call(server(network), client(network, "west"), allow(network, "south")))

    assert said == b""
    assert met[0].startswith("refused: site 'west' is not on the allow list")


def test_a_site_that_has_a_listed_name_but_another_key_is_refused(network: Path) -> None:
    twin = client(network, "twin/south")

    said, met = asyncio.run(call(server(network), twin, allow(network, "south")))

    assert said == b""
    assert met[0].startswith("refused: site 'south' presented key")


def test_the_careless_caller_of_these_tests_gets_in_with_the_right_certificate(
    network: Path,
) -> None:
    caller = careless(ssl.PROTOCOL_TLS_CLIENT, network / "south.crt")

    said, _ = asyncio.run(call(server(network), caller, allow(network, "south")))

    assert said == b"welcome, south"


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        ("foreign/south.crt", "unable to get local issuer certificate"),
        ("expired/south.crt", "certificate has expired"),
        (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    ],
)
def test_a_server_admits_no_peer_without_a_valid_certificate_of_its_authority(
    network: Path, certificate: str | None, why: str
) -> None:
    path = None if certificate is None else network / certificate
    caller = careless(ssl.PROTOCOL_TLS_CLIENT, path)

    assert reason(server(network), caller) == why
    assert refused(server(network), caller)


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        ("foreign/south.crt", "unable to get local issuer certificate"),
        ("expired/south.crt", "certificate has expired"),
    ],
)
def test_a_caller_leaves_a_server_without_a_valid_certificate_of_its_authority(
    network: Path, certificate: str, why: str
) -> None:
    serving = careless(ssl.PROTOCOL_TLS_SERVER, network / certificate)

    assert reason(serving, client(network, "north"), "south") == why
    assert refused(serving, client(network, "north"), "south")


def test_a_caller_leaves_a_server_of_another_name(network: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="west"):
        asyncio.run(call(server(network), client(network), {}, hostname="west"))


def test_a_server_refuses_tls_1_2(network: Path) -> None:
    caller = careless(ssl.PROTOCOL_TLS_CLIENT, network / "south.crt")
    caller.maximum_version = ssl.TLSVersion.TLSv1_2

    assert reason(server(network), caller) == "UNSUPPORTED_PROTOCOL"
    assert refused(server(network), caller)


def test_a_caller_refuses_tls_1_2(network: Path) -> None:
    serving = careless(ssl.PROTOCOL_TLS_SERVER, network / "north.crt")
    serving.maximum_version = ssl.TLSVersion.TLSv1_2

    assert reason(serving, client(network)) == "UNSUPPORTED_PROTOCOL"
    assert refused(serving, client(network))


def test_two_unchecked_contexts_could_still_use_tls_1_2(network: Path) -> None:
    serving = careless(ssl.PROTOCOL_TLS_SERVER, network / "north.crt")
    caller = careless(ssl.PROTOCOL_TLS_CLIENT, None)
    caller.maximum_version = ssl.TLSVersion.TLSv1_2

    assert reason(serving, caller) == "agreed"


def test_two_authorities_count_while_one_replaces_the_other(network: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.crt"
    both.write_bytes((network / "other/ca.crt").read_bytes() + (network / "ca/ca.crt").read_bytes())
    serving = keys.server_context(network / "north.crt", network / "north.key", both)
    foreign = network / "foreign/south.crt"
    listed = {"south": keys.show(foreign).key_hash}

    new, _ = asyncio.run(call(serving, careless(ssl.PROTOCOL_TLS_CLIENT, foreign), listed))
    old, _ = asyncio.run(call(serving, client(network), allow(network, "south")))

    assert (new, old) == (b"welcome, south", b"welcome, south")


def test_no_session_outlives_its_connection(network: Path) -> None:
    assert server(network).num_tickets == 0


def test_a_peer_without_a_certificate_has_no_name(network: Path) -> None:
    lax = careless(ssl.PROTOCOL_TLS_SERVER, network / "north.crt")
    _, (_, end) = handshake(lax, careless(ssl.PROTOCOL_TLS_CLIENT, network / "south.crt"))

    with pytest.raises(PeerRefused, match="showed no certificate"):
        keys.peer_name_and_hash(end)


def test_an_authority_is_no_site(network: Path) -> None:
    serving = careless(ssl.PROTOCOL_TLS_SERVER, network / "ca" / "ca.crt")
    _, (end, _) = handshake(serving, careless(ssl.PROTOCOL_TLS_CLIENT, None))

    with pytest.raises(PeerRefused, match="certificate of an authority"):
        keys.peer_name_and_hash(end)


@pytest.mark.parametrize("make", [keys.server_context, keys.client_context])
@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        ("expired/south.crt", "expired/south.key", "expired on"),
        ("foreign/south.crt", "foreign/south.key", "was not signed by"),
        ("south.crt", "north.key", "is not the key of"),
        ("south.crt", "south.crt", "is not a private key"),
        ("nowhere.crt", "south.key", "No such file"),
        ("ca/ca.crt", "ca/ca.key", "is not a site certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_a_port_is_opened(
    network: Path, make: object, certificate: str, key: str, sentence: str
) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=sentence):
        make(network / certificate, network / key, network / "ca" / "ca.crt")


@pytest.mark.parametrize("make", [keys.server_context, keys.client_context])
@pytest.mark.parametrize("which", [0, 2])
def test_a_file_that_is_broken_after_its_first_certificate_is_a_sentence(
    network: Path, tmp_path: Path, make: object, which: int
) -> None:
    assert callable(make)
    files = [network / "south.crt", network / "south.key", network / "ca" / "ca.crt"]
    broken = tmp_path / "broken.crt"
    junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    broken.write_text(files[which].read_text() + junk)
    files[which] = broken

    with pytest.raises(ConfigError, match="broken.crt"):
        make(*files)
