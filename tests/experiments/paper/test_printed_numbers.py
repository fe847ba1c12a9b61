"""The printed tables: complete, consistent, and checked when they are read."""

from collections import Counter

from reproduction.data import (
    PRINTED,
    TABLES,
)
from reproduction.models import SETS


def test_the_ten_tables_are_complete() -> None:
    assert Counter(number.table for number in PRINTED.values()) == {
        "sim_setup": 16,
        "par_setup": 30,
        "error_comp": 12,
        "sim_results": 54,
        "sim_results2": 18,
        "weights": 8,
        "errorperc": 8,
        "nlearn": 8,
        "callcost": 24,
        "onlycontext": 6,
    }
    assert len(TABLES) == 10


def test_the_functions_of_the_table_are_the_trained_ones() -> None:
    for name, functions in SETS.items():
        keys = [key for key in PRINTED if key[:2] == ("sim_setup", name)]
        assert [key[2:4] for key in keys] == [
            (str(place // 2 + 1), function.name) for place, function in enumerate(functions)
        ]
