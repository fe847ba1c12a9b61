"""A synthetic file with the form of the KDD Cup 1999 data, long enough for the paper's window."""

import gzip
from pathlib import Path

import numpy as np

from flows import flow
from reproduction.data import KDD
from reproduction.models import SLOTS, START

KINDS = 60  # different rows of each label


def write_standin(folder: Path) -> Path:
    """Write such a file: labels come in runs, as they do in the real one."""
    rng = np.random.default_rng(3)
    rows = {label: [flow(rng, is_attack=label) + "\n" for _ in range(KINDS)] for label in (0, 1)}
    runs = rng.integers(200, 2_000, 200)
    labels = np.repeat(np.arange(len(runs)) % 2, runs)[: START + SLOTS]
    chosen = rng.integers(0, KINDS, len(labels))
    text = "".join(rows[int(label)][place] for label, place in zip(labels, chosen, strict=True))
    path = folder / KDD.file
    path.write_bytes(gzip.compress(text.encode(), compresslevel=1))
    return path
