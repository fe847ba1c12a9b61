"""Bounds as tables for a terminal."""

from collections.abc import Sequence

import msgspec

from covey.bounds import CASES, FARTHEST, Bound, Sheet
from covey.terminal import fill, table
from covey.theorems import Term


def summary(sheet: Sheet) -> str:
    """Return every bound of a sheet in a line, the orders, and when CoS begins to exploit."""
    parts = (
        _extent(sheet),
        table([_HEADINGS, *map(_line, sheet.bounds)]),
        fill(_verdict(sheet)),
        _orders(sheet),
        _exploitation(sheet),
        fill(_EXPLANATION),
    )
    return "\n\n".join(parts) + "\n"


def details(sheet: Sheet) -> str:
    """Return the bounds of a sheet term by term, with parameters, memory and what to mind."""
    parts = [_extent(sheet), *(_detail(one) for one in sheet.bounds)]
    return "\n\n".join(parts) + "\n"


def sweep(sheets: Sequence[Sheet], *, argument: str) -> str:
    """Return a line for each value of the argument, and a column for each bound."""
    names = [one.theorem for one in sheets[0].bounds]
    name = argument.replace("-", "_")
    lines = [
        [figure(getattr(one.problem, name)), *[figure(bound.value) for bound in one.bounds]]
        for one in sheets
    ]
    head = fill(f"Regret at most, {sheets[0].form} form, with {_numbers(sheets[0], but=name)}")
    return f"{head}\n\n{table([[argument, *names], *lines])}\n"


def figure(value: float | None) -> str:
    """Return a number short enough for a table, or that there is none."""
    if value is None:
        return "never"
    if 100 <= value < 1e7:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


_HEADINGS = ("theorem", "regret <=", "per slot", "order", "below T from", "2T from")
_EXPLANATION = (
    "A bound above T says nothing where arms cost nothing, one above 2T says nothing at all. "
    f"Never: not up to a horizon of {figure(FARTHEST)}. Orders leave out logarithms. M learners, K "
    "arms of the learner, at most F_max functions of any learner, F of all; worst/best are the "
    "arrivals and the correlation of contexts. In detail: covey bounds T1, or another theorem."
)


def _extent(sheet: Sheet) -> str:
    return fill(f"{_numbers(sheet)}; {sheet.form} form")


def _numbers(sheet: Sheet, *, but: str = "") -> str:
    numbers = {**msgspec.structs.asdict(sheet.problem), "most_functions": sheet.problem.most}
    return ", ".join(
        f"{name.replace('_', ' ')} {'as prescribed' if value is None else figure(value)}"
        for name, value in numbers.items()
        if name != but
    )


def _line(one: Bound) -> tuple[str, ...]:
    return (
        f"{one.theorem} {one.title}",
        figure(one.value),
        figure(one.per_slot),
        one.order,
        figure(one.below_horizon_from),
        figure(one.below_twice_horizon_from),
    )


def _verdict(sheet: Sheet) -> str:
    horizon = sheet.problem.horizon
    below = [one.theorem for one in sheet.bounds if one.value < horizon]
    said = f"below T: {', '.join(below)}" if below else "no bound is below T"
    return f"At T = {figure(horizon)} slots, {said}."


def _orders(sheet: Sheet) -> str:
    rows: dict[str, list[str]] = {}
    for one in sheet.orders:
        rows.setdefault(one.algorithm, []).append(one.formula)
    return table([["order in case", *CASES], *([name, *cells] for name, cells in rows.items())])


def _exploitation(sheet: Sheet) -> str:
    begins = [figure(one.slot) for one in sheet.exploitation]
    least = [figure(one.least_horizon) for one in sheet.exploitation]
    return table(
        [
            ["CoS with T1's parameters", *CASES],
            ["exploits in every cell by slot", *begins],
            ["within a horizon of at least", *least],
        ]
    )


def _detail(one: Bound) -> str:
    head = (
        f"{one.theorem} {one.title}: at most {figure(one.value)}, {figure(one.per_slot)} per slot"
    )
    sentences = (_parameters(one), _memory(one), _reach(one), *one.notes)
    return "\n".join(
        [head, "", _terms(one), "", *(fill(f"- {text}") for text in sentences if text)]
    )


def _terms(one: Bound) -> str:
    lines = [
        (
            term.name,
            _growth(term),
            figure(term.value),
            f"{100 * term.value / one.value:.1f}" if one.value else "0.0",
        )
        for term in one.terms
    ]
    return table([("term", "growth", "value", "share %"), *lines])


def _growth(term: Term) -> str:
    grows = f"T^{term.exponent:.4g}" if term.exponent else ""
    return f"{grows} {term.logs}".strip() or "constant"


def _parameters(one: Bound) -> str:
    said = [] if one.power is None else [f"z = {one.power:.4g}"]
    said += [
        f"{name.replace('_', ' ')} {control.formula} = {figure(control.at_horizon)} at T"
        for name, control in one.thresholds.items()
    ]
    if one.slices is not None:
        said.append(f"{figure(one.slices)} slices per dimension")
    if one.split_power is not None:
        said.append(f"p = {one.split_power:.4g}")
    return f"Parameters: {', '.join(said)}." if said else ""


def _memory(one: Bound) -> str:
    return f"Memory: {figure(one.memory)} records, of order {one.memory_order}."


def _reach(one: Bound) -> str:
    below, twice = _from(one.below_horizon_from), _from(one.below_twice_horizon_from)
    return f"Order {one.order}; below T {below}, below 2T {twice}."


def _from(horizon: float | None) -> str:
    if horizon is None:
        return f"at no horizon up to {figure(FARTHEST)}"
    return f"from a horizon of {figure(horizon)}"
