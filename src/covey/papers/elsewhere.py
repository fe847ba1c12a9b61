"""The paper's tables where nothing was chosen by its outcome: other windows, another stream."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec

from covey.papers.beyond import ARRIVALS
from covey.papers.cases import Case
from covey.papers.entries import (
    BY_INDEX,
    CONTEXTS,
    PRICES,
    READINGS,
    YARDSTICKS,
    Entry,
    keyed,
    policy,
    yardsticks,
)
from covey.papers.functions import LAST_LABEL
from covey.papers.plan import PLANS, SHARES
from covey.papers.trials import Trial

GIVEN = ", given the last label"
ELECTRICITY_CONTEXTS = ("A1", "hour", "A3", "none")
_SETS = ("S1", "S2")
_FEWER_SEEDS = 3
# Of these no line is left out but those of src_bytes as it is, and of what the paper only mentions.
_TABLES = (
    "sim_setup",
    "error_comp",
    "sim_results",
    "sim_results2",
    "weights",
    "errorperc",
    "callcost",
    "onlycontext",
)


def further(trials: Sequence[Trial]) -> list[Entry]:
    """Return the paper's tables on other windows, with fewer seeds."""
    found = []
    for start in dict.fromkeys(trial.start for trial in trials):
        names = dict(zip(_SETS, (t.name for t in trials if t.start == start), strict=True))
        for table in _TABLES:
            found += [_moved(entry, names, start) for entry in PLANS[table]() if _is_kept(entry)]
    lines = {trial.name: Case(trial=trial.name) for trial in trials}
    return [*found, *yardsticks("further", lines)]


def _is_kept(entry: Entry) -> bool:
    is_plain = f"{CONTEXTS['A2']}," in f"{entry.line},"
    return entry.reading != "yardsticks" and not is_plain and "inherit" not in entry.line


def _moved(entry: Entry, names: dict[str, str], start: int) -> Entry:
    """Return the entry for another window."""
    cases = entry.cases[:_FEWER_SEEDS]
    return entry._replace(
        table="further",
        line=f"from row {start}, {entry.table}: {entry.line}",
        keys={quantity: ("further", str(start), *key) for quantity, key in entry.keys.items()},
        cases=tuple(msgspec.structs.replace(case, trial=names[case.trial]) for case in cases),
        decides=False,
    )


def electricity(trials: Sequence[Trial]) -> list[Entry]:
    """Return the paper's tables as means over all windows of the Electricity stream.

    Half of the trials are the same windows with a function that repeats the last label.
    """
    plain = [trial for trial in trials if LAST_LABEL not in trial.functions]
    given = [trial for trial in trials if LAST_LABEL in trial.functions]
    found = []
    for chosen, end in ((plain, ""), (given, GIVEN)):
        for algorithm, context in product(("CoS", "DCZA"), ELECTRICITY_CONTEXTS):
            line = f"{algorithm} Z1, {CONTEXTS[context]}{end}"
            found += _means(chosen, line, algorithm, context=context)
    for line, setting in _SETTINGS.items():
        found += _means(plain, line, "CoS", **setting)
    return [*found, _yardsticks(plain, "all windows"), _yardsticks(given, f"all windows{GIVEN}")]


_SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"CoS Z1, {CONTEXTS[context]}, {ARRIVALS['first']}": {
            "context": context,
            "arrivals": "first",
        }
        for context in ELECTRICITY_CONTEXTS
    },
    **{
        f"CoS Z1, time, {share} of the labels": {"context": "A3", "labels": float(share)}
        for share in SHARES[1:]
    },
    **{
        f"CoS Z1, previous label, price {price}": {"context": "A1", "price": float(price)}
        for price in PRICES[1:]
    },
    **{
        f"CoS Z1, {CONTEXTS[context]}, peers see the context only": {
            "context": context,
            "shown": "context",
        }
        for context in ELECTRICITY_CONTEXTS
    },
    **{
        f"ensemble, time, weights {weights}": {
            "context": "A3",
            "does": "ensemble",
            "weights": weights,
        }
        for weights in ("global", "cell")
    },
}


def _means(trials: Sequence[Trial], line: str, algorithm: str, **setting: Any) -> list[Entry]:
    """Return a line in all readings; where peers see the context only, none of them is an index."""
    table, found = "electricity", []
    is_ensemble = setting.get("does") == "ensemble"
    sees_context = setting.get("shown") == "context"
    for reading in READINGS:
        is_unnamed = reading == "default" and sees_context
        rule = {} if is_unnamed else policy(algorithm, "Z1", reading)
        cases = tuple(Case(trial=trial.name, policy=rule, **setting) for trial in trials)
        keys = keyed((table, line), ("error",)) if is_ensemble else keyed((table, line))
        by_index = reading == "default" and not is_ensemble
        helper = BY_INDEX if by_index else "label seen most" if sees_context else "explore-first"
        found.append(
            Entry(
                table,
                line,
                reading,
                keys,
                cases,
                helper="nobody asks" if is_ensemble else helper,
                statistic="mean",
            )
        )
    return found


def _yardsticks(trials: Sequence[Trial], line: str) -> Entry:
    cases = tuple(Case(trial=trial.name, does="yardsticks") for trial in trials)
    keys = keyed(("electricity", "yardsticks", line), YARDSTICKS)
    return Entry("electricity", line, "yardsticks", keys, cases, statistic="mean")
