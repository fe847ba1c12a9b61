"""Beyond the paper's tables, on its data: shorter horizons, prices paid, covey's own policy."""

from itertools import product

import msgspec

from covey.papers.cases import Arrivals, Case
from covey.papers.entries import (
    BY_INDEX,
    CONTEXTS,
    HERE,
    PRICES,
    READINGS,
    TIMED,
    Entry,
    by_set,
    entry,
    keyed,
    policy,
    yardsticks,
)
from covey.papers.functions import SLOTS
from covey.papers.playing import RIVER

ALONE = "own functions only"
WORLDS = 10  # that are drawn; one alone says little
SHORT = 5_000  # slots of the shorter horizon
DEFAULT_CONTEXTS = ("A1", "A2 log", "A3", "none")
ARRIVALS: dict[Arrivals, str] = {"all": "arrivals at all", "first": "arrivals at learner 1 only"}


def horizon() -> list[Entry]:
    """Return runs with the theorem's parameters that know when they end."""
    table, found = "horizon", []
    for algorithm, context, slots in product(("CoS", "DCZA"), TIMED, (SHORT, SLOTS)):
        for reading in READINGS:
            case = Case(
                trial="S1", context=context, policy=policy(algorithm, "Z2", reading), slots=slots
            )
            keys = keyed((table, algorithm, "Z2", "S1", context, str(slots)))
            line = f"{algorithm} Z2 S1, {CONTEXTS[context]}, {slots:,} slots"
            found.append(entry(table, line, reading, keys, case))
    lines = {f"{slots:,} slots": Case(trial="S1", slots=slots) for slots in (SHORT, SLOTS)}
    return [*found, *yardsticks(table, lines)]


def default() -> list[Entry]:
    """Return the default policy beside CoS, in every set, context and correlation."""
    table, found = "default", []
    cells = product(("S1", "S2"), DEFAULT_CONTEXTS, ARRIVALS)
    for (name, context, arrivals), reading in product(cells, READINGS):
        case = Case(
            trial=name, context=context, policy=policy("CoS", "Z1", reading), arrivals=arrivals
        )
        line = f"{name}, {CONTEXTS[context]}, {ARRIVALS[arrivals]}"
        keys = keyed((table, name, context, arrivals))
        found.append(entry(table, line, reading, keys, case))
    return [*found, *by_set(table)]


def prices() -> list[Entry]:
    """Return what is left of learner 1's right answers after what it pays, and without peers."""
    table, found = "prices", []
    settings = {f"price {price}": Case(trial="S2", price=float(price)) for price in PRICES}
    settings[ALONE] = Case(trial="S2", learners=1)
    for (line, setting), reading in product(settings.items(), READINGS):
        rule = policy("CoS", "Z1", reading)
        case = msgspec.structs.replace(setting, context="A1", policy=rule)
        keys = keyed((table, line), ("net reward", "error", "asked"))
        helper = "nobody asks" if line == ALONE else "explore-first"
        found.append(entry(table, line, reading, keys, case, helper=helper))
    lines = {"all functions": Case(trial="S2"), ALONE: Case(trial="S2", learners=1)}
    return [*found, *yardsticks(table, lines)]


def river() -> list[Entry]:
    """Return what River brings, over all eight functions; it is slow, so with one seed."""
    table, found = "river", []
    for name in ("S1", "S2"):
        cases = (Case(trial=name, does="river"),)
        found += [
            Entry(table, f"{baseline}, {name}", HERE, {baseline: keys}, cases, helper="")
            for baseline in RIVER
            for keys in [(table, baseline, name, "error")]
        ]
        for context in DEFAULT_CONTEXTS:
            case = Case(trial=name, context=context, policy=policy("CoS", "Z1", "default"))
            keys = keyed((table, name, context), ("error",))
            line = f"default, {CONTEXTS[context]}, {name}"
            found.append(entry(table, line, "default", keys, case))
    return [*found, *by_set(table)]


def stationary() -> list[Entry]:
    """Return regret where accuracies are known and stay as they are: nothing to forget."""
    table, found = "stationary", []
    for (arrivals, where), reading in product(ARRIVALS.items(), ("spec", "default")):
        rule = policy("CoS", "Z1", reading)
        case = Case(trial="bumps", does="bumps", policy=rule, arrivals=arrivals)
        found.append(
            Entry(
                table,
                where,
                reading,
                {"regret": (table, arrivals, "regret")},
                tuple(msgspec.structs.replace(case, seed=seed) for seed in range(WORLDS)),
                helper=BY_INDEX if reading == "default" else "explore-first",
                statistic="mean",
            )
        )
    return found
