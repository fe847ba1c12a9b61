"""Keys and certificates: who signed whom, for how long, and nothing lost or shown by mistake."""

import json
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import covey
from covey import cli
from covey.errors import ConfigError
from covey.server import certificates, keys

pytestmark = pytest.mark.beside_the_kernel

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,10}){0,4}", fullmatch=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "ca"
    keys.new_authority(folder, now=NOW)
    return folder


def site(folder: Path, authority: Path, name: str = "north", **more: object) -> Path:
    keys.new_site(name, authority=authority, folder=folder, now=NOW, **more)  # type: ignore[arg-type]
    return folder / f"{name}.crt"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_signed_request_matches_the_site_s_key(authority: Path, tmp_path: Path) -> None:
    asked = keys.request("north", hosts=["10.0.0.7"], folder=tmp_path)
    signed = keys.sign(tmp_path / "north.csr", authority=authority, now=NOW)

    checked = keys.check(
        tmp_path / "north.crt",
        key=tmp_path / "north.key",
        authority=authority / "ca.crt",
        now=NOW,
    )
    assert (checked.name, checked.hosts, checked.issuer) == ("north", ("10.0.0.7",), "covey")
    assert asked.key_hash == signed.key_hash == checked.key_hash
    assert asked.allow == signed.allow
    assert tomllib.loads(str(asked.allow)) == {"peer": [{"name": "north", "key": checked.key_hash}]}


def test_new_site_equals_request_and_sign(authority: Path, tmp_path: Path) -> None:
    path = site(tmp_path, authority, hosts=["Node.Example", "::1"])

    card = keys.check(path, key=tmp_path / "north.key", authority=authority / "ca.crt", now=NOW)

    assert sorted(card.hosts) == ["::1", "node.example"]
    assert card.days_left == 90


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
    assert [mode(path) for path in secret] == [0o600] * 3
    assert mode(tmp_path / "site") == 0o700
    assert names(tmp_path / "site") == ["north.crt", "north.key", "south.csr", "south.key"]


@pytest.mark.parametrize(
    "make",
    [
        lambda ca, folder: keys.new_authority(ca),
        lambda ca, folder: keys.new_site("north", authority=ca, folder=folder, now=NOW),
        lambda ca, folder: keys.request("north", folder=folder),
        lambda ca, folder: keys.sign(folder / "south.csr", authority=ca, now=NOW),
    ],
)
def test_nothing_is_overwritten(
    authority: Path, tmp_path: Path, make: Callable[[Path, Path], object]
) -> None:
    site(tmp_path, authority)
    keys.request("south", folder=tmp_path)
    keys.sign(tmp_path / "south.csr", authority=authority, now=NOW)
    before = {path: path.read_bytes() for path in [*tmp_path.iterdir(), *authority.iterdir()]}

    with pytest.raises(ConfigError, match="never overwritten"):
        make(authority, tmp_path)

    after = {path: path.read_bytes() for path in [*tmp_path.iterdir(), *authority.iterdir()]}
    assert after == before


def test_a_key_whose_certificate_cannot_be_written_is_not_left_behind(
    authority: Path, tmp_path: Path
) -> None:
    (tmp_path / "north.crt").write_text("another's")

    with pytest.raises(ConfigError, match="north.crt already exists"):
        site(tmp_path, authority)

    assert names(tmp_path) == ["north.crt"]


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
    ("after", "state", "sentence"),
    [
        (timedelta(days=-1), "not yet valid", "check the clock"),
        (timedelta(minutes=-59), "valid", None),
        (timedelta(days=90), "valid", None),
        (timedelta(days=90, seconds=1), "expired", "expired on 2026-05-30"),
    ],
)
def test_a_certificate_is_valid_for_its_days(
    authority: Path, tmp_path: Path, after: timedelta, state: str, sentence: str | None
) -> None:
    path = site(tmp_path, authority)

    assert keys.show(path, now=NOW + after).state == state
    if sentence is None:
        assert keys.check(path, now=NOW + after).state == "valid"
    else:
        with pytest.raises(ConfigError, match=sentence):
            keys.check(path, now=NOW + after)


