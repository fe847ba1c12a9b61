"""Keys and certificates: who signed whom, for how long, and nothing lost or shown by mistake."""

import json
import stat
import string
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
from covey.server import certificates, keys

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,10}){0,4}", fullmatch=True)
HASHES = st.binary(min_size=32, max_size=32).map(lambda digest: f"sha256:{digest.hex()}")
LETTERS = string.ascii_lowercase


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "ca"
    keys.new_authority(folder, now=NOW)
    return folder


def site(folder: Path, authority: Path, name: str = "north", **more: Any) -> Path:
    keys.new_site(name, authority=authority, folder=folder, **{"now": NOW, **more})
    return folder / f"{name}.crt"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- names and lists ------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """The rule, spelt out."""
    return (
        1 <= len(text) <= 63
        and text[0] in LETTERS
        and all(letter in LETTERS + string.digits + "-" for letter in text)
        and all(text.split("-"))
    )


@given(
    st.text(alphabet="ab0-.A_ é\n", max_size=8)
    | st.text(max_size=300)
    | st.sampled_from(["a" * 63, "a" * 64])
)
def test_only_valid_names_are_accepted_and_others_refused_in_one_short_line(text: str) -> None:
    if is_name(text):
        assert certificates.check_name(text) == text
        return
    with pytest.raises(ConfigError) as caught:
        certificates.check_name(text)

    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000


@given(HASHES, HASHES)
def test_a_listed_site_is_accepted_only_with_its_key(listed: str, shown: str) -> None:
    allowed = {"south": listed}

    assert certificates.check_peer("south", listed, allowed) == "south"
    if shown != listed:
        with pytest.raises(PeerRefused, match="differs from the allow list"):
            certificates.check_peer("south", shown, allowed)
    with pytest.raises(PeerRefused, match="not on the allow list"):
        certificates.check_peer("north", listed, allowed)


# -- what is made ---------------------------------------------------------------------------------


def test_a_signed_request_matches_the_site_s_key(authority: Path, tmp_path: Path) -> None:
    asked = keys.request("north", hosts=["10.0.0.7"], folder=tmp_path)
    signed = keys.sign(tmp_path / "north.csr", authority=authority, now=NOW)
    own = {"key": tmp_path / "north.key", "authority": authority / "ca.crt", "now": NOW}
    checked = keys.check(tmp_path / "north.crt", **own)

    assert (checked.name, checked.hosts, checked.issuer) == ("north", ("10.0.0.7",), "covey")
    assert checked.days_left == 90
    assert asked.key_hash == signed.key_hash == checked.key_hash
    assert asked.allow == signed.allow
    assert tomllib.loads(str(asked.allow)) == {"peer": [{"name": "north", "key": checked.key_hash}]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(NAMES, st.lists(st.ip_addresses().map(str) | NAMES.map("{}.example".format), max_size=3))
def test_every_name_and_its_hosts_come_back_from_a_certificate(
    authority: Path, name: str, hosts: list[str]
) -> None:
    key = certificates.new_key()
    asked = certificates.read(certificates.request(key, name, hosts))
    made = certificates.sign(
        asked,
        issuer=(authority / "ca.crt").read_bytes(),
        issuer_key=(authority / "ca.key").read_bytes(),
        span=(NOW, NOW + timedelta(days=1)),
    )
    found = certificates.read(made)

    assert (found.name, set(found.hosts)) == (name, set(hosts))
    assert found.public == certificates.read(key).public


def test_private_keys_and_their_folder_are_readable_by_the_owner_only(
    authority: Path, tmp_path: Path
) -> None:
    site(tmp_path / "site", authority)
    keys.request("south", folder=tmp_path / "site")
    secret = [authority / "ca.key", tmp_path / "site/north.key", tmp_path / "site/south.key"]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (*secret, tmp_path / "site")]

    assert modes == [0o600, 0o600, 0o600, 0o700]
    assert names(tmp_path / "site") == ["north.crt", "north.key", "south.csr", "south.key"]


