"""The numbers of each table, and the cases that give them.

Each line of a table is run in several readings: `paper`, the reading that the published figures
fit; `spec`, the published algorithm; and `default`, the policy that covey recommends.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import msgspec

from reproduction.data import PRINTED, TABLES, Key
from reproduction.experiments import RIVER, Arrivals, Case, Trial
from reproduction.models import LAST_LABEL, SLOTS

READINGS = ("paper", "spec", "default")
HERE = "here"  # a number that does not depend on how the paper is read
CONTEXT_NAMES = {
    "A1": "previous label",
    "A2": "src_bytes",
    "A2 log": "src_bytes (log)",
    "A3": "time",
    "hour": "hour",
    "none": "no context",
}
TIMED = ("A1", "A2", "A2 log", "A3")
SEEDS = 10
PRICES = ("0", "0.5", "0.7")  # of asking a peer
YARDSTICKS = ("previous-label", "win-stay", "best single function")
QUANTITIES = ("error", "training", "exploration")
BY_INDEX = "by its index"
_PRESETS: dict[str, dict[str, Any]] = {
    "CoS": {"preset": "cos"},
    "DCZA": {"preset": "dcza"},
    "DCZA inherit": {"preset": "dcza", "inherit": True},
}


class TableEntry(NamedTuple):
    """The numbers of one line of a table in one reading, and the cases that give them."""

    table: str
    line: str
    reading: str
    keys: Mapping[str, Key]  # quantity -> key of the number
    cases: tuple[Case, ...]
    helper: str = "explore-first"  # how a peer that is asked chooses
    decides: bool = True  # whether claims use it; several lines may have the same numbers
    statistic: Literal["median", "mean"] = "median"


def policy_table(algorithm: str, parameters: str, reading: str, **more: Any) -> dict[str, Any]:
    """Return the `[policy]` of an algorithm in a reading; the default is the same for all."""
    if reading == "default":
        return {"preset": "auto"}
    return {**_PRESETS[algorithm], "reading": reading, "parameters": parameters.lower(), **more}


def _by_phases(algorithm: str, reading: str) -> dict[str, Any]:
    """Return the `[policy]` where peers see the context only: the default is CoS there."""
    if reading == "default":
        return policy_table("CoS", "Z1", "spec")
    return policy_table(algorithm, "Z1", reading)


def seeds_of(trial: str) -> range:
    """Return the seeds of a trial: one where nothing in it is left to chance."""
    return range(1 if trial.startswith("S1") else SEEDS)


def printed_key(key: Key) -> Key:
    """Return where the paper prints a number: it has one scale of src_bytes, not two."""
    return tuple("A2" if word == "A2 log" else word for word in key)


def for_all_seeds(case: Case) -> tuple[Case, ...]:
    """Return the case with every seed of its trial."""
    return tuple(msgspec.structs.replace(case, seed=seed) for seed in seeds_of(case.trial))


def keys_for(start: Key, quantities: Sequence[str] = QUANTITIES) -> dict[str, Key]:
    """Return keys that begin alike and end in the quantity."""
    return {quantity: (*start, quantity) for quantity in quantities}


def yardsticks(table: str, lines: dict[str, Case]) -> list[TableEntry]:
    """Return the methods without learning, for each line of a table."""
    return [
        TableEntry(
            table, line, "yardsticks", keys_for((table, "yardsticks", line), YARDSTICKS), cases
        )
        for line, case in lines.items()
        for cases in [for_all_seeds(msgspec.structs.replace(case, does="yardsticks"))]
    ]


def yardsticks_by_set(table: str, sets: Sequence[str] = ("S1", "S2")) -> list[TableEntry]:
    """Return the yardsticks of the paper's sets of functions."""
    return yardsticks(table, {name: Case(trial=name) for name in sets})


def table_entry(
    table: str, line: str, reading: str, keys: Mapping[str, Key], case: Case, **more: Any
) -> TableEntry:
    """Return an entry over all seeds; the default policy has a rule for helpers of its own."""
    helper = more.pop("helper", "explore-first")
    return TableEntry(
        table,
        line,
        reading,
        keys,
        for_all_seeds(case),
        helper=BY_INDEX if reading == "default" else helper,
        **more,
    )


