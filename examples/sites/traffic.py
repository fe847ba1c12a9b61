"""Made-up records of network flows, and rules that tell attacks in some of them."""

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SIGNS = ("rate", "ports", "volume", "payload")
ATTACK, NORMAL = "attack", "normal"


class Flow(NamedTuple):
    """A flow as a site sees it, what it truly is, and when its label is known."""

    record: dict[str, float]
    truth: str
    delay: int | None  # in flows of the same site; None: never
    is_label_sent_twice: bool


def flows(seed: int, count: int) -> Iterator[Flow]:
    """Yield the flows of one site: each kind of service shows attacks by another sign."""
    chance = random.Random(seed)  # noqa: S311 - seeded data, no secrets
    for _ in range(count):
        is_attack = chance.random() < 0.4
        service = chance.random()
        telling = SIGNS[min(int(service * 4), 3)]
        record = {"service": service, **{sign: chance.random() for sign in SIGNS}}
        if chance.random() < 0.9:
            record[telling] = chance.uniform(0.5, 1.0) if is_attack else chance.uniform(0.0, 0.5)
        fate = chance.random()
        yield Flow(
            record,
            ATTACK if is_attack else NORMAL,
            None if fate < 0.05 else min(int(chance.expovariate(1 / 12)), 100),
            fate > 0.95,
        )


class Above:
    """Says attack where one sign is large: good for one kind of service, a guess for others."""

    def __init__(self, sign: str) -> None:
        self._sign = sign

    def __call__(self, record: Mapping[str, float]) -> str:
        """Return the label of a record."""
        return ATTACK if record[self._sign] > 0.5 else NORMAL


def mixed(record: Mapping[str, float]) -> str:
    """Say attack where all signs together are large: slightly better than chance everywhere."""
    return ATTACK if sum(record[sign] for sign in SIGNS) > 2.1 else NORMAL
