"""How many seeds it takes to find each planted bug, and which promise it breaks."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from chaos.bugs import BUGS, Bug
from chaos.runs import play

KNOWN = Path(__file__).with_name("known.json")


class Bite(msgspec.Struct, frozen=True):
    """The first seed that finds a bug, and the promise that it finds broken."""

    bug: str
    seed: int
    promise: str


def bite(bug: Bug, seeds: Iterable[int]) -> Bite | None:
    """Return how a bug is found; None if no seed finds it."""
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        for seed in seeds:
            found = play(seed).found
            if found:
                return Bite(bug.__name__, seed, found[0][0])
    return None


def known() -> dict[str, Bite]:
    """Return how each bug was found when that was last looked for."""
    return {one.bug: one for one in msgspec.json.decode(KNOWN.read_bytes(), type=list[Bite])}


def look(most_seeds: int, *, say: Callable[[str], None]) -> list[Bite]:
    """Look for every bug, and write down how it is found."""
    bites = []
    for bug in BUGS:
        found = bite(bug, range(most_seeds))
        say(f"{bug.__name__}: {found or 'NOT FOUND'}")
        bites += [found] if found else []
    KNOWN.write_bytes(msgspec.json.format(msgspec.json.encode(bites)) + b"\n")
    return bites