SHARES = ("1", "0.5", "0.1", "0.01")  # of the labels


def _sim_setup() -> list[TableEntry]:
    names = list(dict.fromkeys(key[1] for key in PRINTED if key[0] == "sim_setup"))
    found = []
    for name in names:
        places = [key for key in PRINTED if key[:2] == ("sim_setup", name)]
        found += [
            TableEntry(
                "sim_setup",
                f"{name}, learner {key[2]}: {key[3]}",
                "here",
                {f"function {place + 1}": key},
                for_all_seeds(Case(trial=name, does="yardsticks")),
                helper="",
            )
            for place, key in enumerate(places)
        ]
    return [*found, *yardsticks_by_set("sim_setup")]


def _error_comp() -> list[TableEntry]:
    table, found = "error_comp", []
    runs = {"CoS": "A1", "DCZA": "A1", "CoS no context": "none"}
    for name in ("S1", "S2"):
        for row, context in runs.items():
            for reading in READINGS:
                rule = policy_table(row.split()[0], "Z1", reading)
                case = Case(trial=name, context=context, policy=rule)
                keys = {"error": (table, row, name, "error")}
                found.append(table_entry(table, f"{row}, {name}", reading, keys, case))
        for row, baseline in _BOOSTING.items():
            cases = for_all_seeds(Case(trial=name, does="boosting"))
            keys = {baseline: (table, row, name, "error")}
            found.append(TableEntry(table, f"{row}, {name}", "here", keys, cases, helper=""))
    return [*found, *yardsticks_by_set(table)]


_BOOSTING = {
    "AdaBoost": "adaboost",
    "SWA 100": "sliding-adaboost-100",
    "SWA 1000": "sliding-adaboost-1000",
    "Oza-Russell": "oza-russell",
}


_WITH_EXPLOITATION = (*QUANTITIES, "exploitation error")


def _sim_results() -> list[TableEntry]:
    table, found = "sim_results", []
    rows = list(dict.fromkeys(key[1:4] for key in PRINTED if key[0] == table))
    rows += [("DCZA inherit", "Z1", name) for name in ("S1", "S2")]
    for (algorithm, parameters, name), context in product(rows, TIMED):
        for reading in READINGS:
            case = Case(
                trial=name, context=context, policy=policy_table(algorithm, parameters, reading)
            )
            start = (table, algorithm, parameters, name, context)
            line = f"{algorithm} {parameters} {name}, {CONTEXT_NAMES[context]}"
            found.append(
                table_entry(table, line, reading, keys_for(start, _WITH_EXPLOITATION), case)
            )
    return [*found, *yardsticks_by_set(table)]


def _sim_results2() -> list[TableEntry]:
    """Worst correlation: only learner 1 receives instances, in two rules for helpers."""
    table, found = "sim_results2", []
    rows = product(("CoS", "DCZA"), ("S1", "S2"), TIMED, ("greedy", "explore-first"))
    for algorithm, name, context, helper in rows:
        for reading in READINGS:
            case = Case(
                trial=name,
                context=context,
                policy=policy_table(algorithm, "Z1", reading),
                arrivals="first",
                is_greedy=helper == "greedy" and reading != "default",
            )
            keys = keys_for((table, algorithm, "Z1", name, context))
            decides = reading == "default" or helper == _PUBLISHED_HELPER[reading]
            line = f"{algorithm} Z1 {name}, {CONTEXT_NAMES[context]}, {helper} helper"
            found.append(
                table_entry(table, line, reading, keys, case, helper=helper, decides=decides)
            )
    return [*found, *yardsticks_by_set(table)]


# Which rule for helpers a reading has where no learner trains them: the published figures fit the
# greedy one, the proofs need the other.
_PUBLISHED_HELPER = {"paper": "greedy", "spec": "explore-first"}


def _weights() -> list[TableEntry]:
    table, found = "weights", []
    for kind, name in product(("dependent", "independent"), ("S1", "S2")):
        for reading in READINGS:
            case = Case(
                trial=name,
                context="A3",
                does="ensemble",
                policy=policy_table("CoS", "Z1", reading),
                weights="cell" if kind == "dependent" else "global",
            )
            keys = {
                "error": (table, "total error", kind, name),
                "exploitation error": (table, "exploitation error", kind, name),
            }
            line = f"weights {'per cell' if kind == 'dependent' else 'global'}, {name}"
            found.append(table_entry(table, line, reading, keys, case, helper="nobody asks"))
    return [*found, *yardsticks_by_set(table)]


