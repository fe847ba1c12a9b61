"""`covey init`: a first configuration for a log, guessed from its columns."""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec

from covey.config import load
from covey.data import contexts, tables
from covey.data.contexts import MOST_COORDINATES, lacks_vector, vector_of
from covey.errors import DataError
from covey.replay.replay import context_gains
from covey.report.text import signed
from covey.toml import text_of
from covey.types import Interval

LABELS = (
    "label",
    "labels",
    "truth",
    "true_label",
    "ground_truth",
    "target",
    "class",
    "y",
    "y_true",
)
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
MOST_ACTIVE = 2  # contexts; others are written as comments
IDS = ("id", "uuid", "guid", "row", "index", "key")
DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?")  # day or month first
DECIMAL_COMMA = re.compile(r"[-+]?\d+(\.\d{3})*,\d+")
HEAVY = 20  # a column is heavy-tailed if its largest value is so many times the median


class ColumnFacts(NamedTuple):
    """What the rows that were read say of a column."""

    name: str
    values: Counter[str]
    numbers: list[float] | None  # sorted; None if a value is not a number
    missing: int
    size: int | None = None  # of vectors that it holds; None: it holds none
    is_running: bool = False  # its numbers never fall, and nearly all differ

    @property
    def is_constant(self) -> bool:
        return self.size is None and len(self.values) <= 1

    @property
    def identifies(self) -> str | None:
        """What the column tells apart, if it can be no context."""
        if self.is_running:
            return "a row number or a running clock"
        words = self.name.strip().lower().replace("-", "_").split("_")
        is_unique = len(self.values) > FEW_VECTORS and len(self.values) == self.values.total()
        numbers = self.numbers or []
        is_whole = all(number.is_integer() for number in numbers)
        if is_unique and (words[-1] in IDS or (numbers and is_whole and numbers[-1] > 1e12)):
            return "an id of the row"
        return None


class Guess(NamedTuple):
    """A guessed configuration, and what was noticed."""

    label: str
    at: str | None
    revealed: str | None
    delay: str | None
    context: list[str]  # entries, as TOML
    ranked: list[tuple[str, str]]  # entries that are left out, each with the reason
    is_lacking: bool  # functions lack predictions
    learners: dict[str, list[str]]
    notes: list[str]
    warnings: list[str]


