"""Text for a terminal: tables, progress, and the tables of `covey bounds`."""

import sys
import textwrap
import time
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Self

import msgspec

from covey.bandit.bounds import CASES, FARTHEST, Bound, BoundTable, Term
from covey.types import Interval

COLUMNS = 100


NONE = "\N{EN DASH}"


def shorten(name: str, length: int) -> str:
    """Return `name` in at most `length` printable characters, ending in an ellipsis if cut."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return shown if len(shown) <= length else shown[: length - 1].rstrip() + "…"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first of them headings; names left, numbers right."""
    first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join([name.ljust(first), *map(str.rjust, numbers, widths)]) for name, *numbers in lines
    ]
    return "\n".join([printed[0], "-" * len(printed[0]), *printed[1:]])


def fill(sentence: str) -> str:
    """Return a sentence wrapped to the width of a terminal."""
    return textwrap.fill(sentence, width=COLUMNS)


def percent(part: float | None, whole: int) -> float | None:
    """Return a part in percent; None of nothing, or if it is not known."""
    return 100 * part / whole if whole and part is not None else None


def number(value: float | None, form: str) -> str:
    """Return a formatted number, or a dash for None."""
    return NONE if value is None else format(value, form)


def count(things: Sized, one: str, many: str = "") -> str:
    """Return how many things there are, and what they are."""
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


def interval(value: Interval, *, doubt: str) -> str:
    """Return the interval of a gain; `doubt` is said where it may be none."""
    low, high = value.low, value.high
    if low is None or high is None:
        return "too few rows for an interval"
    return f"95 % interval {low:+.2f} to {high:+.2f}{'' if low > 0 or high < 0 else doubt}"


Columns = Mapping[str, tuple[str, str]]  # heading -> attribute, which may have a dot; format


def cells(record: object, columns: Columns) -> list[str]:
    """Return the numbers of a record in these columns, formatted."""
    return [number(_attribute(record, name), form) for name, form in columns.values()]


def _attribute(record: object, name: str) -> float | None:
    """Return an attribute of a record, or of one of its attributes; None where that is None."""
    value: Any = record
    for part in name.split("."):
        value = getattr(value, part, None)
    return value  # type: ignore[no-any-return]


SECONDS_BETWEEN = {True: 0.1, False: 5.0}  # on a terminal; in a file, where lines accumulate


class Progress:
    """Prints share, slots and speed; called with the finished share and the slots so far."""

    def __init__(self, name: str, *, is_quiet: bool = False) -> None:
        self._name = name
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._slots = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float, slots: int) -> None:
        """Print the progress, at most once per interval."""
        self._slots = slots
        now = time.monotonic()
        if now - self._shown >= SECONDS_BETWEEN[self._is_terminal]:
            self._shown = now
            left_s = (now - self._started) * (1 - share) / share if share else 0.0
            self._print(f"{100 * share:3.0f} %, {slots:,} slots, {left_s:.0f} s left")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        taken_s = time.monotonic() - self._started
        if kind is None:
            speed = self._slots / max(taken_s, 1e-9)
            self._print(f"{self._slots:,} slots in {taken_s:.1f} s ({speed:,.0f} a second)")
        if self._is_terminal and not self._is_quiet:
            print(file=sys.stderr)

    def _print(self, text: str) -> None:
        if self._is_quiet:
            return
        if self._is_terminal:
            print(f"\r\x1b[2K{self._name}: {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{self._name}: {text}", file=sys.stderr)


def bounds_summary(sheet: BoundTable) -> str:
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


def bounds_details(sheet: BoundTable) -> str:
    """Return the bounds of a sheet by term, with parameters, memory and notes."""
    parts = [_extent(sheet), *(_detail(bound) for bound in sheet.bounds)]
    return "\n\n".join(parts) + "\n"


def bounds_sweep(sheets: Sequence[BoundTable], *, argument: str) -> str:
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


def _extent(sheet: BoundTable) -> str:
    return fill(f"{_numbers(sheet)}; {sheet.form} form")


def _numbers(sheet: BoundTable, *, but: str = "") -> str:
    numbers = {**msgspec.structs.asdict(sheet.problem), "most_functions": sheet.problem.most}
    return ", ".join(
        f"{name.replace('_', ' ')} {'as prescribed' if value is None else figure(value)}"
        for name, value in numbers.items()
        if name != but
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
