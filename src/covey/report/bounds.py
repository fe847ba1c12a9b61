"""The tables of `covey bounds`."""

import msgspec

from covey.bandit.bounds import CASES, FARTHEST, Bound, BoundTable, Term
from covey.report.text import fill, table


def summary(sheet: BoundTable) -> str:
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


def details(sheet: BoundTable) -> str:
    """Return the bounds of a sheet by term, with parameters, memory and notes."""
    parts = [_extent(sheet), *(_detail(bound) for bound in sheet.bounds)]
    return "\n\n".join(parts) + "\n"


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


def _extent(sheet: BoundTable) -> str:
    return fill(f"{_numbers(sheet)}; {sheet.form} form")


def _numbers(sheet: BoundTable) -> str:
    numbers = {**msgspec.structs.asdict(sheet.problem), "most_functions": sheet.problem.most}
    return ", ".join(
        f"{name.replace('_', ' ')} {'as prescribed' if value is None else figure(value)}"
        for name, value in numbers.items()
    )


def _line(bound: Bound) -> tuple[str, ...]:
    below = figure(bound.below_horizon_from), figure(bound.below_twice_horizon_from)
    value, per_slot = figure(bound.value), figure(bound.per_slot)
    return f"{bound.theorem} {bound.title}", value, per_slot, bound.order, *below


def _verdict(sheet: BoundTable) -> str:
    horizon = sheet.problem.horizon
    below = [bound.theorem for bound in sheet.bounds if bound.value < horizon]
    verdict = f"below T: {', '.join(below)}" if below else "no bound is below T"
    return f"At T = {figure(horizon)} slots, {verdict}."


def _orders(sheet: BoundTable) -> str:
    rows: dict[str, list[str]] = {}
    for order in sheet.orders:
        rows.setdefault(order.algorithm, []).append(order.formula)
    return table([["order in case", *CASES], *([name, *cells] for name, cells in rows.items())])


def _exploitation(sheet: BoundTable) -> str:
    cases = sheet.exploitation
    begins = ["exploits in every cell by slot", *(figure(case.slot) for case in cases)]
    least = ["within a horizon of at least", *(figure(case.least_horizon) for case in cases)]
    return table([["CoS with T1's parameters", *CASES], begins, least])


def _detail(bound: Bound) -> str:
    value, per_slot = figure(bound.value), figure(bound.per_slot)
    head = f"{bound.theorem} {bound.title}: at most {value}, {per_slot} per slot"
    memory = f"Memory: {figure(bound.memory)} records, of order {bound.memory_order}."
    sentences = (_parameters(bound), memory, _reach(bound), *bound.notes)
    return "\n".join([head, "", _terms(bound), "", *(fill(f"- {text}") for text in sentences)])


def _terms(bound: Bound) -> str:
    lines = []
    for term in bound.terms:
        share = 100 * term.value / bound.value if bound.value else 0.0
        lines.append((term.name, _growth(term), figure(term.value), f"{share:.1f}"))
    return table([("term", "growth", "value", "share %"), *lines])


def _growth(term: Term) -> str:
    grows = f"T^{term.exponent:.4g}" if term.exponent else ""
    return f"{grows} {term.logs}".strip() or "constant"


def _parameters(bound: Bound) -> str:
    parts = [f"z = {bound.power:.4g}"]
    parts += [
        f"{name.replace('_', ' ')} {control.formula} = {figure(control.at_horizon)} at T"
        for name, control in bound.thresholds.items()
    ]
    if bound.slices is not None:
        parts.append(f"{figure(bound.slices)} slices per dimension")
    if bound.split_power is not None:
        parts.append(f"p = {bound.split_power:.4g}")
    return f"Parameters: {', '.join(parts)}."


def _reach(bound: Bound) -> str:
    below, twice = _from(bound.below_horizon_from), _from(bound.below_twice_horizon_from)
    return f"Order {bound.order}; below T {below}, below 2T {twice}."


def _from(horizon: float | None) -> str:
    if horizon is None:
        return f"at no horizon up to {figure(FARTHEST)}"
    return f"from a horizon of {figure(horizon)}"
