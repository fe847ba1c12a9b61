"""Claims as comparisons of figures, and whether figures bear them out.

A figure has a key, as in `printed`; a claim is a number of parts, each "this is smaller than that".
What is equal is not smaller.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Literal, NamedTuple

from covey.papers.printed import Key

Figures = Mapping[Key, float]
Verdict = Literal["holds", "does not hold", "depends", "undecided"]


@dataclass(frozen=True)
class Sum:
    """All of these together."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        return sum(figures[key] for key in self.keys)


@dataclass(frozen=True)
class Least:
    """The smallest of these."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        return min(figures[key] for key in self.keys)


@dataclass(frozen=True)
class Excess:
    """By how much the second of two is larger than the first."""

    keys: tuple[Key, ...]

    def of(self, figures: Figures) -> float:
        first, second = self.keys
        return figures[second] - figures[first]


@dataclass(frozen=True)
class Miss:
    """By how much the drop from the first of two to the second, in percent, misses a number."""

    keys: tuple[Key, ...]
    percent: float

    def of(self, figures: Figures) -> float:
        before, after = (figures[key] for key in self.keys)
        drop = 100.0 * (before - after) / before if before else 0.0
        return abs(drop - self.percent)


Combined = Sum | Least | Excess | Miss
Term = Key | float | Combined


class Part(NamedTuple):
    """One comparison: in this case, one term is smaller than another."""

    case: str
    smaller: Term
    larger: Term


class Claim(NamedTuple):
    """A statement of a paper: in other words, where it stands, and what it comes to."""

    name: str
    text: str
    section: str
    line: int
    parts: tuple[Part, ...]
    is_some: bool = False  # the paper says "may" or "can": one part will do


class Decided(NamedTuple):
    """A part with its numbers."""

    case: str
    smaller: float
    larger: float

    @property
    def holds(self) -> bool:
        """Whether the one that is said to be smaller is."""
        return self.smaller < self.larger


class Finding(NamedTuple):
    """What figures say of a claim, on what that depends, and the numbers that decided it."""

    claim: Claim
    verdict: Verdict
    on: str
    parts: tuple[Decided, ...]


def judge(claim: Claim, figures: Figures) -> Finding:
    """Return whether `figures` bear out `claim`; without all of its figures it is undecided."""
    missing = [key for key in keys_of(claim) if math.isnan(figures.get(key, math.nan))]
    if missing:
        return Finding(claim, "undecided", f"not run: {_some(missing)}", ())
    parts = tuple(
        Decided(part.case, _value(part.smaller, figures), _value(part.larger, figures))
        for part in claim.parts
    )
    return Finding(claim, *_verdict(claim, parts), parts)


def judge_across(claim: Claim, readings: Mapping[str, Figures]) -> Finding:
    """Return what several readings of an experiment, by name, say of `claim` together.

    Where they disagree, it depends on the reading.
    """
    findings = {name: judge(claim, figures) for name, figures in readings.items()}
    parts = tuple(
        part._replace(case=f"{name}: {part.case}")
        for name, finding in findings.items()
        for part in finding.parts
    )
    verdicts = {finding.verdict for finding in findings.values()}
    if len(verdicts) == 1:
        ons = {finding.on for finding in findings.values()}
        on = ons.pop() if len(ons) == 1 else _told(findings)
        return Finding(claim, verdicts.pop(), on, parts)
    return Finding(claim, "depends", _told(findings), parts)


def keys_of(claim: Claim) -> list[Key]:
    """Return the keys of all figures that decide `claim`, each once."""
    terms = [term for part in claim.parts for term in part[1:]]
    return list(dict.fromkeys(key for term in terms for key in _keys(term)))


def less(
    smaller: str | Term, larger: str | Term, *, why: str = "", **names: Sequence[str]
) -> tuple[Part, ...]:
    """Return a part for each way to choose one of each of the `names`.

    A term may be a key written with slashes; names in braces are filled in.
    """
    return tuple(
        Part(
            f"{' '.join(case.values())} {why}".strip(),
            _filled(smaller, case),
            _filled(larger, case),
        )
        for case in _cases(names)
    )


def grows(term: str | Term, steps: Sequence[str], **names: Sequence[str]) -> tuple[Part, ...]:
    """Return parts that say that a term grows from each step to the next; `{step}` is filled in."""
    return tuple(
        Part(
            " ".join([*case.values(), before, "to", after]),
            _filled(term, case | {"step": before}),
            _filled(term, case | {"step": after}),
        )
        for case in _cases(names)
        for before, after in pairwise(steps)
    )


def key_of(text: str) -> Key:
    """Return the key that is written with slashes."""
    return tuple(text.split("/"))


def _verdict(claim: Claim, parts: Sequence[Decided]) -> tuple[Verdict, str]:
    held = [part.case for part in parts if part.holds]
    failed = [part.case for part in parts if not part.holds]
    if not failed or (held and claim.is_some):
        return "holds", f"in {_listed(held)}" if failed else ""
    if not held:
        return "does not hold", ""
    return "depends", f"holds for {_listed(held)}; not for {_listed(failed)}"


def _told(findings: Mapping[str, Finding]) -> str:
    return "; ".join(
        f"{name}: {finding.verdict}" + (f" ({finding.on})" if finding.on else "")
        for name, finding in findings.items()
    )


def _cases(names: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*names.values())]


def _filled(term: str | Term, case: Mapping[str, str]) -> Term:
    if isinstance(term, float):
        return term
    if isinstance(term, str):
        return key_of(term.format(**case))
    if isinstance(term, tuple):
        return tuple(word.format(**case) for word in term)
    keys = tuple(tuple(word.format(**case) for word in key) for key in term.keys)
    return replace(term, keys=keys)


def _keys(term: Term) -> tuple[Key, ...]:
    if isinstance(term, float):
        return ()
    return (term,) if isinstance(term, tuple) else term.keys


def _value(term: Term, figures: Figures) -> float:
    if isinstance(term, float):
        return term
    return figures[term] if isinstance(term, tuple) else term.of(figures)


def _some(keys: list[Key]) -> str:
    """Name the first of these keys, and how many more there are."""
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return "/".join(keys[0]) + more


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
