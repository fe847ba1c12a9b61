"""Keys and certificates: what is made, who is admitted by it, and what is said before its end."""

import json
import logging
import ssl
import stat
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey import cli
from covey.errors import ConfigError, PeerRefused
from covey.server import keys
from support.coroutines import looped
from support.examined import FEATURES
from support.served import metrics_of, serving
from support.site_processes import Offices

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,10}){0,4}", fullmatch=True)
TEXTS = st.binary(min_size=32, max_size=32).map(lambda point: f"p256:{point.hex()}")
LONG_AGO = datetime.now(UTC) - timedelta(days=400)


def site(folder: Path, name: str = "north", **more: Any) -> Path:
    keys.new(name, folder=folder, **{"now": NOW, **more})
    return folder / f"{name}.crt"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- names and lists ------------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_a_listed_site_is_accepted_only_with_its_key(listed: str, shown: str) -> None:
    allowed = {"south": listed}

    assert keys.check_peer("south", listed, allowed) == "south"
    if shown != listed:
        with pytest.raises(PeerRefused, match="differs from the allow list"):
            keys.check_peer("south", shown, allowed)
    with pytest.raises(PeerRefused, match="not on the allow list"):
        keys.check_peer("north", listed, allowed)


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key.removeprefix("p256:"),
        lambda key: f"{key}=",
        lambda key: key[:-4],
        lambda key: f"p256:B{key[6:]}",  # no form of a point
        lambda key: f"{key}\n",
        lambda key: "sha256:" + "0" * 64,
        lambda key: "",
        lambda key: "p256:é",
    ],
)
def test_a_text_that_is_no_public_key_is_refused_where_it_stands(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    key = keys.show(site(tmp_path)).key

    keys.check_key(key, "here")
    with pytest.raises(ConfigError, match="^here: .* is not a public key; .*covey keys show"):
        keys.check_key(change(key), "here")


# -- what is made ---------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(NAMES, st.lists(st.ip_addresses().map(str) | NAMES.map("{}.example".format), max_size=3))
def test_every_name_and_its_hosts_come_back_from_a_certificate(
    tmp_path_factory: pytest.TempPathFactory, name: str, hosts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    path = site(folder, name, hosts=hosts)
    found = keys.check(path, key=path.with_suffix(".key"), now=NOW)

    assert (found.name, set(found.hosts), found.days_left) == (name, set(hosts), 365)
    assert tomllib.loads(str(found.allow)) == {"peer": [{"name": name, "key": found.key}]}
    keys.check_key(found.key, "here")


def test_private_keys_and_their_folder_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    path = site(tmp_path / "site")
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (path.with_suffix(".key"), path.parent)]

    assert modes == [0o600, 0o700]
    assert names(tmp_path / "site") == ["north.crt", "north.key"]


def test_a_renewed_certificate_has_the_same_key_and_a_later_end(tmp_path: Path) -> None:
    path = site(tmp_path, hosts=["10.0.0.7"], days=100)
    soon, later = NOW + timedelta(days=70), NOW + timedelta(days=200)
    old = keys.show(path, now=later)

    assert keys.renew(path, before=30, now=soon) is None
    assert keys.show(path, now=later) == old
    first = keys.renew(path, before=31, now=soon)
    second = keys.renew(path, before=0, days=30, now=NOW + timedelta(days=600))
    assert first is not None
    assert second is not None
    assert (old.state, first.state, first.days_left) == ("expired", "valid", 365)
    assert (second.state, second.days_left) == ("valid", 30)
    assert (second.key, second.name, second.hosts) == (old.key, old.name, old.hosts)


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (timedelta(days=-1), "not yet valid"),
        (timedelta(minutes=-59), "valid"),
        (timedelta(days=90), "valid"),
        (timedelta(days=90, seconds=1), "expired"),
    ],
)
def test_a_certificate_is_valid_for_its_days(tmp_path: Path, after: timedelta, state: str) -> None:
    path = site(tmp_path, days=90)

    assert keys.show(path, now=NOW + after).state == state
    if state == "valid":
        assert keys.check(path, now=NOW + after).state == "valid"
    else:
        with pytest.raises(ConfigError, match="expired on 2026-05-30|check the clock"):
            keys.check(path, now=NOW + after)


