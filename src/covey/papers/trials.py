"""What is run: a window, and the functions of the learners in it.

The paper's own window was chosen by its outcome. The others are chosen by rules that do not look at
what any function answers: they show how far the findings carry.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.errors import DataError
from covey.papers.functions import (
    LAST_LABEL,
    SETS,
    SLOTS,
    START,
    TRAINING_ROWS,
    Function,
)
from covey.papers.scikit import KINDS, Labels
from covey.papers.streams import Stream

FEWEST_ATTACKS, MOST_ATTACKS = 46, 48  # percent; the paper's test data have 47
ELECTRICITY_ROWS = 1_000  # to train each function
ELECTRICITY_STEP = 2_400  # rows from one start to the next
ELECTRICITY_STARTS = 8


class Trial(NamedTuple):
    """A window of a stream, and eight functions, two for each of four learners."""

    name: str
    functions: tuple[Function, ...]
    start: int
    slots: int = SLOTS


def paper() -> list[Trial]:
    """Return the paper's two sets of functions on its test window."""
    return [Trial(name, functions, START) for name, functions in SETS.items()]


def further(stream: Stream) -> list[Trial]:
    """Return both sets of functions on other windows with the paper's share of attacks.

    A window is the middle one of its group, if it shares no row with the paper's window. The six
    functions that are trained are so on rows before the window, at even distances, in the order
    of the paper's table; in S2 two of them toss coins instead.
    """
    starts = [
        (int(group[0]) + int(group[-1])) // 2
        for group in groups(stream.labels)
        if group[0] >= TRAINING_ROWS and (group[-1] + SLOTS <= START or group[0] >= START + SLOTS)
    ]
    return [
        Trial(f"{name} from row {start}", functions_before(start, functions), start)
        for start in starts
        for name, functions in SETS.items()
    ]


def check(trial: Trial, stream: Stream, slots: int) -> None:
    """Raise `DataError` if a stream does not reach to the end of a trial's window."""
    end = trial.start + slots
    if end > len(stream):
        raise DataError(
            f"the window of {trial.name} goes from row {trial.start:,} to {end - 1:,}, but "
            f"{stream.file} ends with row {len(stream) - 1:,}; give a file that holds them all"
        )


def groups(labels: Labels, *, slots: int = SLOTS) -> list[npt.NDArray[np.int64]]:
    """Return the starts of all windows with 46 to 48 % attacks, neighbours in one group."""
    if len(labels) < slots:
        return []
    passed = np.concatenate([[0], np.cumsum(labels, dtype=np.int64)])
    attacks = passed[slots:] - passed[:-slots]
    is_wanted = (100 * attacks >= FEWEST_ATTACKS * slots) & (100 * attacks <= MOST_ATTACKS * slots)
    starts = np.flatnonzero(is_wanted)
    return np.split(starts, np.flatnonzero(np.diff(starts) > 1) + 1) if len(starts) else []


def functions_before(start: int, functions: tuple[Function, ...]) -> tuple[Function, ...]:
    """Return the functions trained on rows before `start`, from the first rows to the last."""
    trained = [function for function in SETS["S1"] if function.kind in KINDS]
    room = start - TRAINING_ROWS
    segment = {
        function: place * room // (len(trained) - 1) for place, function in enumerate(trained)
    }
    return tuple(function._replace(start=segment.get(function, 0)) for function in functions)


def electricity() -> list[Trial]:
    """Return eight windows of the Electricity stream, with functions trained on its first rows.

    The first 8,000 rows are eight segments, one for each function; windows start behind them,
    2,400 rows apart, and so overlap.
    """
    functions = tuple(
        Function(f"{kind} {place + 1}", kind, start=place * ELECTRICITY_ROWS, rows=ELECTRICITY_ROWS)
        for place, kind in enumerate([*KINDS, *KINDS[:2]])
    )
    first = len(functions) * ELECTRICITY_ROWS
    starts = (first + step * ELECTRICITY_STEP for step in range(ELECTRICITY_STARTS))
    return [Trial(f"Electricity from row {start}", functions, start) for start in starts]


def electricity_with_last_label() -> list[Trial]:
    """Return the same windows, but the last learner's last function repeats the last label."""
    return [
        trial._replace(
            name=f"{trial.name} with the last label",
            functions=(*trial.functions[:-1], LAST_LABEL),
        )
        for trial in electricity()
    ]