def _errorperc() -> list[TableEntry]:
    table, found = "errorperc", []
    for algorithm, share in product(("CoS", "DCZA"), SHARES):
        for reading in READINGS:
            case = Case(
                trial="S2",
                context="A3",
                policy=policy_table(algorithm, "Z1", reading),
                labels=float(share),
            )
            line = f"{algorithm}, {share} of the labels"
            keys = keys_for((table, algorithm, share))
            found.append(table_entry(table, line, reading, keys, case))
    for share in SHARES:
        case = Case(
            trial="S2",
            context="A3",
            policy=policy_table("CoS", "Z1", "default"),
            labels=float(share),
            arrivals="first",
        )
        line = f"arrivals at learner 1 only, {share} of the labels"
        keys = keys_for((table, "worst correlation", share))
        found.append(table_entry(table, line, "default", keys, case))
    lines = {f"{share} of the labels": Case(trial="S2", labels=float(share)) for share in SHARES}
    return [*found, *yardsticks(table, lines)]


def _nlearn() -> list[TableEntry]:
    table, found = "nlearn", []
    for trial, algorithm, learners in product(
        ("hybrid", "synthetic"), ("CoS", "DCZA"), (1, 2, 3, 4)
    ):
        for reading in READINGS:
            rule = policy_table(algorithm, "Z1", reading)
            case = Case(trial=trial, policy=rule, learners=learners)
            keys = keys_for((table, algorithm, str(learners)))
            line = f"{algorithm}, {trial}, learners: {learners}"
            found.append(table_entry(table, line, reading, keys, case, decides=trial == "hybrid"))
    lines = {
        f"{trial}, learners: {learners}": Case(trial=trial, learners=learners)
        for trial, learners in product(("hybrid", "synthetic"), (1, 2, 3, 4))
    }
    return [*found, *yardsticks(table, lines)]


def _callcost() -> list[TableEntry]:
    table, found = "callcost", []
    for price in PRICES:
        keys: dict[str, Key] = {"error": (table, price, "error")}
        keys |= {f"training {k}": (table, price, "training", k) for k in "234"}
        keys |= {f"selection {k}": (table, price, "selection", k) for k in "1234"}
        for reading in READINGS:
            case = Case(
                trial="S2",
                context="A1",
                policy=policy_table("CoS", "Z1", reading),
                price=float(price),
            )
            found.append(table_entry(table, f"price {price}", reading, keys, case))
    return [*found, *yardsticks_by_set(table, ["S2"])]


def _onlycontext() -> list[TableEntry]:
    table, found = "onlycontext", []
    for algorithm, name, context, history in product(
        ("CoS", "DCZA"), ("S1", "S2"), TIMED, ("as described", "locked in")
    ):
        for reading in READINGS:
            rule = {**_by_phases(algorithm, reading), "history": "predictions"}
            is_locked = history == "locked in"
            case = Case(
                trial=name, context=context, policy=rule, shown="context", locks_in=is_locked
            )
            keys = keys_for((table, algorithm, "Z1", name, context))
            decides = history == ("locked in" if reading == "paper" else "as described")
            line = f"{algorithm} Z1 {name}, {CONTEXT_NAMES[context]}, {history}"
            found.append(
                TableEntry(
                    table,
                    line,
                    reading,
                    keys,
                    for_all_seeds(case),
                    helper="best prediction" if history == "as described" else "locked in",
                    decides=decides,
                )
            )
    return [*found, *yardsticks_by_set(table)]


ALONE = "own functions only"
WORLDS = 10  # that are drawn; one alone says little
SHORT = 5_000  # slots of the shorter horizon
DEFAULT_CONTEXTS = ("A1", "A2 log", "A3", "none")
ARRIVALS: dict[Arrivals, str] = {"all": "arrivals at all", "first": "arrivals at learner 1 only"}


