"""Every number that the paper's tables print, as it is printed, and where.

C. Tekin and M. van der Schaar, "Decentralized Online Big Data Classification - a Bandit Framework"
(arXiv 1308.4565); lines are those of its LaTeX source. A key is the label of a table, then the row,
then the column. Numbers are percentages, except those of `par_setup`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

Key = tuple[str, ...]


class Printed(NamedTuple):
    """A number of a table, and the line of the source where it stands."""

    key: Key
    text: str
    line: int

    @property
    def table(self) -> str:
        """The label of its table."""
        return self.key[0]

    @property
    def value(self) -> float:
        """The number itself."""
        return _IRRATIONAL.get(self.text) or float(Fraction(self.text))

    @property
    def rounding(self) -> float:
        """How far the number may lie from what was measured, for its decimals alone."""
        decimals = len(self.text.partition(".")[2])
        return 0.5 * 10.0**-decimals


class _Row(NamedTuple):
    """A line of a table: the keys of its numbers begin alike."""

    line: int
    start: Key
    numbers: str


_IRRATIONAL = {"(3+sqrt(17))/2": (3 + math.sqrt(17)) / 2, "2/p": 4 / (3 + math.sqrt(17))}
_SETS = ("S1", "S2")
_CONTEXTS = ("A1", "A2", "A3")
_QUANTITIES = ("error", "training", "exploration")
_BY_QUANTITY = [(context, quantity) for quantity, context in product(_QUANTITIES, _CONTEXTS)]
_BY_SET = [(name, "error") for name in _SETS]
_THRESHOLDS = [
    (name, part) for name in ("explore", "train", "explore-peers") for part in ("scale", "power")
]

# Table -> the ends of the keys of a row, from left to right, and its rows.
_TABLES: dict[str, tuple[Sequence[Key], Sequence[_Row]]] = {
    "sim_setup": (
        [("error",)],
        [
            _Row(1505, ("S1", "1", "Naive Bayes"), "47"),
            _Row(1506, ("S1", "1", "Logistic"), "3"),
            _Row(1505, ("S1", "2", "Always 1"), "53"),
            _Row(1506, ("S1", "2", "Voted Perceptron"), "4"),
            _Row(1505, ("S1", "3", "RBF Network"), "47"),
            _Row(1506, ("S1", "3", "J48"), "47"),
            _Row(1505, ("S1", "4", "Random Tree"), "47"),
            _Row(1506, ("S1", "4", "Always 0"), "47"),
            _Row(1511, ("S2", "1", "Naive Bayes"), "47"),
            _Row(1512, ("S2", "1", "Random"), "50"),
            _Row(1511, ("S2", "2", "Always 1"), "53"),
            _Row(1512, ("S2", "2", "Random"), "50"),
            _Row(1511, ("S2", "3", "RBF Network"), "47"),
            _Row(1512, ("S2", "3", "J48"), "47"),
            _Row(1511, ("S2", "4", "Random Tree"), "47"),
            _Row(1512, ("S2", "4", "Always 0"), "47"),
        ],
    ),
    # A threshold is scale * t ** power * ln t; slices are T ** power, and a cell splits at scale *
    # 2 ** (power * level) arrivals.
    "par_setup": (
        [*_THRESHOLDS, ("slices", "power"), ("split", "scale"), ("split", "power")],
        [
            _Row(1534, ("CoS", "Z1"), "1 1/8  2 1/8  1 1/8  1/4  - -"),
            _Row(1536, ("DCZA", "Z1"), "1 1/8  2 1/8  1 1/8  -  1 4"),
            _Row(1538, ("CoS", "Z2"), "1 1/2  2 1/2  1 1/2  1/4  - -"),
            _Row(1540, ("DCZA", "Z2"), "1 2/p  2 2/p  1 2/p  -  1 (3+sqrt(17))/2"),
        ],
    ),
    "error_comp": (
        _BY_SET,
        [
            _Row(1572, ("CoS",), "0.7 0.9"),
            _Row(1574, ("DCZA",), "1.4 1.9"),
            _Row(1576, ("AdaBoost",), "4.8 53"),
            _Row(1578, ("SWA 100",), "2.4 2.7"),
            _Row(1580, ("SWA 1000",), "11 11"),
            _Row(1582, ("CoS no context",), "5.2 49.8"),
        ],
    ),
    "sim_results": (
        _BY_QUANTITY,
        [
            _Row(1601, ("CoS", "Z1", "S1"), "0.7 4.6 4.8  0.3 3 2.8  1.4 6.3 8.5"),
            _Row(1603, ("DCZA", "Z1", "S1"), "1.4 3.5 3.2  0.4 1.3 0.9  4 5.9 7"),
            _Row(1605, ("CoS", "Z1", "S2"), "0.9 39 10  0.3 3 2.8  1.5 6.5 8.6"),
            _Row(1607, ("DCZA", "Z1", "S2"), "1.9 38 4.8  0.4 1.3 1  4 6 7"),
            _Row(1609, ("CoS", "Z2", "S1"), "16 14 41  8.5 16 79  55 27 20"),
            _Row(1611, ("DCZA", "Z2", "S1"), "31 29 29  33 19 87  66 66 12"),
        ],
    ),
    "sim_results2": (
        _BY_QUANTITY,
        [
            _Row(1634, ("CoS", "Z1", "S1"), "1.8 4.1 6.7  2 9.2 10.3  1.4 3.6 8.5"),
            _Row(1636, ("CoS", "Z1", "S2"), "24.6 44.3 31.3  2 9.2 10.3  1.4 3.6 8.5"),
        ],
    ),
    "weights": (
        [*product(("dependent", "independent"), _SETS)],
        [
            _Row(1659, ("total error",), "5.9 10.2 3.8 4.94"),
            _Row(1661, ("exploitation error",), "2.9 6.8 1.76 2.17"),
        ],
    ),
    "errorperc": (
        [(share, "error") for share in ("1", "0.5", "0.1", "0.01")],
        [
            _Row(1736, ("CoS",), "10 13.9 36.4 47.1"),
            _Row(1738, ("DCZA",), "4.8 4.8 16.3 56.6"),
        ],
    ),
    "nlearn": (
        [(learners, "error") for learners in ("1", "2", "3", "4")],
        [
            _Row(1755, ("CoS",), "49.8 49.7 50.2 22.3"),
            _Row(1757, ("DCZA",), "49.8 49.8 49.8 22.7"),
        ],
    ),
    "callcost": (
        [
            ("error",),
            *(("training", learner) for learner in "234"),
            *(("selection", learner) for learner in "1234"),
        ],
        [
            _Row(1777, ("0",), "0.9  0.27 0.23 0.16  52.9 47 0.1 0"),
            _Row(1779, ("0.5",), "1  0.27 0.23 0.16  53 47 0 0"),
            _Row(1781, ("0.7",), "23.7  0.27 0.23 0.16  100 0 0 0"),
        ],
    ),
    "onlycontext": (
        [(context, "error") for context in _CONTEXTS],
        [
            _Row(1803, ("CoS", "Z1", "S1"), "2.68 3.64 6.43"),
            _Row(1805, ("CoS", "Z1", "S2"), "23.8 42.6 29"),
        ],
    ),
}

# Stands in the source, but is commented out: functions on synthetic data that no table is said to
# be about, though the last column of `nlearn` has its best error.
_LEFT_OUT: dict[str, tuple[Sequence[Key], Sequence[_Row]]] = {
    "basesynt": (
        [("error",)],
        [
            _Row(1704, ("1", "Naive Bayes"), "42.9"),
            _Row(1705, ("1", "Logistic"), "42.9"),
            _Row(1704, ("2", "Multilayer Perceptron"), "33"),
            _Row(1705, ("2", "Voted Perceptron"), "42.9"),
            _Row(1704, ("3", "RBF Network"), "43"),
            _Row(1705, ("3", "J48"), "42.9"),
            _Row(1704, ("4", "Random Tree"), "27.5"),
            _Row(1705, ("4", "Random Forest"), "22"),
        ],
    )
}


def _numbers(tables: dict[str, tuple[Sequence[Key], Sequence[_Row]]]) -> dict[Key, Printed]:
    numbers = [
        Printed((table, *row.start, *end), text, row.line)
        for table, (ends, rows) in tables.items()
        for row in rows
        for end, text in zip(ends, row.numbers.split(), strict=True)
        if text != "-"
    ]
    return {number.key: number for number in numbers}


TABLES = tuple(_TABLES)
PRINTED = _numbers(_TABLES)
LEFT_OUT = _numbers(_LEFT_OUT)


def figures() -> dict[Key, float]:
    """Return what is printed, as plain numbers."""
    return {key: number.value for key, number in PRINTED.items()}
