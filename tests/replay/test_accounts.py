"""Accounts: what sites buy, sell and gain, with and without serving costs in prices."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.replay.outcome import Outcome
from covey.report.results import Result
from support.outcomes import numbers_of
from support.two_sites import stream


def replay(*, carry: bool) -> Outcome:
    """Replay a poor site that asks a good one, whose answers cost it more than they help."""
    columns = stream(2_000, 0.6, 0.9, seed=3)
    sites = [
        {"name": "north", "functions": ["poor"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["good"], "arrivals": False, "serving-cost": 0.5},
    ]
    config = {"policy": {"carry-serving-costs": carry}, "learner": sites}
    return covey.replay(config, **columns).outcome


def test_an_account_adds_up() -> None:
    outcome = replay(carry=False)
    north, south = outcome.learners

    account, asked = outcome.accounts["south"], north.numbers.arms["south"]
    assert (account.sold, account.serving_cost) == (asked, 0.5 * asked)
    assert outcome.accounts["north"].utility == north.judged - (north.numbers.errors or 0)
    assert account.utility == account.balance == -account.serving_cost
    assert south.numbers.slots == 0
    total = outcome.total
    assert total.net_gain_points is not None
    assert total.best_own_percent is not None
    assert total.error_percent is not None
    gained = total.best_own_percent - total.error_percent - 100 * account.serving_cost / total.slots
    assert total.net_gain_points.mean == pytest.approx(gained)


def test_prices_that_carry_the_cost_make_the_helper_good() -> None:
    outcome = replay(carry=True)

    assert outcome.accounts["south"].utility == 0.0


def test_carrying_costs_makes_the_best_for_each_the_best_for_all() -> None:
    """Serving costs 0.5 and helps by 0.3: the asker asks only as long as it need not mind."""
    careless = numbers_of(replay(carry=False))
    careful = numbers_of(replay(carry=True))

    assert utility(careless["learners"]["north"]) > utility(careful["learners"]["north"])
    assert utility(careless["total"]) < utility(careful["total"])


def utility(numbers: dict[str, Any]) -> float:
    return float(numbers["account"]["utility"])


def priced(*, price: float, labelled: float = 1.0, policy: Any = None, **more: Any) -> Outcome:
    """Replay a poor site that asks a good one, which gets a third of the rows."""
    rng = np.random.default_rng(5)
    rows = 3_000
    labels = rng.integers(0, 2, rows)
    right = rng.random((2, rows)) < [[0.6], [0.95]]
    columns = {
        "label": labels,
        "poor": np.where(right[0], labels, 1 - labels),
        "good": np.where(right[1], labels, 1 - labels),
        "site": np.where(rng.random(rows) < 2 / 3, "north", "south"),
        "known": (rng.random(rows) < labelled).astype(int),
    }
    return covey.replay(
        {
            "data": {"at": "site", "revealed": "known", **more},
            "learner": [
                {"name": "north", "functions": ["poor"], "peers": {"south": price}},
                {"name": "south", "functions": ["good"], "peers": {}},
            ],
        },
        columns,
        policy=policy,
    ).outcome


def test_what_one_site_pays_another_earns_and_totals_are_without_it() -> None:
    outcome = priced(price=0.1)
    north, south = (learner.numbers for learner in outcome.learners)
    total = outcome.total

    assert north.account is not None
    assert south.account is not None
    assert total.account is not None
    asked = north.arms["south"]
    assert (north.account.bought, south.account.sold) == (asked, asked)
    assert south.account.earned == north.account.paid == pytest.approx(0.1 * asked)
    assert south.account.balance == -north.account.balance == pytest.approx(0.1 * asked)
    assert (total.account.balance, total.account.spent) == (0.0, 0.0)
    for numbers, income in ((north, 0.0), (south, 0.1 * asked)):
        assert numbers.net_gain_points is not None
        assert numbers.buyer_gain_points is not None
        difference = numbers.net_gain_points.mean - numbers.buyer_gain_points.mean
        assert difference == pytest.approx(100 * income / numbers.slots)
    assert total.net_gain_points is not None
    assert total.error_percent is not None
    assert total.best_own_percent is not None
    gained = total.best_own_percent - total.error_percent
    assert total.net_gain_points.mean == pytest.approx(gained)


def test_income_of_rows_without_labels_counts_in_the_share_of_labelled_rows() -> None:
    whole, half = (priced(price=0.3, labelled=share).learners[1] for share in (1.0, 0.5))

    for south in (whole, half):
        account, gain = south.numbers.account, south.numbers.net_gain_points
        assert account is not None
        assert gain is not None
        assert gain.mean == pytest.approx(100 * account.earned / south.numbers.slots)


def test_a_site_that_loses_is_told_so_in_points_and_in_money() -> None:
    value = {"amount": 12.5, "currency": "EUR"}
    said = Result(priced(price=0.9, policy=covey.CoS(slices=1), value=value)).table()

    assert "north should not buy from south at 0.9" in " ".join(said.split())
    assert "north loses by taking part" in said
    assert "earned EUR" in said


def test_a_relay_gets_the_price_of_the_path_and_pays_the_next_site() -> None:
    columns = {"label": [1, 0] * 300, "bad": [0, 1] * 300, "worse": [0, 1] * 300}
    columns |= {"good": [1, 0] * 300}
    sites = [
        {"name": "north", "functions": ["bad"], "peers": {"middle": 0.1}},
        {"name": "middle", "functions": ["worse"], "peers": {"south": 0.2}, "relay": True},
        {"name": "south", "functions": ["good"], "peers": {}},
    ]
    sites = [{**site, "arrivals": site["name"] == "north"} for site in sites]
    outcome = covey.replay({"learner": sites}, columns).outcome
    north, middle, south = outcome.accounts.values()
    direct = outcome.learners[0].numbers.arms.get("middle", 0)

    assert south.sold == outcome.learners[0].numbers.arms["south"] > 200
    assert south.earned == pytest.approx(0.2 * south.sold)
    assert north.paid == pytest.approx(0.3 * south.sold + 0.1 * direct)
    assert middle.balance == pytest.approx(0.1 * (south.sold + direct))


def test_nobody_receives_the_cost_of_a_link() -> None:
    columns = {"label": [1, 0] * 300, "bad": [0, 1] * 300, "good": [1, 0] * 300}
    sites = [
        {"name": "north", "functions": ["bad"]},
        {"name": "south", "functions": ["good"], "arrivals": False},
    ]
    links = [{"from": "north", "to": "south", "cost": 0.25}]
    outcome = covey.replay({"learner": sites, "link": links}, columns).outcome
    north, south = outcome.accounts.values()

    assert (south.sold, south.earned, north.paid) == (north.bought, 0.0, 0.0)
    assert north.spent == pytest.approx(0.25 * north.bought)
