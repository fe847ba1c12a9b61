"""Site names, and the allow list of their keys."""

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping

from covey.errors import ConfigError, PeerRefused

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


def peer_table(name: str, key_hash: str) -> str:
    """Return the `[[peer]]` table that allows a site."""
    return f'[[peer]]\nname = "{name}"\nkey = "{key_hash}"'


def read(table: object, where: str) -> dict[str, str]:
    """Return an allow list of names and key hashes; raise `ConfigError` that names the line.

    >>> list(read({"south": "sha256:" + "0" * 64}, "[peers]"))
    ['south']
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is not a table of names and key hashes")
    return {_listed_name(name, where): _listed_hash(name, table[name], where) for name in table}


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


def _listed_name(name: object, where: str) -> str:
    try:
        return check_name(str(name))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _listed_hash(name: object, key_hash: object, where: str) -> str:
    if not isinstance(key_hash, str) or not _KEY_HASH.fullmatch(key_hash):
        raise ConfigError(
            f"{where} {name}: not a key hash; use the output of `covey keys show`: "
            '"sha256:" and 64 hexadecimal digits'
        )
    return key_hash


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_NAME else f"{text[:20]}...")
