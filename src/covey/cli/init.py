"""`covey init`: a first configuration for a log, guessed from its columns."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.data import tables
from covey.data.contexts import MOST_COORDINATES, lacks_vector, vector_of
from covey.errors import DataError
from covey.toml import text_of

LABELS = ("label", "labels", "truth", "true_label", "target", "class", "y", "y_true", "outcome")
SITES = ("site", "at", "learner", "location", "place", "station", "branch")
REVEALED = ("revealed", "is_labelled", "labelled")
DELAYS = ("delay", "label_delay", "delay_slots")
PRICE = 0.05  # of a first try; 0.05 is worth 5 right answers in 100
MOST_ROWS = 100_000  # read to guess; later values may lie outside of low and high
MOST_SITES = 50
MOST_CATEGORIES = 12  # different texts of a column that becomes a category
DAYS_OF_WEEKS, DAYS_OF_MONTHS = 14, 300  # from which weekdays and months are proposed
FEW_VECTORS = 100  # of a column that are looked at
FEW_NUMBERS = 8  # of a text without brackets that is a vector
HEAVY = 20  # a column is heavy-tailed if its largest value is so many times the median


class ColumnFacts(NamedTuple):
    """What the rows that were read say of a column."""

    name: str
    values: Counter[str]
    numbers: list[float] | None  # sorted; None if a value is not a number
    missing: int
    size: int | None = None  # of vectors that it holds; None: it holds none

    @property
    def is_constant(self) -> bool:
        return self.size is None and len(self.values) <= 1


class Guess(NamedTuple):
    """A guessed configuration, and what was noticed."""

    label: str
    at: str | None
    revealed: str | None
    delay: str | None
    context: list[str]  # entries, as TOML
    learners: dict[str, list[str]]
    notes: list[str]
    warnings: list[str]


def guess(path: Path, *, label: str | None = None, at: str | None = None) -> Guess:
    """Return a configuration for the log at `path`; raise `DataError` if none can be guessed."""
    facts = _facts(path)
    truth = _label(facts, label, path)
    if at is not None and at not in facts:
        raise DataError(f"{path.name} has no column {at!r}; known: {', '.join(facts)}")
    optional = {key: _named(facts, names) for key, names in (("r", REVEALED), ("d", DELAYS))}
    site = at or _site(facts, {truth, *filter(None, optional.values())})
    used = {truth, *filter(None, [site, *optional.values()])}
    functions, warnings = _functions(facts, truth, used)
    if not functions:
        raise DataError(
            f"no column of {path.name} holds the same values as {truth!r}, so no predictions were "
            "found; name the column of true labels with --label"
        )
    rest = [facts[name] for name in facts if name not in used and name not in functions]
    context, context_notes, context_warnings = _contexts(rest)
    sites = sorted(facts[site].values) if site else []
    notes = [
        f"true labels: {truth} ({len(facts[truth].values)} classes)",
        f"predictions: {', '.join(functions)}",
        f"sites: {site} ({len(sites)})" if site else "sites: every site gets every row",
        *context_notes,
    ]
    return Guess(
        label=truth,
        at=site,
        revealed=optional["r"],
        delay=optional["d"],
        context=context,
        learners=_learners(functions, sites),
        notes=notes,
        warnings=[*warnings, *context_warnings],
    )


def text(guessed: Guess, *, log: str) -> str:
    """Return the configuration as TOML with comments."""
    keys = {
        "label": guessed.label,
        "at": guessed.at,
        "revealed": guessed.revealed,
        "delay": guessed.delay,
    }
    data = [f"{key} = {text_of(value)}" for key, value in keys.items() if value is not None]
    entries = "".join(f"\n    {entry}," for entry in guessed.context)
    lines = [
        f"# Guessed by `covey init {log}`; check every line, then: covey replay {log} --config ...",
        "[data]",
        *data,
        f"context = [{entries}\n]" if entries else "context = []",
        "",
        "# The default policy needs no settings; docs/guide/policies.md has others.",
        "[policy]",
        "",
        f"# A price of {PRICE} is paid for an answer that is right {PRICE:.0%} more often.",
    ]
    for name, functions in guessed.learners.items():
        peers = [f"{text_of(peer)} = {PRICE}" for peer in guessed.learners if peer != name]
        lines += [
            "[[learner]]",
            f"name = {text_of(name)}",
            f"functions = {text_of(functions)}",
            f"peers = {{ {', '.join(peers)} }}" if peers else "peers = {}",
            "",
        ]
    return "\n".join(lines)


def _facts(path: Path) -> dict[str, ColumnFacts]:
    header = tables.header(path)
    reader = tables.open_log(path, header)
    columns: dict[str, list[Any]] = {name: [] for name in header}
    for chunk in islice(reader.chunks(), 1 + (MOST_ROWS - 1) // tables.ROWS_PER_CHUNK):
        for name, values in chunk.items():
            columns[name] += list(values)
    if not header or not columns[header[0]]:
        raise DataError(f"{path.name} has no rows; a log needs at least one")
    return {name: _fact(name, values[:MOST_ROWS]) for name, values in columns.items()}


def _size(values: Sequence[Any]) -> int | None:
    """Return how many numbers each of some values has; None if they are not vectors of one size."""
    present = [*islice((value for value in values if not lacks_vector(value)), FEW_VECTORS)]
    vectors = [vector_of(value) for value in present]
    sizes = {0 if vector is None else vector.size for vector in vectors}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    # A text without brackets may be two numbers by chance, such as a time.
    is_marked = all(
        not isinstance(value, str) or value.lstrip()[:1] in ("[", "(") for value in present
    )
    return size if 0 < size <= MOST_COORDINATES and (is_marked or size >= FEW_NUMBERS) else None


def _fact(name: str, values: Sequence[Any]) -> ColumnFacts:
    size = _size(values)
    if size is not None:
        return ColumnFacts(name, Counter(), None, sum(map(lacks_vector, values)), size)
    shown = [_shown(value) for value in values]
    present = [value for value in shown if value != ""]
    try:
        numbers: list[float] | None = sorted(map(float, present))
    except ValueError:
        numbers = None
    if numbers and not all(map(math.isfinite, numbers)):
        numbers = None
    return ColumnFacts(name, Counter(present), numbers, len(shown) - len(present))


def _shown(value: Any) -> str:
    """Return a value as text; whole floats as integers, nothing for a missing one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _named(facts: Mapping[str, ColumnFacts], names: Sequence[str]) -> str | None:
    by_lower = {name.lower(): name for name in facts}
    return next((by_lower[name] for name in names if name in by_lower), None)


