"""Bounds as tables for a terminal."""

from collections.abc import Sequence

import msgspec

from covey.bounds import CASES, FARTHEST, Bound, Sheet
from covey.terminal import fill, table
from covey.theorems import Term


def summary(sheet: Sheet) -> str:
    """Return one line per bound, the orders, and when CoS begins to exploit."""
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
    """Return the bounds of a sheet by term, with parameters, memory and notes."""
    parts = [_extent(sheet), *(_detail(bound) for bound in sheet.bounds)]
    return "\n\n".join(parts) + "\n"


def sweep(sheets: Sequence[Sheet], *, argument: str) -> str:
    """Return one row per value of the argument, and one column per bound."""
    names = [bound.theorem for bound in sheets[0].bounds]
    name = argument.replace("-", "_")
    lines = [
        [figure(getattr(sheet.problem, name)), *[figure(bound.value) for bound in sheet.bounds]]
        for sheet in sheets
    ]
    head = fill(f"Regret at most, {sheets[0].form} form, with {_numbers(sheets[0], but=name)}")
    return f"{head}\n\n{table([[argument, *names], *lines])}\n"


def figure(value: float | None) -> str:
    """Return a short number for a table, or `never` for None."""
    if value is None:
        return "never"
    if 100 <= value < 1e7:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


_HEADINGS = ("theorem", "regret <=", "per slot", "order", "below T from", "2T from")
_EXPLANATION = (
    "A bound above T is void if arms are free, one above 2T always. "
    f"Never: not up to a horizon of {figure(FARTHEST)}. Orders omit logarithms. M learners, K "
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


def _line(bound: Bound) -> tuple[str, ...]:
    return (
        f"{bound.theorem} {bound.title}",
        figure(bound.value),
        figure(bound.per_slot),
        bound.order,
        figure(bound.below_horizon_from),
        figure(bound.below_twice_horizon_from),
    )


def _verdict(sheet: Sheet) -> str:
    horizon = sheet.problem.horizon
    below = [bound.theorem for bound in sheet.bounds if bound.value < horizon]
    verdict = f"below T: {', '.join(below)}" if below else "no bound is below T"
    return f"At T = {figure(horizon)} slots, {verdict}."


def _orders(sheet: Sheet) -> str:
    rows: dict[str, list[str]] = {}
    for order in sheet.orders:
        rows.setdefault(order.algorithm, []).append(order.formula)
    return table([["order in case", *CASES], *([name, *cells] for name, cells in rows.items())])


def _exploitation(sheet: Sheet) -> str:
    begins = [figure(case.slot) for case in sheet.exploitation]
    least = [figure(case.least_horizon) for case in sheet.exploitation]
    return table(
        [
            ["CoS with T1's parameters", *CASES],
            ["exploits in every cell by slot", *begins],
            ["within a horizon of at least", *least],
        ]
    )


def _detail(bound: Bound) -> str:
    value, per_slot = figure(bound.value), figure(bound.per_slot)
    head = f"{bound.theorem} {bound.title}: at most {value}, {per_slot} per slot"
    memory = f"Memory: {figure(bound.memory)} records, of order {bound.memory_order}."
    sentences = (_parameters(bound), memory, _reach(bound), *bound.notes)
    return "\n".join(
        [head, "", _terms(bound), "", *(fill(f"- {text}") for text in sentences if text)]
    )


def _terms(bound: Bound) -> str:
    lines = [
        (
            term.name,
            _growth(term),
            figure(term.value),
            f"{100 * term.value / bound.value:.1f}" if bound.value else "0.0",
        )
        for term in bound.terms
    ]
    return table([("term", "growth", "value", "share %"), *lines])


def _growth(term: Term) -> str:
    grows = f"T^{term.exponent:.4g}" if term.exponent else ""
    return f"{grows} {term.logs}".strip() or "constant"


def _parameters(bound: Bound) -> str:
    parts = [] if bound.power is None else [f"z = {bound.power:.4g}"]
    parts += [
        f"{name.replace('_', ' ')} {control.formula} = {figure(control.at_horizon)} at T"
        for name, control in bound.thresholds.items()
    ]
    if bound.slices is not None:
        parts.append(f"{figure(bound.slices)} slices per dimension")
    if bound.split_power is not None:
        parts.append(f"p = {bound.split_power:.4g}")
    return f"Parameters: {', '.join(parts)}." if parts else ""


def _reach(bound: Bound) -> str:
    below, twice = _from(bound.below_horizon_from), _from(bound.below_twice_horizon_from)
    return f"Order {bound.order}; below T {below}, below 2T {twice}."


def _from(horizon: float | None) -> str:
    if horizon is None:
        return f"at no horizon up to {figure(FARTHEST)}"
    return f"from a horizon of {figure(horizon)}"