def test_a_renewed_certificate_has_the_same_key_and_a_later_end(
    authority: Path, tmp_path: Path
) -> None:
    path = site(tmp_path, authority, hosts=["10.0.0.7"])
    later = NOW + timedelta(days=200)
    old = keys.show(path, now=later)
    new = keys.renew(path, authority=authority, days=30, now=later)

    assert (old.state, new.state, new.days_left) == ("expired", "valid", 30)
    assert (new.key_hash, new.name, new.hosts) == (old.key_hash, old.name, old.hosts)
    assert keys.check(path, key=tmp_path / "north.key", authority=authority / "ca.crt", now=later)


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (timedelta(days=-1), "not yet valid"),
        (timedelta(minutes=-59), "valid"),
        (timedelta(days=90), "valid"),
        (timedelta(days=90, seconds=1), "expired"),
    ],
)
def test_a_certificate_is_valid_for_its_days(
    authority: Path, tmp_path: Path, after: timedelta, state: str
) -> None:
    path = site(tmp_path, authority)

    assert keys.show(path, now=NOW + after).state == state
    if state == "valid":
        assert keys.check(path, now=NOW + after).state == "valid"
    else:
        with pytest.raises(ConfigError, match="expired on 2026-05-30|check the clock"):
            keys.check(path, now=NOW + after)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda ca, folder: keys.new_authority(ca),
        lambda ca, folder: keys.new_site("north", authority=ca, folder=folder, now=NOW),
        lambda ca, folder: keys.request("north", folder=folder),
        lambda ca, folder: keys.sign(folder / "south.csr", authority=ca, now=NOW),
        lambda ca, folder: site(folder, ca, "west"),  # its key is not left behind either
    ],
)
def test_nothing_is_overwritten(
    authority: Path, tmp_path: Path, make: Callable[[Path, Path], object]
) -> None:
    site(tmp_path, authority)
    keys.request("south", folder=tmp_path)
    keys.sign(tmp_path / "south.csr", authority=authority, now=NOW)
    (tmp_path / "west.crt").write_text("another's")
    before = {path: path.read_bytes() for path in [*tmp_path.iterdir(), *authority.iterdir()]}

    with pytest.raises(ConfigError, match="never overwritten"):
        make(authority, tmp_path)

    after = {path: path.read_bytes() for path in [*tmp_path.iterdir(), *authority.iterdir()]}
    assert after == before


def of_another_authority(authority: Path, folder: Path) -> None:
    keys.new_authority(folder / "ca", now=NOW)
    keys.check(site(folder, folder / "ca"), authority=authority / "ca.crt", now=NOW)


def renewed_by_another_authority(authority: Path, folder: Path) -> None:
    keys.new_authority(folder / "ca", now=NOW)
    keys.renew(site(folder, folder / "ca"), authority=authority, now=NOW)


def with_another_key(authority: Path, folder: Path) -> None:
    north, south = site(folder, authority), site(folder, authority, "south")
    keys.check(north, key=south.with_suffix(".key"), now=NOW)


def with_the_key_of_another_authority(authority: Path, folder: Path) -> None:
    keys.new_authority(folder / "ca", now=NOW)
    (folder / "ca/ca.crt").write_bytes((authority / "ca.crt").read_bytes())
    site(folder, folder / "ca")


def signed_by_a_site(authority: Path, folder: Path) -> None:
    path = site(folder, authority)
    path.with_suffix(".key").rename(folder / "ca.key")
    path.rename(folder / "ca.crt")
    site(folder, folder, "south")


def with_a_key_for_all_to_read(authority: Path, folder: Path) -> None:
    path = site(folder, authority)
    path.with_suffix(".key").chmod(0o644)
    keys.check(path, key=path.with_suffix(".key"), now=NOW)


def beyond_its_authority(authority: Path, folder: Path) -> None:
    keys.new_authority(folder / "ca", days=100, now=NOW)
    site(folder, folder / "ca", "exact", days=100)
    site(folder, folder / "ca", "longer", days=101)


def after_its_authority(authority: Path, folder: Path) -> None:
    keys.new_authority(folder / "ca", days=100, now=NOW)
    site(folder, folder / "ca", "late", now=NOW + timedelta(days=101))


