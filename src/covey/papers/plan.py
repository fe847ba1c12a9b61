"""Which cases decide which numbers, table by table of the paper."""

from collections.abc import Callable
from itertools import product

from covey.papers.cases import Case
from covey.papers.entries import (
    CONTEXTS,
    PRICES,
    QUANTITIES,
    READINGS,
    TIMED,
    Entry,
    by_set,
    entry,
    keyed,
    policy,
    several,
    yardsticks,
)
from covey.papers.printed import PRINTED, Key

SHARES = ("1", "0.5", "0.1", "0.01")  # of the labels


def _sim_setup() -> list[Entry]:
    names = list(dict.fromkeys(key[1] for key in PRINTED if key[0] == "sim_setup"))
    found = []
    for name in names:
        places = [key for key in PRINTED if key[:2] == ("sim_setup", name)]
        found += [
            Entry(
                "sim_setup",
                f"{name}, learner {key[2]}: {key[3]}",
                "here",
                {f"function {place + 1}": key},
                several(Case(trial=name, does="yardsticks")),
                helper="",
            )
            for place, key in enumerate(places)
        ]
    return [*found, *by_set("sim_setup")]


def _error_comp() -> list[Entry]:
    table, found = "error_comp", []
    runs = {"CoS": "A1", "DCZA": "A1", "CoS no context": "none"}
    for name in ("S1", "S2"):
        for row, context in runs.items():
            for reading in READINGS:
                rule = policy(row.split()[0], "Z1", reading)
                case = Case(trial=name, context=context, policy=rule)
                keys = {"error": (table, row, name, "error")}
                found.append(entry(table, f"{row}, {name}", reading, keys, case))
        for row, baseline in _BOOSTING.items():
            cases = several(Case(trial=name, does="boosting"))
            keys = {baseline: (table, row, name, "error")}
            found.append(Entry(table, f"{row}, {name}", "here", keys, cases, helper=""))
    return [*found, *by_set(table)]


_BOOSTING = {
    "AdaBoost": "adaboost",
    "SWA 100": "sliding-adaboost-100",
    "SWA 1000": "sliding-adaboost-1000",
    "Oza-Russell": "oza-russell",
}


_WITH_EXPLOITATION = (*QUANTITIES, "exploitation error")


def _sim_results() -> list[Entry]:
    table, found = "sim_results", []
    rows = list(dict.fromkeys(key[1:4] for key in PRINTED if key[0] == table))
    rows += [("DCZA inherit", "Z1", name) for name in ("S1", "S2")]
    for (algorithm, parameters, name), context in product(rows, TIMED):
        for reading in READINGS:
            case = Case(trial=name, context=context, policy=policy(algorithm, parameters, reading))
            start = (table, algorithm, parameters, name, context)
            line = f"{algorithm} {parameters} {name}, {CONTEXTS[context]}"
            found.append(entry(table, line, reading, keyed(start, _WITH_EXPLOITATION), case))
    return [*found, *by_set(table)]


def _sim_results2() -> list[Entry]:
    """Worst correlation: nobody but learner 1 receives anything, in two rules for helpers."""
    table, found = "sim_results2", []
    rows = product(("CoS", "DCZA"), ("S1", "S2"), TIMED, ("greedy", "explore-first"))
    for algorithm, name, context, helper in rows:
        for reading in READINGS:
            rule = policy(algorithm, "Z1", reading)
            if reading != "default":
                rule["helper"] = helper
            case = Case(trial=name, context=context, policy=rule, arrivals="first")
            keys = keyed((table, algorithm, "Z1", name, context))
            decides = reading == "default" or helper == _PUBLISHED_HELPER[reading]
            line = f"{algorithm} Z1 {name}, {CONTEXTS[context]}, {helper} helper"
            found.append(entry(table, line, reading, keys, case, helper=helper, decides=decides))
    return [*found, *by_set(table)]


# Which rule for helpers a reading has where nobody trains them: the published figures fit the
# greedy one, the proofs need the other.
_PUBLISHED_HELPER = {"paper": "greedy", "spec": "explore-first"}


