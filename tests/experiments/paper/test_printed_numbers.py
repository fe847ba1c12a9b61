"""The printed tables: complete, consistent, and checked when they are read."""

from collections import Counter

import pytest

from reproduction.data import (
    PRINTED,
    TABLES,
    printed_figures,
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


@pytest.mark.parametrize(("name", "other"), [("CoS", "A1"), ("DCZA", "A1")])
@pytest.mark.parametrize("functions", ["S1", "S2"])
def test_tables_that_print_the_same_figure_agree(name: str, other: str, functions: str) -> None:
    given = printed_figures()

    assert (
        given["error_comp", name, functions, "error"]
        == (given["sim_results", name, "Z1", functions, other, "error"])
    )


@pytest.mark.parametrize("price", ["0", "0.5", "0.7"])
def test_selections_add_up_to_100_percent(price: str) -> None:
    given = printed_figures()

    assert sum(given["callcost", price, "selection", one] for one in "1234") == pytest.approx(100)


def test_the_functions_of_the_table_are_the_trained_ones() -> None:
    for name, functions in SETS.items():
        keys = [key for key in PRINTED if key[:2] == ("sim_setup", name)]
        assert [key[2:4] for key in keys] == [
            (str(place // 2 + 1), function.name) for place, function in enumerate(functions)
        ]