def _horizon() -> list[TableEntry]:
    """Return runs with the theorem's parameters that know when they end."""
    table, found = "horizon", []
    for algorithm, context, slots in product(("CoS", "DCZA"), TIMED, (SHORT, SLOTS)):
        for reading in READINGS:
            case = Case(
                trial="S1",
                context=context,
                policy=policy_table(algorithm, "Z2", reading),
                slots=slots,
            )
            keys = keys_for((table, algorithm, "Z2", "S1", context, str(slots)))
            line = f"{algorithm} Z2 S1, {CONTEXT_NAMES[context]}, {slots:,} slots"
            found.append(table_entry(table, line, reading, keys, case))
    lines = {f"{slots:,} slots": Case(trial="S1", slots=slots) for slots in (SHORT, SLOTS)}
    return [*found, *yardsticks(table, lines)]


def _default() -> list[TableEntry]:
    """Return the default policy beside CoS, in every set, context and correlation."""
    table, found = "default", []
    cells = product(("S1", "S2"), DEFAULT_CONTEXTS, ARRIVALS)
    for (name, context, arrivals), reading in product(cells, READINGS):
        case = Case(
            trial=name,
            context=context,
            policy=policy_table("CoS", "Z1", reading),
            arrivals=arrivals,
        )
        line = f"{name}, {CONTEXT_NAMES[context]}, {ARRIVALS[arrivals]}"
        keys = keys_for((table, name, context, arrivals))
        found.append(table_entry(table, line, reading, keys, case))
    return [*found, *yardsticks_by_set(table)]


def _prices() -> list[TableEntry]:
    """Return what is left of learner 1's right answers after what it pays, and without peers."""
    table, found = "prices", []
    settings = {f"price {price}": Case(trial="S2", price=float(price)) for price in PRICES}
    settings[ALONE] = Case(trial="S2", learners=1)
    for (line, setting), reading in product(settings.items(), READINGS):
        rule = policy_table("CoS", "Z1", reading)
        case = msgspec.structs.replace(setting, context="A1", policy=rule)
        keys = keys_for((table, line), ("net reward", "error", "asked"))
        helper = "nobody asks" if line == ALONE else "explore-first"
        found.append(table_entry(table, line, reading, keys, case, helper=helper))
    lines = {"all functions": Case(trial="S2"), ALONE: Case(trial="S2", learners=1)}
    return [*found, *yardsticks(table, lines)]


def _river() -> list[TableEntry]:
    """Return the baselines from River over all eight functions; they are slow: one seed."""
    table, found = "river", []
    for name in ("S1", "S2"):
        cases = (Case(trial=name, does="river"),)
        found += [
            TableEntry(table, f"{baseline}, {name}", HERE, {baseline: keys}, cases, helper="")
            for baseline in RIVER
            for keys in [(table, baseline, name, "error")]
        ]
        for context in DEFAULT_CONTEXTS:
            case = Case(trial=name, context=context, policy=policy_table("CoS", "Z1", "default"))
            keys = keys_for((table, name, context), ("error",))
            line = f"default, {CONTEXT_NAMES[context]}, {name}"
            found.append(table_entry(table, line, "default", keys, case))
    return [*found, *yardsticks_by_set(table)]


