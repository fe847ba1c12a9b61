"""The claims of the paper's text as comparisons of figures, and whether figures confirm them.

A figure has a key, as in printed.toml. A claim has comparisons, each "this is smaller than that";
equal is not smaller. The claims are data: claims.toml explains its form.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Literal, NamedTuple

import msgspec

from covey.errors import DataError
from reproduction.data import PRINTED, Key, key_of, read_data

Figures = Mapping[Key, float]
Verdict = Literal["holds", "does not hold", "depends", "undecided"]


@dataclass(frozen=True)
class SumOf:
    """The sum of several figures."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        return sum(figures[key] for key in self.keys)


@dataclass(frozen=True)
class Minimum:
    """The smallest of several figures."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        return min(figures[key] for key in self.keys)


@dataclass(frozen=True)
class Increase:
    """The second of two figures less the first."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        first, second = self.keys
        return figures[second] - figures[first]


@dataclass(frozen=True)
class DropDeviation:
    """How far the drop from the first figure to the second, in percent, is from a number."""

    keys: tuple[Key, ...]
    percent: float

    def of(self, figures: Figures) -> float:
        before, after = (figures[key] for key in self.keys)
        drop = 100.0 * (before - after) / before if before else 0.0
        return abs(drop - self.percent)


Combined = SumOf | Minimum | Increase | DropDeviation
Term = Key | float | Combined


class Comparison(NamedTuple):
    """In this case, one term is smaller than another."""

    case: str
    smaller: Term
    larger: Term


class Claim(NamedTuple):
    """A statement of the paper: in other words, its place in the paper, and its comparisons."""

    name: str
    text: str
    section: str
    line: int
    comparisons: tuple[Comparison, ...]
    is_some: bool = False  # the paper says "may" or "can": one comparison is enough


class ComparisonResult(NamedTuple):
    """A comparison with its numbers."""

    case: str
    smaller: float
    larger: float

    @property
    def holds(self) -> bool:
        """Whether the first number is smaller than the second."""
        return self.smaller < self.larger


class Judgement(NamedTuple):
    """Whether figures confirm a claim, what that depends on, and the numbers that decided it."""

    claim: Claim
    verdict: Verdict
    on: str
    results: tuple[ComparisonResult, ...]

    @property
    def closest(self) -> str:
        """The comparison that is nearest to fail, or that fails most, with its two numbers."""
        if not self.results:
            return ""
        result = min(self.results, key=lambda result: result.larger - result.smaller)
        sign = "<" if result.holds else "≥"
        case = f" ({result.case})" if result.case else ""
        return f"{result.smaller:.2f} {sign} {result.larger:.2f}{case}"


def judge(claim: Claim, figures: Figures) -> Judgement:
    """Return whether `figures` confirm `claim`; without all of its figures it is undecided."""
    missing = [key for key in keys_of(claim) if math.isnan(figures.get(key, math.nan))]
    if missing:
        return Judgement(claim, "undecided", f"not run: {_first_of(missing)}", ())
    results = tuple(
        ComparisonResult(one.case, _value(one.smaller, figures), _value(one.larger, figures))
        for one in claim.comparisons
    )
    return Judgement(claim, *_verdict(claim, results), results)


def judge_across(claim: Claim, readings: Mapping[str, Figures]) -> Judgement:
    """Return what several readings of an experiment, by name, say of `claim` together.

    If they disagree, the verdict depends on the reading.
    """
    judgements = {name: judge(claim, figures) for name, figures in readings.items()}
    results = tuple(
        result._replace(case=f"{name}: {result.case}")
        for name, judgement in judgements.items()
        for result in judgement.results
    )
    verdicts = {judgement.verdict for judgement in judgements.values()}
    if len(verdicts) == 1:
        conditions = {judgement.on for judgement in judgements.values()}
        on = conditions.pop() if len(conditions) == 1 else _by_reading(judgements)
        return Judgement(claim, verdicts.pop(), on, results)
    return Judgement(claim, "depends", _by_reading(judgements), results)


def keys_of(claim: Claim) -> list[Key]:
    """Return the keys of all figures that decide `claim`, each once."""
    terms = [term for one in claim.comparisons for term in one[1:]]
    return list(dict.fromkeys(key for term in terms for key in _keys(term)))


def comparisons(
    smaller: Term, larger: Term, names: Mapping[str, Sequence[str]], *, case: str = ""
) -> tuple[Comparison, ...]:
    """Return a comparison for each way to choose one value of each of the `names`.

    Names in braces are filled in; `case` is added to the name of each comparison.
    """
    return tuple(
        Comparison(
            f"{' '.join(chosen.values())} {case}".strip(),
            _filled(smaller, chosen),
            _filled(larger, chosen),
        )
        for chosen in _choices(names)
    )


def growth(
    term: Term, steps: Sequence[str], names: Mapping[str, Sequence[str]]
) -> tuple[Comparison, ...]:
    """Return comparisons: a term grows from each step to the next; `{step}` is filled in."""
    return tuple(
        Comparison(
            " ".join([*chosen.values(), before, "to", after]),
            _filled(term, chosen | {"step": before}),
            _filled(term, chosen | {"step": after}),
        )
        for chosen in _choices(names)
        for before, after in pairwise(steps)
    )


def _verdict(claim: Claim, results: Sequence[ComparisonResult]) -> tuple[Verdict, str]:
    held = [result.case for result in results if result.holds]
    failed = [result.case for result in results if not result.holds]
    if not failed or (held and claim.is_some):
        return "holds", f"in {_joined(held)}" if failed else ""
    if not held:
        return "does not hold", ""
    return "depends", f"holds for {_joined(held)}; not for {_joined(failed)}"


