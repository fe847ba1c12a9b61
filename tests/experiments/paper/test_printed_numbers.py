"""The printed tables: complete, consistent, and checked when they are read."""

import math
import re
from collections import Counter

import pytest

from covey.errors import DataError
from reproduction.data import (
    LEFT_OUT,
    PRINTED,
    TABLES,
    PrintedNumber,
    PrintedRow,
    PrintedTable,
    printed_figures,
    printed_numbers,
    read_data,
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


def test_tables_are_in_the_order_of_the_paper() -> None:
    lines = {number.table: number.line for number in PRINTED.values()}

    assert sorted(TABLES, key=lines.__getitem__) == list(TABLES)


@pytest.mark.parametrize(("name", "other"), [("CoS", "A1"), ("DCZA", "A1")])
@pytest.mark.parametrize("functions", ["S1", "S2"])
def test_tables_that_print_the_same_figure_agree(name: str, other: str, functions: str) -> None:
    given = printed_figures()

    assert (
        given["error_comp", name, functions, "error"]
        == (given["sim_results", name, "Z1", functions, other, "error"])
    )


def test_all_labels_without_price_give_the_numbers_of_sim_results() -> None:
    given = printed_figures()

    for name in ("CoS", "DCZA"):
        usual = given["sim_results", name, "Z1", "S2", "A3", "error"]
        assert given["errorperc", name, "1", "error"] == usual
    assert given["callcost", "0", "error"] == given["sim_results", "CoS", "Z1", "S2", "A1", "error"]


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


def test_parameters_are_numbers_where_the_paper_has_formulas() -> None:
    given = printed_figures()

    assert given["par_setup", "CoS", "Z1", "train", "scale"] == 2
    assert given["par_setup", "CoS", "Z1", "explore", "power"] == 0.125
    split = given["par_setup", "DCZA", "Z2", "split", "power"]
    assert split == (3 + math.sqrt(17)) / 2
    assert given["par_setup", "DCZA", "Z2", "explore", "power"] == pytest.approx(2 / split)


@pytest.mark.parametrize(("text", "rounding"), [("4.94", 0.005), ("0.7", 0.05), ("53", 0.5)])
def test_decimals_give_the_rounding_of_a_figure(text: str, rounding: float) -> None:
    assert PrintedNumber(("any",), text, 1).rounding == pytest.approx(rounding)


def test_a_table_that_is_commented_out_is_separate() -> None:
    assert len(LEFT_OUT) == 8
    assert not LEFT_OUT.keys() & PRINTED.keys()
    assert min(number.value for number in LEFT_OUT.values()) == 22


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ("1", "table t, row 'r': 1 numbers for 2 columns"),
        ("1 1 1", "table t, row 'r': 3 numbers for 2 columns"),
        ("1 many", "t/r/b: 'many' is not a number"),
        ("1 1/0", "t/r/b: '1/0' is not a number"),
    ],
)
def test_a_bad_row_is_rejected_with_its_place(numbers: str, problem: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(problem)}$"):
        numbers_of(["a", "b"], {"r": numbers})


def test_a_duplicate_key_is_rejected() -> None:
    with pytest.raises(DataError, match="table t: duplicate key 't/r/a'"):
        numbers_of(["a", "a"], {"r": "1 2"})


def test_an_empty_cell_is_left_out() -> None:
    assert list(numbers_of(["a", "b"], {"r": "- 2"})) == [("t", "r", "b")]


def test_a_file_with_an_unknown_field_is_rejected() -> None:
    with pytest.raises(DataError, match="printed.toml: Object contains unknown field"):
        read_data("printed.toml", PrintedRow)


def numbers_of(columns: list[str], rows: dict[str, str]) -> dict[tuple[str, ...], PrintedNumber]:
    table = PrintedTable("t", columns, [PrintedRow(1, *row) for row in rows.items()])
    return printed_numbers([table])
