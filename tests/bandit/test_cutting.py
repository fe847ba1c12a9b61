"""Which settings couple the cells of a learner, and which process owns a cell."""

from collections import Counter
from typing import Any

import pytest

from covey.bandit.cutting import owner_of, why_coupled
from covey.bandit.policies import PRESETS, Policy, resolve, settings_from
from covey.kernel.rules import CellState, CustomPolicy

OWNERS = ["1", "2", "3"]


class First(CustomPolicy):
    """Always the first arm."""

    def choose(self, cell: CellState) -> int:
        return 0


def policy_of(**table: Any) -> Policy:
    return resolve(settings_from(table), dimension=2, most_functions=2)


@pytest.mark.parametrize(
    "table",
    [
        {"preset": "cos"},
        {"preset": "cos", "mode": "paper"},
        {"preset": "cos", "horizon": 10_000, "parameters": "theorem"},
        {"preset": "cos", "forget": {"window": 50}},
        {"preset": "share-ucb", "pending": True},
        {"preset": "two-sizes", "slices": 4, "alarm": 0},
        {"preset": "share-ucb"},
        {"preset": "discounted"},
        {"preset": "balance"},
        {"preset": "cos-ce"},
    ],
    ids=str,
)
def test_cells_of_a_grid_can_be_divided(table: dict[str, Any]) -> None:
    assert why_coupled([policy_of(**table)]) is None


@pytest.mark.parametrize(
    ("table", "key", "remedy"),
    [
        ({}, "preset 'auto'", "use preset cos or share-ucb"),
        ({"preset": "auto", "slices": 4, "alarm": 0}, "preset 'auto'", "cos or share-ucb"),
        ({"preset": "cos", "pending": True}, "[policy] pending", "set it to false"),
        ({"preset": "dcza"}, "preset 'dcza'", "use preset cos"),
        ({"preset": "multi-resolution"}, "preset 'multi-resolution'", "set slices"),
        ({"preset": "share-ucb", "alarm": 3}, "alarm of preset 'share-ucb'", "set alarm = 0"),
        ({"preset": "cos", "horizon": "doubling"}, 'horizon = "doubling"', "or slices"),
        ({"preset": "cos", "reading": {"ties": "random"}}, 'ties = "random"', "remove it"),
        ({"preset": First}, "one of your own", "preset cos"),
    ],
    ids=str,
)
def test_a_setting_that_couples_cells_is_named_with_a_remedy(
    table: dict[str, Any], key: str, remedy: str
) -> None:
    why = why_coupled([policy_of(preset="cos"), policy_of(**table)])

    assert why is not None
    assert key in why
    assert why.endswith(remedy)


def test_every_preset_is_divisible_with_slices_and_without_alarm_or_refused() -> None:
    refused = []
    for preset in PRESETS:
        table = {"preset": preset, "slices": 4}
        if preset in ("two-sizes", "multi-resolution", "share-ucb"):
            table["alarm"] = 0
        if why_coupled([policy_of(**table)]) is not None:
            refused.append(preset)

    assert refused == ["auto", "dcza"]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"has_candidates": True}, "candidates"),
        ({"has_ensemble": True}, "[ensemble]"),
        ({"learns_link_costs": True}, "cost-column of [[link]]"),
    ],
)
def test_what_a_network_has_besides_its_policy_may_couple_cells(
    given: dict[str, bool], key: str
) -> None:
    why = why_coupled([policy_of(preset="cos")], **given)

    assert why is not None
    assert why.startswith(key)


def test_one_more_owner_moves_only_the_cells_that_it_gets() -> None:
    cells = [f"g20:{row}:{column}" for row in range(20) for column in range(20)]
    before = [owner_of(cell, OWNERS[:2]) for cell in cells]
    after = [owner_of(cell, OWNERS) for cell in cells]

    moved = [new for old, new in zip(before, after, strict=True) if old != new]

    assert set(moved) == {2}
    assert 100 < len(moved) < 170


def test_owners_have_about_as_many_cells_each() -> None:
    shares = Counter(
        owner_of(f"g30:{row}:{column}", OWNERS) for row in range(30) for column in range(30)
    )

    assert all(250 < shares[place] < 350 for place in range(3))
