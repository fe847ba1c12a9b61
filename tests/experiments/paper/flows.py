"""Synthetic rows in the form of the KDD Cup 1999 file."""

import numpy as np

WORDS = (("tcp", "udp"), ("http", "smtp", "domain_u"), ("SF", "S0"))


def flow(rng: np.random.Generator, *, is_attack: bool) -> str:
    """Return one row; an attack sends more, to fewer services."""
    words = [str(rng.choice(kind[: 2 - is_attack])) for kind in WORDS]
    size = rng.integers(1_000, 2_000) if is_attack else rng.integers(0, 1_000)
    rates = [f"{rate:.2f}" for rate in rng.random(36)]
    return ",".join(["0", *words, str(size), *rates, "smurf." if is_attack else "normal."])


def flows(labels: list[bool], *, seed: int = 1) -> str:
    """Return rows with these labels."""
    rng = np.random.default_rng(seed)
    return "".join(flow(rng, is_attack=is_attack) + "\n" for is_attack in labels)