@pytest.mark.parametrize("there", ["north.crt", "north.key"])
def test_nothing_is_overwritten_and_no_half_is_left(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("another's")

    with pytest.raises(ConfigError, match="never overwritten"):
        site(tmp_path)

    assert names(tmp_path) == [there]
    assert (tmp_path / there).read_text() == "another's"


@pytest.mark.parametrize(
    "name", ["North", "a--b", "-a", "a-", "1a", "é", "../north", "", "a" * 64, "a" * 900, "n\n"]
)
def test_a_name_that_a_certificate_cannot_hold_makes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid site name") as refused:
        site(tmp_path, name)

    assert names(tmp_path) == []
    assert len(str(refused.value)) < 300
    assert keys.check_name("a" * 63) == "a" * 63


def with_another_key(folder: Path) -> None:
    keys.check(site(folder), key=site(folder, "south").with_suffix(".key"), now=NOW)


def renewed_with_another_key(folder: Path) -> None:
    north, south = site(folder), site(folder, "south")
    south.with_suffix(".key").replace(north.with_suffix(".key"))
    keys.renew(north, now=NOW)


def with_a_key_for_all_to_read(folder: Path) -> None:
    path = site(folder)
    path.with_suffix(".key").chmod(0o644)
    keys.check(path, key=path.with_suffix(".key"), now=NOW)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (with_another_key, "south.key is not the key of .*north.crt"),
        (renewed_with_another_key, "north.key is not the key of"),
        (with_a_key_for_all_to_read, "chmod 600"),
        (lambda folder: keys.renew(site(folder).with_suffix(".key")), "not a site certificate"),
        (lambda folder: keys.check(site(folder).with_suffix(".key")), "not a site certificate"),
        *(
            (lambda folder, days=days: site(folder, days=days), f"days is {days}; .* from 1")
            for days in (0, -1, 36_501)
        ),
    ],
)
def test_a_certificate_that_proves_nothing_is_refused(
    tmp_path: Path, act: Callable[[Path], object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        act(tmp_path)


NORTH, SOUTH = (x509.UniformResourceIdentifier(f"covey://{name}") for name in ("north", "south"))
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("key", "alternatives", "said"),
    [
        (ELLIPTIC, [], "is not the certificate of a site"),
        (ELLIPTIC, [x509.UniformResourceIdentifier("https://north")], "exactly one site name"),
        (ELLIPTIC, [NORTH, SOUTH], "exactly one site name"),
        (ELLIPTIC, [x509.UniformResourceIdentifier("covey://../north")], "not a valid site name"),
        (ELLIPTIC, [NORTH, x509.DNSName("*.example")], "is not a valid host"),
        (ec.generate_private_key(ec.SECP384R1()), [NORTH], "unsupported key type"),
        (rsa.generate_private_key(public_exponent=65537, key_size=2048), [NORTH], "unsupported"),
    ],
)
def test_a_certificate_that_was_crafted_elsewhere_names_no_site(
    tmp_path: Path, key: Any, alternatives: list[x509.GeneralName], said: str
) -> None:
    nobody = x509.Name([])
    made = x509.CertificateBuilder(nobody, nobody, key.public_key(), 1, NOW, NOW)
    if alternatives:
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    path = tmp_path / "a.crt"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))

    with pytest.raises(ConfigError, match=said):
        keys.show(path)


# -- handshakes -----------------------------------------------------------------------------------