def _label(facts: Mapping[str, ColumnFacts], wanted: str | None, path: Path) -> str:
    if wanted is not None:
        if wanted not in facts:
            raise DataError(f"{path.name} has no column {wanted!r}; known: {', '.join(facts)}")
        return wanted
    name = _named(facts, LABELS)
    if name is None:
        raise DataError(
            f"which column of {path.name} holds the true labels? Name it with --label; known: "
            f"{', '.join(facts)}"
        )
    return name


def _site(facts: Mapping[str, ColumnFacts], used: set[str]) -> str | None:
    site = _named({name: fact for name, fact in facts.items() if name not in used}, SITES)
    if site is None or not 2 <= len(facts[site].values) <= MOST_SITES:
        return None
    return site


def _functions(
    facts: Mapping[str, ColumnFacts], label: str, used: set[str]
) -> tuple[list[str], list[str]]:
    """Return the columns whose values are labels, and warnings of those that look like scores."""
    classes = set(facts[label].values)
    functions, warnings = [], []
    for name, fact in facts.items():
        if name in used or not fact.values:
            continue
        values = set(fact.values)
        if values <= classes or (len(values & classes) > 1 and len(values) <= 2 * len(classes)):
            functions.append(name)
            if fact.missing:
                warnings.append(f"{name} lacks {fact.missing:,} predictions; remove those rows")
        elif _is_score(fact) and _looks_like_function(name, facts, classes):
            warnings.append(
                f"{name} holds numbers from 0 to 1, not labels; if it is a model's probability, "
                "log the predicted label"
            )
    return functions, warnings


def _is_score(fact: ColumnFacts) -> bool:
    numbers = fact.numbers
    return bool(numbers) and numbers is not None and numbers[0] >= 0 and numbers[-1] <= 1


def _looks_like_function(name: str, facts: Mapping[str, ColumnFacts], classes: set[str]) -> bool:
    """Return whether a column is named like one that holds predictions."""
    prefix = name.split("_", maxsplit=1)[0]
    return any(
        other != name and other.split("_")[0] == prefix and set(fact.values) <= classes
        for other, fact in facts.items()
        if "_" in name and fact.values
    )


