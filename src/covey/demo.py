"""A stream to try covey on: three months of network flows at four sites, some of them attacks.

It is made up, and the same for the same seed. Attacks come in bursts, more of them at night. Each
site has two functions; every function is good for some hours and sizes of flows and poor elsewhere.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ATTACK, NORMAL = "attack", "normal"
FLOWS_PER_DAY = 220
MOST_BYTES = 1e6
SITES = ("campus", "hospital", "bank", "branch")
SITES_BY_DAY = (0.25, 0.20, 0.30, 0.25)  # shares of the flows that each site receives
SITES_BY_NIGHT = (0.30, 0.40, 0.10, 0.20)


class Function(NamedTuple):
    """A classification function: how often it is right, within its speciality and elsewhere."""

    name: str
    at_best: float
    elsewhere: float
    hours: tuple[float, float]  # from, to; past midnight where the second is the smaller
    bytes: tuple[float, float]

    def accuracy(self, hours: Floats, sizes: Floats) -> Floats:
        """Return the chance of a right answer for each flow; it fades at a speciality's edge."""
        start, end = self.hours
        length = (end - start) % 24 or 24.0
        middle = start + length / 2
        from_middle = np.abs((hours - middle + 12) % 24 - 12)
        low, high = np.log10(self.bytes)
        magnitudes = np.log10(sizes)
        inside = (
            _fade((length / 2 - from_middle) / 1.5 if length < 24 else np.ones_like(hours))
            * _fade((magnitudes - low) / 0.4)
            * _fade((high - magnitudes) / 0.4)
        )
        return self.elsewhere + (self.at_best - self.elsewhere) * inside


DAY = (8.0, 20.0)
NIGHT = (20.0, 8.0)
ALWAYS = (0.0, 24.0)
SMALL = (1e-3, 1_000.0)
LARGE = (1_000.0, 1e9)
ANY = (1e-3, 1e9)
FUNCTIONS = (
    Function("campus_tree", 0.95, 0.62, DAY, SMALL),
    Function("campus_bayes", 0.90, 0.60, NIGHT, SMALL),
    Function("hospital_svm", 0.94, 0.60, DAY, LARGE),
    Function("hospital_rules", 0.86, 0.58, (10, 16), ANY),
    Function("bank_boost", 0.97, 0.60, NIGHT, LARGE),
    Function("bank_logit", 0.92, 0.58, (16, 1), SMALL),
    Function("branch_rules", 0.64, 0.64, ALWAYS, ANY),
    Function("branch_bayes", 0.78, 0.55, DAY, ANY),
)


def write(folder: Path, *, slots: int = 20_000, seed: int = 1) -> tuple[Path, Path]:
    """Write `log.csv` and `sites.toml` into `folder`, made if need be, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    log, sites = folder / "log.csv", folder / "sites.toml"
    _write_log(log, slots, np.random.default_rng(seed))
    sites.write_text(_CONFIG, encoding="utf-8")
    return log, sites


def _write_log(path: Path, slots: int, rng: np.random.Generator) -> None:
    days, hours = _times(slots, rng)
    is_night = _is_night(hours)
    sizes = _sizes(slots, rng)
    is_attack = _attacks(is_night, rng)
    sites = _sites(is_night, rng)
    columns = [
        days.tolist(),
        [f"{hour:.2f}" for hour in hours],
        sites,
        sizes.tolist(),
        _labels(is_attack),
    ]
    for function in FUNCTIONS:
        is_right = rng.random(slots) < function.accuracy(hours, sizes)
        columns.append(_labels(is_attack == is_right))
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(["day", "hour", "site", "bytes", "label", *(f.name for f in FUNCTIONS)])
        rows.writerows(zip(*columns, strict=True))


def _fade(share):
    return np.clip(share + 0.5, 0.0, 1.0)


def _times(slots, rng):
    passed = np.cumsum(rng.exponential(1 / FLOWS_PER_DAY, slots))
    days = np.floor(passed).astype(int) + 1
    hours = np.interp(passed % 1, [0, 0.25, 0.75, 1], [0, 8, 18, 24])
    return days, np.minimum(hours, 23.99)


def _is_night(hours):
    return (hours < 8) | (hours >= 20)


def _sizes(slots, rng):
    raw = 1 + rng.lognormal(6.5, 2.8, slots)
    return np.minimum(raw, MOST_BYTES).astype(int)


def _attacks(is_night, rng):
    starts = np.where(is_night, 0.06, 0.02)
    draws = rng.random((2, len(is_night)))
    is_burst = False
    is_attack = np.zeros(len(is_night), bool)
    for row, start in enumerate(starts):
        is_burst = draws[0, row] < (0.96 if is_burst else start)
        is_attack[row] = draws[1, row] < (0.95 if is_burst else 0.05)
    return is_attack


def _sites(is_night, rng):
    u = rng.random(len(is_night))
    day = np.searchsorted(np.cumsum(SITES_BY_DAY)[:-1], u, side="right")
    night = np.searchsorted(np.cumsum(SITES_BY_NIGHT)[:-1], u, side="right")
    return [SITES[k] for k in np.where(is_night, night, day)]


def _labels(is_attack):
    return np.where(is_attack, ATTACK, NORMAL).tolist()


_CONFIG = """\
[data]
label = "label"
at = "site"
context = [
  { column = "hour", scale = "linear", low = 0, high = 24 },
  { column = "bytes", scale = "log", high = 1e6 },
]

[policy]
preset = "cos"
slices = 6
explore = { scale = 1.0, power = 0.0 }
train = { scale = 2.0, power = 0.0 }
explore-peers = { scale = 1.0, power = 0.0 }

[[learner]]
name = "campus"
functions = ["campus_tree", "campus_bayes"]
peers = { hospital = 0.02, bank = 0.03, branch = 0.01 }

[[learner]]
name = "hospital"
functions = ["hospital_svm", "hospital_rules"]
peers = { campus = 0.02, bank = 0.03, branch = 0.01 }

[[learner]]
name = "bank"
functions = ["bank_boost", "bank_logit"]
peers = { campus = 0.02, hospital = 0.02, branch = 0.01 }

[[learner]]
name = "branch"
functions = ["branch_rules", "branch_bayes"]
peers = { campus = 0.15, hospital = 0.15, bank = 0.2 }
"""
