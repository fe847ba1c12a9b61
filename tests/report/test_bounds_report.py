"""`covey bounds` prints tables and JSON, and refuses invalid input."""

import json

import pytest

from covey import cli
from covey.bandit import bounds
from covey.bandit.bounds import THEOREMS, Problem

Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *arguments: str) -> str:
    assert cli.main(["bounds", *arguments]) == 0
    return capsys.readouterr().out


def test_the_summary_has_a_line_for_every_theorem_and_fits_a_terminal(capsys: Captured) -> None:
    lines = printed(capsys).splitlines()

    assert [line.split()[0] for line in lines[5 : 5 + len(THEOREMS)]] == list(THEOREMS)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    "line",
    [
        "T1 CoS                          425,653      21.3          M F_max T^0.75       1.15e11",
    ],
)
def test_the_summary_contains(capsys: Captured, line: str) -> None:
    assert line in printed(capsys)


@pytest.mark.parametrize(
    "line",
    [
        "training and exploration         T^0.75 ln T  366,424     86.1",
        "mistakes of helpers                 constant     39.5      0.0",
        "- The constants are the paper's; its proofs give larger ones.",
    ],
)
def test_one_theorem_is_printed_by_term(capsys: Captured, line: str) -> None:
    assert line in printed(capsys, "cos")


def test_a_horizon_that_does_not_exist_is_printed_as_never(capsys: Captured) -> None:
    lines = printed(capsys, "--alpha", "0.05", "--dimension", "8").splitlines()

    assert [line.split()[-2:] for line in lines if line.startswith("T1 ")] == [["never", "never"]]


def test_every_argument_of_a_problem_is_an_option(capsys: Captured) -> None:
    given = Problem(
        horizon=10**6, alpha=0.5, dimension=2, lipschitz=2, learners=5, functions=3,
        most_functions=4, label_probability=0.25, longest_delay=7, split_scale=2, split_power=3.5,
    )  # fmt: skip
    names = Problem.__struct_fields__
    options = [f"--{name.replace('_', '-')}={getattr(given, name)}" for name in names]

    found = json.loads(printed(capsys, "T1", "C1", "--json", "--form", "printed", *options))

    assert found["problem"] == {name: getattr(given, name) for name in names}
    assert found["form"] == "printed"
    assert [one["value"] for one in found["bounds"]] == [
        bounds.bound(name, given, form="printed").value for name in ("T1", "C1")
    ]


def test_json_holds_bounds_orders_and_the_start_of_exploiting(capsys: Captured) -> None:
    found = json.loads(printed(capsys, "--json"))

    assert set(found) == {"problem", "form", "bounds", "orders", "exploitation"}
    assert [one["theorem"] for one in found["bounds"]] == list(THEOREMS)
    assert len(found["orders"]) == 12
    assert found["exploitation"][3] == {"case": "C4", "slot": 1286, "least_horizon": 1286}
