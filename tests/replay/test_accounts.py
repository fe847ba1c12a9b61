"""Utilities of the learners and the system, with and without serving costs in prices."""

import csv
import json
from pathlib import Path

import numpy as np

from covey import config
from covey.replay import replay as replaying
from covey.replay.outcome import Outcome
from covey.report.page import replay_page
from covey.report.text import replay_text
from support.outcomes import numbers_of

SITES = """
[data]
label = "label"

[policy]
carry-serving-costs = {carry}

[[learner]]
name = "north"
functions = ["poor"]
peers = {{ south = 0.0 }}

[[learner]]
name = "south"
functions = ["good"]
arrivals = false
serving-cost = {cost}
"""


def replay(folder: Path, *, carry: bool, cost: float = 0.5) -> Outcome:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 2_000)
    poor = np.where(rng.random(2_000) < 0.6, labels, 1 - labels)
    good = np.where(rng.random(2_000) < 0.9, labels, 1 - labels)
    with (folder / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", "poor", "good"])
        rows.writerows(zip(labels, poor, good, strict=True))
    (folder / "sites.toml").write_text(SITES.format(carry=str(carry).lower(), cost=cost))
    return replaying.replay_file(folder / "log.csv", config.load(folder / "sites.toml"))


def test_an_account_adds_up(tmp_path: Path) -> None:
    outcome = replay(tmp_path, carry=False)
    north, south = outcome.learners

    assert outcome.accounts is not None
    account, asked = outcome.accounts["south"], north.numbers.arms["south"]
    assert (account.served, account.served_cost) == (asked, 0.5 * asked)
    assert outcome.accounts["north"].utility == north.judged - (north.numbers.errors or 0)
    assert account.utility == -account.served_cost
    assert south.numbers.slots == 0


def test_prices_that_carry_the_cost_make_the_helper_good(tmp_path: Path) -> None:
    outcome = replay(tmp_path, carry=True)

    assert outcome.accounts is not None
    assert outcome.accounts["south"].utility == 0.0


def test_carrying_costs_makes_the_best_for_each_the_best_for_all(tmp_path: Path) -> None:
    """Serving costs 0.5 and helps by 0.3: the asker asks only as long as it need not mind."""
    careless = numbers_of(replay(tmp_path, carry=False))
    careful = numbers_of(replay(tmp_path, carry=True))

    assert careless["learners"]["north"]["utility"] > careful["learners"]["north"]["utility"]
    assert careless["system"]["utility"] < careful["system"]["utility"]


def test_the_text_and_the_page_report_the_utilities(tmp_path: Path) -> None:
    outcome = replay(tmp_path, carry=True)

    assert "; total " in replay_text(outcome)
    assert "; total " in replay_page(outcome, title="x")
    assert json.dumps(numbers_of(outcome))


def test_without_serving_costs_there_is_no_account(tmp_path: Path) -> None:
    assert replay(tmp_path, carry=False, cost=0.0).accounts is None