def _contexts(rest: Sequence[ColumnFacts]) -> tuple[list[str], list[str], list[str]]:
    entries, notes, warnings = [], [], []
    for fact in rest:
        scales = [] if fact.is_constant or (fact.size and fact.missing) else _scales(fact)
        for entry, note in scales:
            entries.append(entry)
            notes.append(f"context: {entry}{note}")
        if fact.is_constant:
            warnings.append(f"{fact.name} is constant in the log; it is left out")
        elif fact.size and fact.missing:
            warnings.append(
                f"{fact.name} lacks {fact.missing:,} vectors; it is left out: fill or remove those "
                "rows first"
            )
        elif not scales:
            warnings.append(f"{fact.name} holds {_unfit(fact)}; it is left out")
        elif fact.missing:
            warnings.append(
                f"{fact.name} lacks {fact.missing:,} values; rows without one have cells of their "
                'own (missing = "own")'
            )
    return entries, notes, warnings


def _scales(fact: ColumnFacts) -> list[tuple[str, str]]:
    """Return the entries that a column is proposed for, each with a remark; none if unfit."""
    more = {"missing": "own"} if fact.missing else {}
    if fact.size is not None:
        return [(f"{{ vector = {text_of(fact.name)}, size = {fact.size} }}", "")]
    if fact.numbers is not None:
        return [(_scaled(fact.name, fact.numbers, more), "")]
    moments = _moments(fact)
    if moments is not None:
        scales = _calendar(moments)
        return [(_entry(fact.name, scale=scale, **more), " (in UTC)") for scale in scales]
    if len(fact.values) <= MOST_CATEGORIES:
        values = sorted(fact.values)
        return [(_entry(fact.name, scale="category", values=values, other="own", **more), "")]
    return []


def _unfit(fact: ColumnFacts) -> str:
    if _moments(fact) is not None:
        return "times of less than two weeks"
    return f"{len(fact.values):,} different texts, too many for categories"


def _entry(name: str, **options: Any) -> str:
    """Return a context as TOML."""
    keys = {"column": name, **options}
    return f"{{ {', '.join(f'{key} = {text_of(value)}' for key, value in keys.items())} }}"


def _scaled(name: str, numbers: Sequence[float], more: Mapping[str, str]) -> str:
    low, high, median = numbers[0], numbers[-1], numbers[len(numbers) // 2]
    if low >= 0 and high <= 1:
        return _entry(name, **more) if more else text_of(name)
    is_heavy = low >= 0 and high > HEAVY * max(median, 1e-300)
    bounds = {"low": msgspec.Raw(f"{low:g}".encode()), "high": msgspec.Raw(_above(high).encode())}
    return _entry(name, scale="log" if is_heavy else "linear", **bounds, clip=True, **more)


def _moments(fact: ColumnFacts) -> list[datetime] | None:
    """Return the times that a column holds, sorted; None if it holds anything else."""
    try:
        moments = [datetime.fromisoformat(value) for value in fact.values]
        # Times without an offset are in UTC, as everywhere.
        return sorted(at if at.tzinfo else at.replace(tzinfo=UTC) for at in moments)
    except ValueError:
        return None


def _calendar(moments: Sequence[datetime]) -> list[str]:
    """Return the calendar scales that times are long enough for."""
    days = (moments[-1] - moments[0]).days
    proposed = {
        "hour": len({(at.hour, at.minute) for at in moments}) > 1,
        "weekday": days >= DAYS_OF_WEEKS,
        "month": days >= DAYS_OF_MONTHS,
    }
    return [scale for scale, is_fit in proposed.items() if is_fit]


def _above(value: float) -> str:
    """Return a number of six digits that is not below `value`."""
    shown = f"{value:g}"
    return shown if float(shown) >= value else f"{value:.17g}"


def _learners(functions: Sequence[str], sites: Sequence[str]) -> dict[str, list[str]]:
    """Return the functions of each site: by the name of the site at their start, or by turns."""
    if sites:
        owned = {site: [name for name in functions if _belongs(name, site)] for site in sites}
        if all(owned.values()) and sum(map(len, owned.values())) == len(functions):
            return owned
        return {site: list(functions[k :: len(sites)]) for k, site in enumerate(sites)}
    prefixes: dict[str, list[str]] = {}
    for name in functions:
        prefixes.setdefault(name.split("_")[0], []).append(name)
    if len(prefixes) > 1 and len(prefixes) < len(functions):
        return prefixes
    return {f"site-of-{name}": [name] for name in functions}


def _belongs(function: str, site: str) -> bool:
    return function == site or any(function.startswith(site + mark) for mark in "_-. ")