def _stationary() -> list[TableEntry]:
    """Return regret where accuracies are known and stay as they are: nothing to forget."""
    table, found = "stationary", []
    for (arrivals, where), reading in product(ARRIVALS.items(), ("spec", "default")):
        rule = policy_table("CoS", "Z1", reading)
        case = Case(trial="bumps", does="bumps", policy=rule, arrivals=arrivals)
        found.append(
            TableEntry(
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


GIVEN = ", given the last label"
ELECTRICITY_CONTEXTS = ("A1", "hour", "A3", "none")
_SET_NAMES = ("S1", "S2")
_FEWER_SEEDS = 3
# Of these no line is left out but those of src_bytes as it is, and of what the paper only mentions.
_MOVED_TABLES = (
    "sim_setup",
    "error_comp",
    "sim_results",
    "sim_results2",
    "weights",
    "errorperc",
    "callcost",
    "onlycontext",
)


def other_windows_table(trials: Sequence[Trial]) -> list[TableEntry]:
    """Return the paper's tables on other windows, with fewer seeds."""
    found = []
    for start in dict.fromkeys(trial.start for trial in trials):
        names = dict(zip(_SET_NAMES, (t.name for t in trials if t.start == start), strict=True))
        for table in _MOVED_TABLES:
            found += [_moved(entry, names, start) for entry in PLANS[table]() if _is_kept(entry)]
    lines = {trial.name: Case(trial=trial.name) for trial in trials}
    return [*found, *yardsticks("further", lines)]


def _is_kept(entry: TableEntry) -> bool:
    is_plain = f"{CONTEXT_NAMES['A2']}," in f"{entry.line},"
    return entry.reading != "yardsticks" and not is_plain and "inherit" not in entry.line


def _moved(entry: TableEntry, names: dict[str, str], start: int) -> TableEntry:
    """Return the entry for another window."""
    cases = entry.cases[:_FEWER_SEEDS]
    return entry._replace(
        table="further",
        line=f"from row {start}, {entry.table}: {entry.line}",
        keys={quantity: ("further", str(start), *key) for quantity, key in entry.keys.items()},
        cases=tuple(msgspec.structs.replace(case, trial=names[case.trial]) for case in cases),
        decides=False,
    )


def electricity_table(trials: Sequence[Trial]) -> list[TableEntry]:
    """Return the paper's tables as means over all windows of the Electricity stream.

    Half of the trials are the same windows with a function that repeats the last label.
    """
    plain = [trial for trial in trials if LAST_LABEL not in trial.functions]
    given = [trial for trial in trials if LAST_LABEL in trial.functions]
    found = []
    for chosen, end in ((plain, ""), (given, GIVEN)):
        for algorithm, context in product(("CoS", "DCZA"), ELECTRICITY_CONTEXTS):
            line = f"{algorithm} Z1, {CONTEXT_NAMES[context]}{end}"
            found += _means(chosen, line, algorithm, context=context)
    for line, setting in _SETTINGS.items():
        found += _means(plain, line, "CoS", **setting)
    return [*found, _yardsticks(plain, "all windows"), _yardsticks(given, f"all windows{GIVEN}")]


_SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"CoS Z1, {CONTEXT_NAMES[context]}, {ARRIVALS['first']}": {
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
        f"CoS Z1, {CONTEXT_NAMES[context]}, peers see the context only": {
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


def _means(trials: Sequence[Trial], line: str, algorithm: str, **setting: Any) -> list[TableEntry]:
    """Return a line in all readings; where peers see the context only, none of them is an index."""
    table, found = "electricity", []
    is_ensemble = setting.get("does") == "ensemble"
    sees_context = setting.get("shown") == "context"
    for reading in READINGS:
        if sees_context:
            rule = _by_phases(algorithm, reading)
        else:
            rule = policy_table(algorithm, "Z1", reading)
        cases = tuple(Case(trial=trial.name, policy=rule, **setting) for trial in trials)
        keys = keys_for((table, line), ("error",)) if is_ensemble else keys_for((table, line))
        by_index = reading == "default" and not is_ensemble
        helper = BY_INDEX if by_index else "label seen most" if sees_context else "explore-first"
        found.append(
            TableEntry(
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


def _yardsticks(trials: Sequence[Trial], line: str) -> TableEntry:
    cases = tuple(Case(trial=trial.name, does="yardsticks") for trial in trials)
    keys = keys_for(("electricity", "yardsticks", line), YARDSTICKS)
    return TableEntry("electricity", line, "yardsticks", keys, cases, statistic="mean")


PLANS: dict[str, Callable[[], list[TableEntry]]] = {
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
BEYOND: dict[str, Callable[[], list[TableEntry]]] = {
    "horizon": _horizon,
    "default": _default,
    "prices": _prices,
    "stationary": _stationary,
    "river": _river,
}
ELSEWHERE: dict[str, Callable[[Sequence[Trial]], list[TableEntry]]] = {
    "further": other_windows_table,
    "electricity": electricity_table,
}
# All tables, in the order of the report.
NAMES = (*TABLES, *BEYOND, *ELSEWHERE)


def entries_of(name: str, windows: Mapping[str, Sequence[Trial]]) -> list[TableEntry]:
    """Return the entries of a table; some are played on windows, which are chosen for them."""
    if name in ELSEWHERE:
        return ELSEWHERE[name](windows[name])
    return (PLANS | BEYOND)[name]() if name != "par_setup" else []