def _weights() -> list[Entry]:
    table, found = "weights", []
    for kind, name in product(("dependent", "independent"), ("S1", "S2")):
        for reading in READINGS:
            case = Case(
                trial=name,
                context="A3",
                does="ensemble",
                policy=policy("CoS", "Z1", reading),
                weights="cell" if kind == "dependent" else "global",
            )
            keys = {
                "error": (table, "total error", kind, name),
                "exploitation error": (table, "exploitation error", kind, name),
            }
            line = f"weights {'per cell' if kind == 'dependent' else 'global'}, {name}"
            found.append(entry(table, line, reading, keys, case, helper="nobody asks"))
    return [*found, *by_set(table)]


def _errorperc() -> list[Entry]:
    table, found = "errorperc", []
    for algorithm, share in product(("CoS", "DCZA"), SHARES):
        for reading in READINGS:
            case = Case(
                trial="S2",
                context="A3",
                policy=policy(algorithm, "Z1", reading),
                labels=float(share),
            )
            line = f"{algorithm}, {share} of the labels"
            keys = keyed((table, algorithm, share))
            found.append(entry(table, line, reading, keys, case))
    for share in SHARES:
        case = Case(
            trial="S2",
            context="A3",
            policy=policy("CoS", "Z1", "default"),
            labels=float(share),
            arrivals="first",
        )
        line = f"arrivals at learner 1 only, {share} of the labels"
        keys = keyed((table, "worst correlation", share))
        found.append(entry(table, line, "default", keys, case))
    lines = {f"{share} of the labels": Case(trial="S2", labels=float(share)) for share in SHARES}
    return [*found, *yardsticks(table, lines)]


def _nlearn() -> list[Entry]:
    table, found = "nlearn", []
    for trial, algorithm, learners in product(
        ("hybrid", "synthetic"), ("CoS", "DCZA"), (1, 2, 3, 4)
    ):
        for reading in READINGS:
            rule = policy(algorithm, "Z1", reading)
            case = Case(trial=trial, policy=rule, learners=learners)
            keys = keyed((table, algorithm, str(learners)))
            line = f"{algorithm}, {trial}, learners: {learners}"
            found.append(entry(table, line, reading, keys, case, decides=trial == "hybrid"))
    lines = {
        f"{trial}, learners: {learners}": Case(trial=trial, learners=learners)
        for trial, learners in product(("hybrid", "synthetic"), (1, 2, 3, 4))
    }
    return [*found, *yardsticks(table, lines)]


def _callcost() -> list[Entry]:
    table, found = "callcost", []
    for price in PRICES:
        keys: dict[str, Key] = {"error": (table, price, "error")}
        keys |= {f"training {k}": (table, price, "training", k) for k in "234"}
        keys |= {f"selection {k}": (table, price, "selection", k) for k in "1234"}
        for reading in READINGS:
            case = Case(
                trial="S2",
                context="A1",
                policy=policy("CoS", "Z1", reading),
                price=float(price),
            )
            found.append(entry(table, f"price {price}", reading, keys, case))
    return [*found, *by_set(table, ["S2"])]


def _onlycontext() -> list[Entry]:
    table, found = "onlycontext", []
    histories = {"as described": {}, "locked in": {"history": "asked"}}
    for algorithm, name, context, history in product(
        ("CoS", "DCZA"), ("S1", "S2"), TIMED, histories
    ):
        for reading in READINGS:
            # Who names no policy and has such peers gets the three phases.
            named = {} if reading == "default" else policy(algorithm, "Z1", reading)
            rule = named | histories[history]
            case = Case(trial=name, context=context, policy=rule, shown="context")
            keys = keyed((table, algorithm, "Z1", name, context))
            decides = history == ("locked in" if reading == "paper" else "as described")
            line = f"{algorithm} Z1 {name}, {CONTEXTS[context]}, {history}"
            found.append(
                Entry(
                    table,
                    line,
                    reading,
                    keys,
                    several(case),
                    helper="label seen most" if history == "as described" else "locked in",
                    decides=decides,
                )
            )
    return [*found, *by_set(table)]


PLANS: dict[str, Callable[[], list[Entry]]] = {
    "sim_setup": _sim_setup,
    "error_comp": _error_comp,
    "sim_results": _sim_results,
    "sim_results2": _sim_results2,
    "weights": _weights,
    "errorperc": _errorperc,
    "nlearn": _nlearn,
    "callcost": _callcost,
    "onlycontext": _onlycontext,
}
