"""Names that certificates can hold, and lists of the keys that are admitted."""

import ipaddress
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import ConfigError, PeerRefused
from covey.server import certificates

pytestmark = pytest.mark.beside_the_kernel

LETTERS = string.ascii_lowercase
HASHES = st.binary(min_size=32, max_size=32).map(lambda digest: f"sha256:{digest.hex()}")


def is_name(text: str) -> bool:
    """The rule, spelt out."""
    return (
        1 <= len(text) <= 63
        and text[0] in LETTERS
        and all(letter in LETTERS + string.digits + "-" for letter in text)
        and all(text.split("-"))
    )


def is_accepted(text: str) -> bool:
    try:
        return certificates.check_name(text) == text
    except ConfigError:
        return False


@given(st.text(alphabet="ab0-.A_ é\n", max_size=8) | st.text(max_size=70))
def test_only_valid_names_are_accepted(text: str) -> None:
    assert is_accepted(text) == is_name(text)


@given(st.text(max_size=300))
def test_a_message_about_an_invalid_name_is_one_short_line(text: str) -> None:
    if is_name(text):
        return
    with pytest.raises(ConfigError) as caught:
        certificates.check_name(text)

    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000


def test_a_name_has_at_most_63_characters() -> None:
    assert [is_accepted("a" * length) for length in (0, 1, 63, 64)] == [False, True, True, False]


@given(st.ip_addresses())
def test_addresses_are_normalised(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert certificates.check_hosts([str(address), address.exploded]) == (str(address),)


@pytest.mark.parametrize("host", ["", "*.example", "a b", "node:80", "-a", "a-.b", "a..b", "ä.de"])
def test_an_invalid_host_is_rejected(host: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid host"):
        certificates.check_hosts([host])


@given(HASHES, HASHES)
def test_a_listed_site_is_accepted_only_with_its_key(listed: str, shown: str) -> None:
    allowed = {"south": listed}

    assert certificates.check_peer("south", listed, allowed) == "south"
    if shown != listed:
        with pytest.raises(PeerRefused, match="differs from the allow list"):
            certificates.check_peer("south", shown, allowed)
    with pytest.raises(PeerRefused, match="not on the allow list"):
        certificates.check_peer("north", listed, allowed)


@pytest.mark.parametrize("key_hash", ["0" * 64, "sha256:" + "A" * 64, "sha256:" + "0" * 64 + "\n"])
def test_an_invalid_key_hash_is_rejected(key_hash: str) -> None:
    with pytest.raises(ConfigError, match="key of south: not a key hash"):
        certificates.check_key_hash(key_hash, "key of south")
