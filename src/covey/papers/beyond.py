"""Beyond the paper's tables: shorter horizons, the default policy, and streams it did not use."""

from collections.abc import Sequence
from itertools import product

from covey.papers.cases import Arrivals, Case
from covey.papers.entries import (
    BY_INDEX,
    CONTEXTS,
    READINGS,
    TIMED,
    YARDSTICKS,
    Entry,
    by_set,
    entry,
    keyed,
    policy,
    yardsticks,
)
from covey.papers.functions import SLOTS
from covey.papers.trials import Trial

SHORT = 5_000  # slots of the shorter horizon
DEFAULT_CONTEXTS = ("A1", "A2 log", "A3", "none")
ELECTRICITY_CONTEXTS = ("A1", "hour", "A3", "none")
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


def further(trials: Sequence[Trial]) -> list[Entry]:
    """Return rows like those of `sim_results` on windows chosen without a look at errors."""
    table, found = "further", []
    for trial, algorithm, context in product(trials, ("CoS", "DCZA"), (*TIMED, "none")):
        for reading in READINGS:
            case = Case(trial=trial.name, context=context, policy=policy(algorithm, "Z1", reading))
            line = f"{algorithm} Z1 {trial.name}, {CONTEXTS[context]}"
            keys = keyed((table, algorithm, trial.name, context))
            found.append(entry(table, line, reading, keys, case))
    lines = {trial.name: Case(trial=trial.name) for trial in trials}
    return [*found, *yardsticks(table, lines)]


def electricity(trials: Sequence[Trial]) -> list[Entry]:
    """Return the means over all windows of the Electricity stream."""
    table, found = "electricity", []
    for algorithm, context, reading in product(("CoS", "DCZA"), ELECTRICITY_CONTEXTS, READINGS):
        cases = [
            Case(trial=trial.name, context=context, policy=policy(algorithm, "Z1", reading))
            for trial in trials
        ]
        found.append(
            Entry(
                table,
                f"{algorithm} Z1, {CONTEXTS[context]}",
                reading,
                keyed((table, algorithm, context)),
                tuple(cases),
                helper=BY_INDEX if reading == "default" else "explore-first",
                statistic="mean",
            )
        )
    cases = [Case(trial=trial.name, does="yardsticks") for trial in trials]
    keys = keyed((table, "yardsticks", "all windows"), YARDSTICKS)
    yardstick = Entry(table, "all windows", "yardsticks", keys, tuple(cases), statistic="mean")
    return [*found, yardstick]
