"""Context spaces between sites: what the cells of each mean, announced in headers.

Names of cells stay as they are in messages. A header says what the spaces of the sender are made
of, so that the receiver finds the same space among its own, whatever its file calls it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from covey.bandit.learner import Learner
from covey.bandit.partitions import space_name
from covey.config import NetworkConfig
from covey.errors import DataError
from covey.store.fingerprint import describe_scale

# Bodies are strict, so these are headers.
OWN_HEADER = "Covey-Spaces"  # those that the sender decides in
KNOWN_HEADER = "Covey-Known-Spaces"  # those that a peer may ask about
DIGITS = 12  # of a hash
MOST_SHOWN = 80  # characters of a name that another site has sent


class Meaning(NamedTuple):
    """The coordinates of a context space: their names, and a hash of their scales."""

    name: str
    digest: str


class SpaceNames:
    """The context spaces of one site, and what their cells mean."""

    def __init__(
        self, meanings: Mapping[str, Meaning], own: Sequence[str], *, site: str = ""
    ) -> None:
        """`meanings` are by the name of the space in the site's file.

        None are there if clients send the contexts: then nothing is announced or compared.
        """
        self._by_digest = {meaning.digest: space for space, meaning in meanings.items()}
        self.own = [meanings[space] for space in own if space in meanings]  # in which it decides
        self.known = list(meanings.values())  # about which peers may ask
        self._site = site

    def announcement(self) -> dict[str, str]:
        """Return the header of messages of this site."""
        return {OWN_HEADER: _written(self.own)} if self.own else {}

    def description(self) -> dict[str, str]:
        """Return the headers of a greeting."""
        return {**self.announcement(), KNOWN_HEADER: _written(self.known)} if self.own else {}

    def local(self, cell: str, headers: Mapping[str, str], *, sender: str) -> str:
        """Return the name here of a cell that a message names, by the header of the message.

        Raises `DataError` if the sender means a space that this site does not know.
        """
        sent = _read(headers.get(OWN_HEADER.lower(), ""))
        if not sent or not self.known:  # clients of one of the two send the contexts
            return cell
        prefix, _, rest = cell.rpartition("/")
        meaning = sent.get(prefix) if prefix else next(iter(sent.values()))
        if meaning is None:
            raise DataError(f"cell {cell!r} is in a context space that the header does not have")
        space = self._by_digest.get(meaning.digest)
        if space is None:
            raise DataError(self.refusal(meaning, sender=sender))
        return f"{space}/{rest}" if space else rest

    def refusal(self, meaning: Meaning, *, sender: str) -> str:
        """Return why cells of another site are not known here."""
        name = meaning.name[:MOST_SHOWN]
        here = ", ".join(repr(other.name) for other in self.known)
        if any(other.name == meaning.name for other in self.known):
            return (
                f"contexts {name!r} of {sender!r} are scaled in another way than those of "
                f"{self._site!r}; write the same scales in both files"
            )
        return (
            f"{sender!r} asks by contexts {name!r}, and {self._site!r} knows {here}; add "
            f"[[learner]] name = {sender!r} with its context to the file of {self._site!r}"
        )


def names_of(setup: NetworkConfig, learner: Learner) -> SpaceNames:
    """Return the context spaces of a site's file."""
    spaces = setup.plan.spaces
    if not setup.plan.entries:
        return SpaceNames({}, (), site=learner.name)
    meanings = {
        title: Meaning(
            title or space_name(space, setup.context.names),
            _digest([describe_scale(scale) for scale in setup.context.scales_of(space)]),
        )
        for title, space in zip(learner.policies, spaces, strict=True)
    }
    joint = {
        name: Meaning(name, _digest([meanings[space].digest for space in several.spaces]))
        for name, several in learner.candidates.items()
    }
    own = list(dict.fromkeys([*learner.own_spaces, learner.space]))
    return SpaceNames(meanings | joint, own, site=learner.name)


def announced(headers: Mapping[str, str]) -> tuple[list[Meaning], list[Meaning]]:
    """Return the spaces that a peer decides in, and those it may be asked about; of a greeting."""
    own, known = (_read(headers.get(name, "")) for name in (OWN_HEADER, KNOWN_HEADER))
    return list(own.values()), list(known.values())


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGITS]


def _written(meanings: Sequence[Meaning]) -> str:
    return ", ".join(f"{quote(meaning.name, safe='')}={meaning.digest}" for meaning in meanings)


def _read(header: str) -> dict[str, Meaning]:
    """Return the spaces of a header by their names; those that cannot be read are left out."""
    meanings = {}
    for part in header.split(","):
        name, _, digest = part.strip().partition("=")
        if digest:
            meanings[unquote(name)] = Meaning(unquote(name), digest)
    return meanings