def guess(path: Path, *, label: str | None = None, at: str | None = None) -> Guess:
    """Return a configuration for the log at `path`; raise `DataError` if none can be guessed."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the file of a log in it")
    facts = _facts(path)
    truth = _label(facts, label, path)
    if at is not None and at not in facts:
        raise DataError(f"{path.name} has no column {at!r}; known: {', '.join(facts)}")
    optional = {key: _named(facts, names) for key, names in (("r", REVEALED), ("d", DELAYS))}
    site = at or _site(facts, facts[truth], {truth, *filter(None, optional.values())})
    used = {truth, *filter(None, [site, *optional.values()])}
    functions, warnings = _functions(facts, truth, used)
    if not functions:
        others = {name: fact.values for name, fact in facts.items() if name not in used}
        near = max(others, key=lambda name: -len(others[name]), default=None)
        shown = "" if near is None else f", {near!r} holds {_few(others[near])}"
        raise DataError(
            f"no column of {path.name} holds the same values as {truth!r}, so no predictions were "
            f"found: {truth!r} holds {_few(facts[truth].values)}{shown}. Log predicted labels in "
            "the same spelling, or name the column of true labels with --label"
        )
    rest = [facts[name] for name in facts if name not in used and name not in functions]
    context, context_warnings = _contexts(rest)
    sites = sorted(facts[site].values) if site else []
    notes = [
        f"true labels: {truth} ({len(facts[truth].values)} classes)",
        f"predictions: {', '.join(functions)}",
        f"sites: {site} ({len(sites)})" if site else "sites: every site gets every row",
        *(f"{key}: {optional[key[0]]}" for key in ("revealed", "delay") if optional[key[0]]),
    ]
    unlabelled = facts[truth].missing
    if unlabelled and optional["r"] is None:
        notes.append(f"revealed: {truth} ({unlabelled:,} rows have no label; theirs never comes)")
        optional["r"] = truth
    guessed = Guess(
        label=truth,
        at=site,
        revealed=optional["r"],
        delay=optional["d"],
        context=context,
        ranked=[],
        is_lacking=any(facts[name].missing for name in functions),
        learners=_learners(functions, sites),
        notes=notes,
        warnings=[*warnings, *context_warnings],
    )
    return _ranked(guessed, path)


def _ranked(guessed: Guess, path: Path) -> Guess:
    """Return the guess with the contexts that gain most on the log; others are left out."""
    if not guessed.context:
        return guessed
    setup = load(tomllib.loads(text(guessed, log=path.name)))
    gains, ranks = iter(context_gains(setup, path)), []
    for entry in guessed.context:
        parsed = tomllib.loads(f"context = [{entry}]")["context"][0]
        own = [next(gains) for _ in range(contexts.width_of(parsed))]
        ranks.append((max(own, key=lambda gain: gain.low or 0.0), entry))
    ranks.sort(key=lambda rank: -rank[0].mean)
    # All of the intervals together hold in 95 % of the cases.
    wider = NormalDist().inv_cdf(1 - 0.025 / len(ranks)) / NormalDist().inv_cdf(0.975)
    active, left = list[tuple[str, str]](), list[tuple[str, str]]()
    kept: list[Interval] = []
    for place, (gain, entry) in enumerate(ranks, 1):
        why = f"rank {place}: alone {signed(gain)} points"
        reach = math.inf if gain.high is None else wider * (gain.high - gain.mean)
        is_new = gain not in kept  # two columns of one quantity cut the rows alike
        if len(active) < MOST_ACTIVE and gain.mean > reach and is_new:
            active.append((entry, why))
            kept.append(gain)
        else:
            left.append((entry, why))
    notes = [f"context: {entry} ({why})" for entry, why in active]
    notes += [f"left out, as a comment: {entry} ({why})" for entry, why in left[:MOST_CATEGORIES]]
    return guessed._replace(
        context=[entry for entry, _ in active],
        ranked=left,
        notes=[*guessed.notes, *notes],
    )


def _few(values: Mapping[str, int]) -> str:
    """Return the commonest of some values."""
    shown = ", ".join(repr(value) for value in [*values][:4])
    return f"{shown} and {len(values) - 4:,} more" if len(values) > 4 else shown


def text(guessed: Guess, *, log: str) -> str:
    """Return the configuration as TOML with comments."""
    keys = {key: getattr(guessed, key) for key in ("label", "at", "revealed", "delay")}
    data = [f"{key} = {text_of(value)}" for key, value in keys.items() if value is not None]
    if guessed.is_lacking:
        data.append('missing = "unavailable"  # a function without a prediction, in that row')
    entries = "".join(f"\n    {entry}," for entry in guessed.context)
    entries += "".join(f"\n    # {entry},  # {why}" for entry, why in guessed.ranked)
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
    if header and header[0].startswith("#"):
        raise DataError(
            f"{path.name} begins with a comment, {header[0]!r}; remove the lines before the header"
        )
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
    is_running = False
    if numbers and len(set(numbers)) > max(FEW_VECTORS, 0.9 * len(numbers)):
        is_running = [float(value) for value in present] == numbers
    return ColumnFacts(name, Counter(present), numbers, len(shown) - len(present), None, is_running)


def _shown(value: Any) -> str:
    """Return a value as text; whole floats as integers, nothing for a missing one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _named(facts: Mapping[str, ColumnFacts], names: Sequence[str]) -> str | None:
    by_lower = {name.strip().lower().replace(" ", "_"): name for name in facts}
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