def modified(authority: Path, folder: Path) -> None:
    keys.request("north", folder=folder)
    asked = x509.load_pem_x509_csr((folder / "north.csr").read_bytes())
    changed = asked.public_bytes(Encoding.DER).replace(b"north", b"south")
    pem = x509.load_der_x509_csr(changed).public_bytes(Encoding.PEM)
    (folder / "north.csr").write_bytes(pem)
    keys.sign(folder / "north.csr", authority=authority, now=NOW)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (of_another_authority, "was not signed by"),
        (renewed_by_another_authority, "was not signed by"),
        (with_another_key, "south.key is not the key of .*north.crt"),
        (with_the_key_of_another_authority, "ca.key is not the key of"),
        (signed_by_a_site, "is not an authority certificate"),
        (with_a_key_for_all_to_read, "chmod 600"),
        (beyond_its_authority, "sign for at most 100 days"),
        (after_its_authority, "create a new authority"),
        (modified, "invalid signature"),
        *(
            (
                lambda ca, folder, days=days: site(folder, ca, days=days),
                f"days is {days}; .* from 1",
            )
            for days in (0, -1, 36_501)
        ),
    ],
)
def test_a_certificate_that_proves_nothing_is_refused(
    authority: Path, tmp_path: Path, act: Callable[[Path, Path], object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        act(authority, tmp_path)


@pytest.mark.parametrize("name", ["North", "a--b", "../north", "", "a" * 64, "n\n"])
def test_a_name_that_a_certificate_cannot_hold_makes_no_file(
    authority: Path, tmp_path: Path, name: str
) -> None:
    for act in (
        lambda: keys.request(name, folder=tmp_path),
        lambda: site(tmp_path, authority, name),
    ):
        with pytest.raises(ConfigError, match="is not a valid site name"):
            act()

    assert names(tmp_path) == []


def crafted(folder: Path, key: Any, *alternatives: x509.GeneralName) -> Path:
    """A request that was made by another program, and wants to be an authority."""
    asked = x509.CertificateSigningRequestBuilder(x509.Name([]))
    asked = asked.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if alternatives:
        asked = asked.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    path = folder / "a.csr"
    path.write_bytes(asked.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return path


NORTH, SOUTH = (x509.UniformResourceIdentifier(f"covey://{name}") for name in ("north", "south"))
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("key", "alternatives", "said"),
    [
        (ELLIPTIC, [], "must contain exactly one site name"),
        (
            ELLIPTIC,
            [x509.UniformResourceIdentifier("https://north")],
            "must contain exactly one site name",
        ),
        (ELLIPTIC, [NORTH, SOUTH], "must contain exactly one site name"),
        (
            ELLIPTIC,
            [x509.UniformResourceIdentifier("covey://../../etc/north")],
            "is not a valid site name",
        ),
        (ELLIPTIC, [NORTH, x509.DNSName("*.example")], "is not a valid host"),
        (ec.generate_private_key(ec.SECP384R1()), [NORTH], "unsupported key type"),
        (
            rsa.generate_private_key(public_exponent=65537, key_size=2048),
            [NORTH],
            "unsupported key type",
        ),
    ],
)
def test_a_crafted_request_is_not_signed(
    authority: Path, tmp_path: Path, key: Any, alternatives: list[x509.GeneralName], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        keys.sign(crafted(tmp_path, key, *alternatives), authority=authority, now=NOW)

    assert names(tmp_path) == ["a.csr"]


def test_a_request_that_wants_to_be_an_authority_gets_a_sites_certificate(
    authority: Path, tmp_path: Path
) -> None:
    asked = crafted(tmp_path, ELLIPTIC, NORTH)

    assert keys.sign(asked, authority=authority, now=NOW).kind == "certificate"
    assert names(tmp_path) == ["a.csr", "north.crt"]


# -- the commands ---------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["keys", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_commands_lead_from_an_authority_to_a_line_for_the_allow_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = [
        run(capsys, "ca", "ca"),
        run(capsys, "request", "north", "--host", "10.0.0.7"),
        run(capsys, "sign", "north.csr", "--days", "30"),
        run(capsys, "new", "south", "--out", "south"),
        run(capsys, "renew", "south/south.crt", "--days", "365"),
        run(capsys, "show", "north.key"),
        run(capsys, "show", "north.crt", "--key", "north.key", "--ca", "ca/ca.crt"),
    ]

    assert [code for code, _, _ in printed] == [0] * 7
    table = f'[[peer]]\nname = "north"\nkey = "{keys.show(Path("north.crt")).key_hash}"'
    assert printed[-1][1].endswith(f"\n\n{table}\n")
    secrets = [path.read_text().splitlines()[1] for path in Path().glob("**/*.key")]
    assert len(secrets) == 3
    everything = "".join(out + err for _, out, err in printed)
    assert not any(secret in everything for secret in secrets)
    shown = json.loads(run(capsys, "show", "ca/ca.crt", "--json")[1])
    assert (shown["kind"], shown["name"], shown["allow"]) == ("authority", "covey", None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nowhere.crt"], "nowhere.crt: No such file"),
        (["sign", "nowhere.csr"], "nowhere.csr: No such file"),
        (["new", "north"], "ca/ca.crt: No such file"),
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
    assert err.startswith(f"covey: {said}")