def test_nothing_is_signed_beyond_the_end_of_the_authority(tmp_path: Path) -> None:
    keys.new_authority(tmp_path / "ca", days=100, now=NOW)

    site(tmp_path, tmp_path / "ca", "exact", days=100)
    with pytest.raises(ConfigError, match="expires on 2026-06-09; sign for at most 100 days"):
        site(tmp_path, tmp_path / "ca", "longer", days=101)
    with pytest.raises(ConfigError, match="create a new authority"):
        keys.new_site(
            "late", authority=tmp_path / "ca", folder=tmp_path, now=NOW + timedelta(days=101)
        )


def test_a_certificate_of_another_authority_of_the_same_name_is_foreign(
    authority: Path, tmp_path: Path
) -> None:
    keys.new_authority(tmp_path / "ca", now=NOW)
    path = site(tmp_path, tmp_path / "ca")

    with pytest.raises(ConfigError, match="was not signed by"):
        keys.check(path, authority=authority / "ca.crt", now=NOW)
    with pytest.raises(ConfigError, match="was not signed by"):
        keys.renew(path, authority=authority, now=NOW)


def test_a_key_of_another_certificate_is_a_mismatch(authority: Path, tmp_path: Path) -> None:
    north, south = site(tmp_path, authority), site(tmp_path, authority, "south")

    with pytest.raises(ConfigError, match="south.key is not the key of .*north.crt"):
        keys.check(north, key=south.with_suffix(".key"), now=NOW)


def test_an_authority_with_the_key_of_another_signs_nothing(
    authority: Path, tmp_path: Path
) -> None:
    keys.new_authority(tmp_path / "ca", now=NOW)
    (tmp_path / "ca/ca.crt").write_bytes((authority / "ca.crt").read_bytes())

    with pytest.raises(ConfigError, match="ca.key is not the key of"):
        site(tmp_path, tmp_path / "ca")


def test_a_site_certificate_cannot_sign(authority: Path, tmp_path: Path) -> None:
    site(tmp_path, authority)
    (tmp_path / "north.crt").rename(tmp_path / "ca.crt")
    (tmp_path / "north.key").rename(tmp_path / "ca.key")

    with pytest.raises(ConfigError, match="is not an authority certificate"):
        site(tmp_path, tmp_path, "south")


def test_a_world_readable_key_is_rejected(authority: Path, tmp_path: Path) -> None:
    path = site(tmp_path, authority)
    (tmp_path / "north.key").chmod(0o644)

    with pytest.raises(ConfigError, match="chmod 600"):
        keys.check(path, key=tmp_path / "north.key", now=NOW)


@pytest.mark.parametrize("name", ["North", "a--b", "-a", "a.b", "../north", "", "a" * 64, "n\n"])
def test_a_name_that_a_certificate_cannot_hold_makes_no_file(
    authority: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match="is not a valid site name"):
        keys.request(name, folder=tmp_path)
    with pytest.raises(ConfigError, match="is not a valid site name"):
        site(tmp_path, authority, name)

    assert names(tmp_path) == []


def crafted(key: object, *alternatives: x509.GeneralName) -> bytes:
    """A request that was made by another program."""
    asked = x509.CertificateSigningRequestBuilder(x509.Name([]))
    asked = asked.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if alternatives:
        asked = asked.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return asked.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]


