"""Generate a demo log: three weeks of network flows at four sites, many of them attacks.

It depends on the seed only. Attacks come in bursts, more of them at night. Each function is good
for some hours and flow sizes and poor elsewhere, so no site is accurate alone.
"""

import csv
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class DemoFunction(NamedTuple):
    """A classification function with its accuracy inside its region and elsewhere.

    The accuracy depends on the context only, not on the label, as the theory assumes.
    """

    name: str
    at_home: float
    elsewhere: float
    hours: tuple[float, float]  # from, to; across midnight if from > to
    sizes: tuple[float, float]  # from, to, in bytes

    def accuracy(self, hours: Floats, sizes: Floats) -> Floats:
        """Return the probability of a right answer per flow; it fades at the region's edge."""
        start, end = self.hours
        reach = (end - start) % 24 / 2
        from_middle = np.abs((hours - start - reach + 12) % 24 - 12)
        low, high = np.log10(self.sizes)
        decades = np.log10(sizes)
        depth = np.minimum(
            (reach - from_middle) / FADING_HOURS,
            np.minimum(decades - low, high - decades) / FADING_DECADES,
        )
        inside: Floats = np.clip(depth + 0.5, 0.0, 1.0)
        return self.elsewhere + (self.at_home - self.elsewhere) * inside


ATTACK, NORMAL = "attack", "normal"
FLOWS_PER_DAY = 220
FADING_HOURS = 1.5
FADING_DECADES = 0.4
DAY, NIGHT = (8.0, 20.0), (20.0, 8.0)
SMALL, LARGE, ANY = (0.01, 1e3), (1e3, 1e12), (0.01, 1e12)
FUNCTIONS = (
    DemoFunction("campus_tree", 0.95, 0.62, DAY, SMALL),
    DemoFunction("campus_bayes", 0.90, 0.60, NIGHT, SMALL),
    DemoFunction("hospital_svm", 0.94, 0.60, DAY, LARGE),
    DemoFunction("hospital_rules", 0.86, 0.58, (10.0, 16.0), ANY),
    DemoFunction("bank_boost", 0.97, 0.60, NIGHT, LARGE),
    DemoFunction("bank_logit", 0.93, 0.58, (16.0, 1.0), SMALL),
    DemoFunction("branch_rules", 0.64, 0.64, DAY, ANY),
    DemoFunction("branch_bayes", 0.85, 0.55, DAY, SMALL),
)
# Site -> shares of the flows that it receives by day and by night. The bank is good at night but
# receives few flows then, so others have to train it.
SITES = {
    "campus": (0.25, 0.30),
    "hospital": (0.20, 0.42),
    "bank": (0.30, 0.08),
    "branch": (0.25, 0.20),
}


def write(folder: Path, *, slots: int = 4_600, seed: int = 1) -> tuple[Path, Path]:
    """Write `log.csv` and `sites.toml` into `folder`, created if needed; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    log, sites = folder / "log.csv", folder / "sites.toml"
    columns = _stream(slots, np.random.default_rng(seed))
    with log.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    sites.write_text(resources.files("covey.cli").joinpath("demo.toml").read_text("utf-8"))
    return log, sites


def _stream(slots: int, rng: np.random.Generator) -> dict[str, list[object]]:
    """Return the columns of the log."""
    days, hours = _times(slots, rng)
    is_night = (hours < DAY[0]) | (hours >= DAY[1])
    sizes = np.ceil(rng.lognormal(6.5, 2.8, slots))  # the median is 660 bytes
    is_attack = _attacks(is_night, rng)
    columns: dict[str, list[object]] = {
        "day": days.tolist(),
        "hour": hours.tolist(),
        "site": _sites(is_night, rng),
        "bytes": sizes.astype(np.int64).tolist(),
        "label": _labels(is_attack),
    }
    for function in FUNCTIONS:
        is_right = rng.random(slots) < function.accuracy(hours, sizes)
        columns[function.name] = _labels(is_attack == is_right)
    return columns


def _times(slots: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the day and the hour of each flow; half of a day's flows arrive from 8 to 18."""
    days = np.cumsum(rng.exponential(1 / FLOWS_PER_DAY, slots))
    hours = np.interp(days % 1, [0.0, 0.25, 0.75, 1.0], [0.0, 8.0, 18.0, 24.0])
    return 1 + days.astype(np.int64), np.floor(100 * hours) / 100


def _attacks(is_night: Flags, rng: np.random.Generator) -> Flags:
    """Return which flows are attacks: nearly all within a burst, few outside."""
    begins = np.where(is_night, 0.06, 0.02)
    draws = rng.random((len(is_night), 2))
    is_attack = np.zeros(len(is_night), np.bool_)
    is_burst = False
    for flow, (change, kind) in enumerate(draws):
        is_burst = change < (0.96 if is_burst else begins[flow])
        is_attack[flow] = kind < (0.95 if is_burst else 0.05)
    return is_attack


def _sites(is_night: Flags, rng: np.random.Generator) -> list[object]:
    draws = rng.random(len(is_night))
    by_day, by_night = (np.cumsum(shares)[:-1] for shares in zip(*SITES.values(), strict=True))
    indices = np.where(is_night, np.searchsorted(by_night, draws), np.searchsorted(by_day, draws))
    return [*np.array(list(SITES))[indices].tolist()]


def _labels(is_attack: Flags) -> list[object]:
    return [*np.where(is_attack, ATTACK, NORMAL).tolist()]