def _site(facts: Mapping[str, ColumnFacts], truth: ColumnFacts, used: set[str]) -> str | None:
    """Return the column of sites, by which functions are named, or which has a usual name."""
    rest = {name: fact for name, fact in facts.items() if name not in used}
    several = {name: fact for name, fact in rest.items() if 2 <= len(fact.values) <= MOST_SITES}
    functions = [name for name, fact in rest.items() if set(fact.values) <= {*truth.values}]
    for name, fact in several.items():
        if all(any(_belongs(function, site) for function in functions) for site in fact.values):
            return name
    return _named(several, SITES)


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
                warnings.append(
                    f"{name} lacks {fact.missing:,} predictions; it is unavailable in those rows"
                )
    return functions, warnings


def _contexts(rest: Sequence[ColumnFacts]) -> tuple[list[str], list[str]]:
    """Return the entries that columns are proposed for, and why others are left out."""
    entries, warnings = [], []
    for fact in rest:
        scales = [] if fact.is_constant else _scales(fact)
        if fact.is_constant:
            warnings.append(f"{fact.name} is constant in the log; it is left out")
        elif fact.identifies:
            warnings.append(f"{fact.name} is {fact.identifies}; it is left out")
        elif fact.size and fact.missing:
            warnings.append(
                f"{fact.name} lacks {fact.missing:,} vectors; it is left out: fill or remove those "
                "rows first"
            )
        elif not scales:
            warnings.append(f"{fact.name} holds {_unfit(fact)}; it is left out")
        else:
            entries += scales
            if fact.missing:
                warnings.append(
                    f"{fact.name} lacks {fact.missing:,} values; rows without one have cells of "
                    'their own (missing = "own")'
                )
    return entries, warnings


def _scales(fact: ColumnFacts) -> list[str]:
    """Return the entries that a column is proposed for; none if it is unfit."""
    more = {"missing": "own"} if fact.missing else {}
    if fact.size is not None:
        return [f"{{ vector = {text_of(fact.name)}, size = {fact.size} }}"]
    if fact.numbers is not None:
        return [_scaled(fact.name, fact.numbers, more)]
    moments = _moments(fact)
    if moments is not None:
        return [_entry(fact.name, scale=scale, **more) for scale in _calendar(moments)]
    if len(fact.values) <= MOST_CATEGORIES:
        values = sorted(fact.values)
        return [_entry(fact.name, scale="category", values=values, other="own", **more)]
    return []


def _unfit(fact: ColumnFacts) -> str:
    if _moments(fact) is not None:
        return "times of less than two weeks"
    values = [*fact.values][:FEW_VECTORS]
    if all(map(DATE.fullmatch, values)):
        return f"dates that are not ISO 8601, like {values[0]!r} (write 2026-12-31)"
    if all(map(DECIMAL_COMMA.fullmatch, values)):
        return f"numbers with decimal commas, like {values[0]!r} (write 3.5)"
    if {value.lstrip("+-").lower() for value in fact.values} & {"inf", "infinity"}:
        return "infinite values (leave them empty, or write the largest number)"
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
    """Return the functions of each site: by the name of the site in theirs, or by turns."""
    if sites:
        owned = {site: [name for name in functions if _belongs(name, site)] for site in sites}
        if all(owned.values()) and sum(map(len, owned.values())) == len(functions):
            return owned
        return {site: list(functions[k :: len(sites)]) for k, site in enumerate(sites)}
    prefixes: dict[str, list[str]] = {}
    for name in functions:
        prefixes.setdefault(name.split("_")[0], []).append(name)
    if 1 < len(prefixes) < len(functions) and not prefixes.keys() & {*functions}:
        return prefixes
    return {f"site-of-{name}": [name] for name in functions}


def _belongs(function: str, site: str) -> bool:
    whole_words = rf"(?<![^\W_]){re.escape(site)}(?![^\W_])"
    return re.search(whole_words, function, re.IGNORECASE) is not None