def link(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


@pytest.mark.parametrize(
    ("alternatives", "sentence"),
    [
        ([], "must contain exactly one site name"),
        ([link("https://north")], "must contain exactly one site name"),
        ([link("covey://north"), link("covey://south")], "must contain exactly one site name"),
        ([link("covey://../../etc/north")], "is not a valid site name"),
        ([link("covey://north"), x509.DNSName("*.example")], "is not a valid host"),
    ],
)
def test_a_crafted_request_is_not_signed(
    authority: Path, tmp_path: Path, alternatives: list[x509.GeneralName], sentence: str
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "a.csr").write_bytes(crafted(key, *alternatives))

    with pytest.raises(ConfigError, match=sentence):
        keys.sign(tmp_path / "a.csr", authority=authority, now=NOW)

    assert names(tmp_path) == ["a.csr"]


def test_a_request_that_wants_to_be_an_authority_gets_a_sites_certificate(
    authority: Path, tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "a.csr").write_bytes(crafted(key, link("covey://north")))

    assert keys.sign(tmp_path / "a.csr", authority=authority, now=NOW).kind == "certificate"
    assert names(tmp_path) == ["a.csr", "north.crt"]


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
    ],
)
def test_a_request_with_another_kind_of_key_is_not_signed(
    authority: Path, tmp_path: Path, key: object
) -> None:
    (tmp_path / "a.csr").write_bytes(crafted(key, link("covey://north")))

    with pytest.raises(ConfigError, match="unsupported key type"):
        keys.sign(tmp_path / "a.csr", authority=authority, now=NOW)


def test_a_modified_request_is_not_signed(authority: Path, tmp_path: Path) -> None:
    keys.request("north", folder=tmp_path)
    asked = x509.load_pem_x509_csr((tmp_path / "north.csr").read_bytes())
    changed = asked.public_bytes(Encoding.DER).replace(b"north", b"south")
    changed_pem = x509.load_der_x509_csr(changed).public_bytes(Encoding.PEM)
    (tmp_path / "north.csr").write_bytes(changed_pem)

    with pytest.raises(ConfigError, match="invalid signature"):
        keys.sign(tmp_path / "north.csr", authority=authority, now=NOW)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_certificate_gives_a_message_or_a_result_and_never_a_traceback(
    authority: Path, data: st.DataObject
) -> None:
    pem = (authority / "ca.crt").read_bytes()
    der = bytearray(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    for place in data.draw(st.lists(st.integers(0, len(der) - 1), min_size=1, max_size=4)):
        der[place] = data.draw(st.integers(0, 255))
    try:
        assert certificates.read_verified(bytes(der)).key_hash.startswith("sha256:")
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either is right


@given(st.binary(max_size=200))
def test_other_bytes_give_one_message(content: bytes) -> None:
    for armour in (b"", b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN CERTIFICATE REQUEST-----"):
        with pytest.raises(ConfigError, match="not a key, a request or a certificate"):
            certificates.read(armour + content)


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_days_out_of_range_are_refused(authority: Path, tmp_path: Path, days: int) -> None:
    with pytest.raises(ConfigError, match=f"days is {days}; it must lie from 1 to 36500"):
        site(tmp_path, authority, days=days)


def test_cryptography_is_named_in_one_file() -> None:
    sources = Path(covey.__file__).parent.glob("**/*.py")

    assert [path.name for path in sources if "cryptography import" in path.read_text()] == [
        "certificates.py"
    ]


def test_without_cryptography_the_message_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from covey import cli\n"
        "sys.exit(cli.main(['keys', 'ca', 'ca']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (
        2,
        "covey: keys and served sites need cryptography; "
        'install the extra in a clone of covey: pip install ".[node]"\n',
    )


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


def test_json_of_key_info_is_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], authority: Path
) -> None:
    _, out, _ = run(capsys, "show", str(authority / "ca.crt"), "--json")

    shown = json.loads(out)
    assert (shown["kind"], shown["name"], shown["allow"]) == ("authority", "covey", None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "nowhere.crt"], "covey: nowhere.crt: No such file or directory\n"),
        (["sign", "nowhere.csr"], "covey: nowhere.csr: No such file or directory\n"),
        (["new", "north"], "covey: ca/ca.crt: No such file or directory\n"),
        (["show", "."], "covey: .: Is a directory\n"),
    ],
)
def test_an_error_is_a_message_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    code, _, err = run(capsys, *arguments)

    assert (code, err) == (2, sentence)