Contexts = Callable[[Path], ssl.SSLContext]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys of three sites, and others that say that they are south."""
    root = tmp_path_factory.mktemp("network")
    for name in ("north", "south", "west"):
        keys.new(name, folder=root)
    keys.new("south", folder=root / "twin")
    keys.new("south", folder=root / "expired", now=LONG_AGO)
    (root / "liar").mkdir()  # west, under the name of south
    (root / "liar" / "south.key").write_bytes((root / "west.key").read_bytes())
    secret = keys._private((root / "west.key").read_bytes())
    span = LONG_AGO, datetime.now(UTC) + timedelta(days=1)
    builder = keys._builder("west", "south", secret.public_key(), span, signs=False)
    parent = x509.AuthorityKeyIdentifier.from_issuer_public_key(secret.public_key())
    builder = builder.add_extension(parent, critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([SOUTH]), critical=False)
    pem = builder.sign(secret, hashes.SHA256()).public_bytes(Encoding.PEM)
    (root / "liar" / "south.crt").write_bytes(pem)
    return root


def key_of(network: Path, name: str) -> str:
    return keys.show(network / f"{name}.crt").key


def allowed(network: Path, south: str = "south") -> dict[str, str]:
    return {"north": key_of(network, "north"), "south": key_of(network, south)}


def files(network: Path, name: str) -> tuple[Path, Path]:
    return network / f"{name}.crt", network / f"{name}.key"


def server(network: Path, **more: str) -> ssl.SSLContext:
    return keys.server_context(*files(network, "north"), allowed(network) | more)


def client(network: Path, name: str = "south") -> ssl.SSLContext:
    return keys.client_context(*files(network, name), allowed(network))


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


@pytest.mark.parametrize(
    ("calling", "said"),
    [
        (client, "south"),
        (lambda network: caller(network, "south"), "south"),
        (lambda network: caller(network, "west"), "'west' is not on the allow list"),
        (lambda network: caller(network, "liar/south"), "'south' presented key"),
        (
            lambda network: caller(network, "twin/south"),
            "self-signed certificate in certificate chain",
        ),
        (lambda network: caller(network, "expired/south"), "certificate has expired"),
        (lambda network: caller(network, None), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (lambda network: caller(network, "south", is_old=True), "UNSUPPORTED_PROTOCOL"),
    ],
)
def test_a_server_admits_a_peer_by_its_name_and_its_listed_key_over_tls_1_3(
    network: Path, calling: Contexts, said: str
) -> None:
    south = "expired/south" if "expired" in said else "south"
    # Also a site that is removed from the list can be on a connection that is still open.
    trusted = server(network, south=key_of(network, south), west=key_of(network, "west"))
    why, (_, end) = handshake(trusted, calling(network))
    if why == "agreed":
        try:
            why = keys.admit(end, allowed(network))
        except PeerRefused as error:
            why = str(error)

    assert said in why


@pytest.mark.parametrize(
    ("serving", "hostname", "said"),
    [
        (server, "north", "agreed"),
        (server, "west", "Hostname mismatch"),
        (
            lambda network: host(network, "twin/south"),
            "south",
            "self-signed certificate in certificate chain",
        ),
        (
            lambda network: host(network, "west"),
            "west",
            "self-signed certificate in certificate chain",
        ),
        (lambda network: host(network, "north", is_old=True), "north", "UNSUPPORTED_PROTOCOL"),
    ],
)
def test_a_caller_leaves_a_server_that_is_not_the_site_it_means(
    network: Path, serving: Contexts, hostname: str, said: str
) -> None:
    why, (end, _) = handshake(serving(network), client(network), hostname)

    assert said in why
    if why == "agreed":
        assert keys.admit(end, allowed(network)) == "north"


def test_clients_check_a_site_by_its_file_also_after_it_was_renewed(tmp_path: Path) -> None:
    path = site(tmp_path, hosts=["10.0.0.7"], now=None, days=3)
    trusting = ssl.create_default_context(cafile=path)
    keys.renew(path)

    why, _ = handshake(keys.open_context(path, path.with_suffix(".key")), trusting, "10.0.0.7")

    assert why == "agreed"


def test_a_peer_without_the_certificate_of_a_site_is_refused(network: Path, tmp_path: Path) -> None:
    own = tmp_path / "key.crt"  # of the key alone: it names no site
    own.write_bytes(b"-----BEGIN" + (network / "west.crt").read_bytes().split(b"-----BEGIN")[2])
    own.with_suffix(".key").write_bytes((network / "west.key").read_bytes())
    _, (_, nameless) = handshake(host(network, "north"), caller(network, "south"))
    _, (key, _) = handshake(careless(ssl.PROTOCOL_TLS_SERVER, own), caller(network, None))

    for end, said in ((nameless, "showed no certificate"), (key, "not the certificate of a site")):
        with pytest.raises(PeerRefused, match=said):
            keys.admit(end, allowed(network))


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("expired/south.crt", "expired/south.key", "expired on"),
        ("south.crt", "north.key", "is not the key of"),
        ("south.crt", "south.crt", "is not a private key"),
        ("nowhere.crt", "south.key", "No such file"),
        ("broken.crt", "south.key", "broken.crt"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_a_port_is_opened(
    network: Path, certificate: str, key: str, said: str
) -> None:
    junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (network / "broken.crt").write_text((network / "south.crt").read_text() + junk)

    for make in (keys.server_context, keys.client_context):
        with pytest.raises(ConfigError, match=said):
            make(network / certificate, network / key, {})


def test_a_certificate_that_ends_soon_is_a_problem_and_one_that_has_ended_a_fault(
    tmp_path: Path,
) -> None:
    path, moment = site(tmp_path, days=20), [NOW]
    own = keys.OwnCertificate(path, path.with_suffix(".key"), now=lambda: moment[0])
    told = []
    for days in (5, 7, 21):
        moment[0] = NOW + timedelta(days=days)
        told.append((own.problem(), own.fault()))

    assert told[0] == ("", "")
    assert "expires in 13 days, on 2026-03-21 12:00 UTC; peers refuse this site then" in told[1][0]
    assert told[1][1] == ""
    assert "expired on 2026-03-21 12:00 UTC; peers refuse this site now" in told[2][1]


# -- its end --------------------------------------------------------------------------------------


@looped
async def test_a_served_site_says_when_its_certificate_ends_and_takes_up_a_new_one_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    offices = Offices(tmp_path, ["south"])
    keys.new("north", folder=tmp_path, days=5)
    offices.ports["north"] = 0
    text = offices.file("north", features=FEATURES, dimension=1)

    monkeypatch.setattr("covey.server.app.NOTED_S", 0.01)
    with caplog.at_level(logging.INFO):
        async with serving(tmp_path, text) as client:
            told = await metrics_of(client)
            until = keys.show(tmp_path / "north.crt").valid_until
            assert until is not None
            assert told[("covey_certificate_expiry_timestamp_seconds",)] == until.timestamp()
            assert told["covey_condition", "certificate"] == 1
            keys.renew(tmp_path / "north.crt")
            while (await metrics_of(client))["covey_condition", "certificate"]:
                pass  # the site looks at its file by itself

    assert "north.crt expires in 4 days" in caplog.text
    assert caplog.text.index("expires in 4 days") < caplog.text.index("certificate in use until")
    assert "over: certificate" in caplog.text


# -- the commands ---------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["keys", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_commands_lead_from_a_new_key_to_a_table_for_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = [
        run(capsys, "new", "north", "--host", "10.0.0.7", "--days", "31"),
        run(capsys, "renew", "north.crt", "--before", "30d"),
        run(capsys, "renew", "north.crt", "--before", "32", "--days", "90"),
        run(capsys, "show", "north.key"),
        run(capsys, "show", "north.crt", "--key", "north.key"),
    ]

    assert [code for code, _, _ in printed] == [0] * 5
    assert "not renewed" in printed[1][2]
    assert "90 days left" in printed[2][1] or "89 days left" in printed[2][1]
    table = f'[[peer]]\nname = "north"\nkey = "{keys.show(Path("north.crt")).key}"'
    assert printed[-1][1].endswith(f"\n\n{table}\n")
    secret = Path("north.key").read_text().splitlines()[1]
    assert not any(secret in out + err for _, out, err in printed)
    shown = json.loads(run(capsys, "show", "north.key", "--json")[1])
    assert (shown["kind"], shown["name"], shown["allow"]) == ("key", None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nowhere.crt"], "nowhere.crt: No such file"),
        (["renew", "nowhere.crt"], "nowhere.crt: No such file"),
        (["show", "."], ".: Is a directory"),
    ],
)
def test_an_error_is_a_message_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)

    assert code == 2
    assert said in err