def _by_reading(judgements: Mapping[str, Judgement]) -> str:
    return "; ".join(
        f"{name}: {judgement.verdict}" + (f" ({judgement.on})" if judgement.on else "")
        for name, judgement in judgements.items()
    )


def _choices(names: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*names.values())]


def _filled(term: Term, names: Mapping[str, str]) -> Term:
    if isinstance(term, float):
        return term
    if isinstance(term, tuple):
        return tuple(word.format(**names) for word in term)
    keys = tuple(tuple(word.format(**names) for word in key) for key in term.keys)
    return replace(term, keys=keys)


def _keys(term: Term) -> tuple[Key, ...]:
    if isinstance(term, float):
        return ()
    return (term,) if isinstance(term, tuple) else term.keys


def _value(term: Term, figures: Figures) -> float:
    if isinstance(term, float):
        return term
    return figures[term] if isinstance(term, tuple) else term.of(figures)


def _first_of(keys: list[Key]) -> str:
    """Name the first of these keys, and how many more there are."""
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return "/".join(keys[0]) + more


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


class _TermData(msgspec.Struct, forbid_unknown_fields=True):
    sum: list[str] | None = None
    minimum: list[str] | None = None
    increase: tuple[str, str] | None = None
    drop: tuple[str, str] | None = None
    of: float | None = msgspec.field(name="from", default=None)


_AnyTerm = str | float | _TermData


class _ComparisonData(msgspec.Struct, forbid_unknown_fields=True):
    smaller: _AnyTerm | None = None
    larger: _AnyTerm | None = None
    grows: _AnyTerm | None = None
    steps: list[str] = []
    case: str = ""
    names: dict[str, list[str]] = msgspec.field(name="for", default_factory=dict)


class _ClaimData(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    line: int
    text: str
    compare: list[_ComparisonData]
    some: bool = False


class _SectionData(msgspec.Struct, forbid_unknown_fields=True):
    line: int
    title: str


class ClaimsData(msgspec.Struct, forbid_unknown_fields=True):
    """The content of claims.toml."""

    section: list[_SectionData]  # by their first lines
    claim: list[_ClaimData]
    front: list[str] = []  # the names of the claims that the report begins with


def claims_from(data: ClaimsData) -> tuple[Claim, ...]:
    """Return the claims; raises `DataError` with the claim's name for one that is not valid."""
    claims: dict[str, Claim] = {}
    for one in data.claim:
        if one.name in claims:
            raise DataError(f"duplicate claim {one.name!r}")
        titles = [section.title for section in data.section if section.line <= one.line]
        if not titles:
            raise DataError(f"claim {one.name!r}: line {one.line} is in no section")
        try:
            parts = [part for comparison in one.compare for part in _comparisons(comparison)]
        except (KeyError, ValueError) as error:
            raise DataError(f"claim {one.name!r}: {_problem(error)}") from None
        claims[one.name] = Claim(one.name, one.text, titles[-1], one.line, tuple(parts), one.some)
    return tuple(claims.values())


def _problem(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{{{error.args[0]}}} is not a name under `for`"
    return str(error)


def _comparisons(data: _ComparisonData) -> tuple[Comparison, ...]:
    if data.grows is not None and data.steps and data.smaller is data.larger is None:
        return growth(_term(data.grows), data.steps, data.names)
    if data.grows is None and data.smaller is not None and data.larger is not None:
        return comparisons(_term(data.smaller), _term(data.larger), data.names, case=data.case)
    raise ValueError("a comparison has either `smaller` and `larger`, or `grows` and `steps`")


def _term(data: _AnyTerm) -> Term:
    if isinstance(data, str):
        return key_of(data)
    if not isinstance(data, _TermData):
        return float(data)
    match data:
        case _TermData(sum=list(keys), minimum=None, increase=None, drop=None, of=None):
            return SumOf(_matching(keys))
        case _TermData(sum=None, minimum=list(keys), increase=None, drop=None, of=None):
            return Minimum(_matching(keys))
        case _TermData(sum=None, minimum=None, increase=tuple(keys), drop=None, of=None):
            return Increase(_matching(keys))
        case _TermData(sum=None, minimum=None, increase=None, drop=tuple(keys), of=float(percent)):
            return DropDeviation(_matching(keys), percent)
    raise ValueError("a term has one of `sum`, `minimum`, `increase`, or `drop` with `from`")


def _matching(texts: Sequence[str]) -> tuple[Key, ...]:
    """Return keys; one that ends in "*" stands for all printed keys that begin as it does."""
    keys: list[Key] = []
    for text in texts:
        *start, last = key_of(text)
        found = [key for key in PRINTED if list(key[: len(start)]) == start]
        keys += found if last == "*" else [key_of(text)]
        if last == "*" and not found:
            raise ValueError(f"no printed number has a key like {text!r}")
    return tuple(keys)


def front_of(data: ClaimsData) -> tuple[str, ...]:
    """Return the names of the claims that the report begins with, all of which there are."""
    for name in data.front:
        if name not in [claim.name for claim in data.claim]:
            raise DataError(f"front names {name!r}, which is no claim")
    return tuple(data.front)


_DATA = read_data("claims.toml", ClaimsData)
CLAIMS, FRONT = claims_from(_DATA), front_of(_DATA)
