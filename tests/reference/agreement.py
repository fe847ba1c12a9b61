"""The tests of agreement, worked out again from all pairs: each start of a bet is one product."""

from collections.abc import Sequence
from math import prod

BETS = (1 / 16, 1 / 4, 3 / 4)


def capital(differences: Sequence[float], zone: float, sign: int) -> float:
    """Return the mean, over the bets, of the capital of all starts together."""
    total = 0.0
    for bet in BETS:
        for start in range(len(differences)):
            share = 1 / ((start + 1) * (start + 2))
            factors = [1 + bet * (sign * difference - zone) for difference in differences[start:]]
            total += share * prod(factors)
    return total / len(BETS)


def is_apart(pairs: Sequence[tuple[str, str, float]], zone: float, level: float) -> bool:
    """Return whether pairs (function, region, difference) show a difference outside of a zone."""
    found = 0.0
    for keys in ([pair[:1] for pair in pairs], [pair[:2] for pair in pairs]):
        for number, key in enumerate(dict.fromkeys(keys), 1):
            mine = [pair[2] for pair, its in zip(pairs, keys, strict=True) if its == key]
            either = (capital(mine, zone, 1) + capital(mine, zone, -1)) / 2
            found += either / (2 * number * (number + 1))
    return found >= 1 / level


def is_near(differences: Sequence[float], zone: float, level: float) -> bool:
    """Return whether differences of one function are shown to lie within a zone."""
    return min(capital(differences, -zone, sign) for sign in (1, -1)) >= 1 / level
