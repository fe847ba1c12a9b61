"""Advice: break-even prices, what each part is worth, the best network, pages and tables."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey import cli
from covey.cli import demo
from covey.errors import ConfigError
from covey.report import advice as advising
from covey.report.advice import Advice, AdviceSummary, PairAdvice, Worth
from covey.report.contracts import BreakEven, PricePoint, break_even
from covey.types import Interval
from support.outcomes import read

DOCS = Path(__file__).parents[2] / "docs"
ROWS = 2_400
PRICES = (0.0, 0.1, 0.2, 0.3, 0.4)
SITES = ("north", "south", "west")
CONFIG = {
    "data": {"at": "site", "context": ["x"], "value": {"amount": 2.0, "currency": "EUR"}},
    "learner": [
        {"name": "north", "functions": ["weak", "coin"], "peers": {"south": 0.05, "west": 0.3}},
        {"name": "south", "functions": ["good"], "peers": {"north": 0.05}, "serving-cost": 0.01},
        {"name": "west", "functions": ["poor"], "peers": {}},
    ],
}


def log(rows: int = ROWS) -> dict[str, Any]:
    """Half of the rows are easy for `good`, which south has; nobody gains from `coin` or `poor`."""
    rng = np.random.default_rng(4)
    labels, x = rng.integers(0, 2, rows), rng.random(rows)
    chances = {"weak": 0.7, "coin": 0.5, "good": 0.95, "poor": 0.5}
    return {
        "label": labels,
        "x": x,
        "site": np.array(SITES)[rng.choice(3, rows, p=(0.6, 0.3, 0.1))],
        **{
            name: np.where(rng.random(rows) < chance, labels, 1 - labels)
            for name, chance in chances.items()
        },
    }


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def advice(kept: Path) -> Advice:
    return covey.advise(CONFIG, log(), prices=PRICES, out=kept)


def contract(advice: Advice, buyer: str, seller: str) -> PairAdvice:
    pairs = advice.summary().contracts
    return next(pair for pair in pairs if (pair.buyer, pair.seller) == (buyer, seller))


def lost_by_north(price: float | None) -> float:
    """Replay by hand, and return the errors and costs of north."""
    first, *others = CONFIG["learner"]
    peers = {"west": 0.3} if price is None else {"west": 0.3, "south": price}
    config = {**CONFIG, "learner": [{**first, "peers": peers}, *others]}
    numbers = covey.replay(config, log()).summary().learners["north"]
    return float((numbers.errors or 0) + (numbers.cost_total or 0.0))


def test_a_break_even_price_is_that_of_a_sweep_by_hand(advice: Advice) -> None:
    found = contract(advice, "north", "south")
    without = lost_by_north(None)
    gains = {price: without - lost_by_north(price) for price in np.arange(0.2, 0.41, 0.02).tolist()}
    paying = itertools.takewhile(lambda price: gains[price] > 0, gains)
    *_, last = paying

    rows = np.count_nonzero(log()["site"] == "north")
    by_hand = {point.price: point for point in found.curve}[0.3].gain_points.mean
    assert by_hand == pytest.approx(100 * (without - lost_by_north(0.3)) / rows)
    assert found.break_even.price == pytest.approx(last, abs=0.02 + 1e-9)
    low, high = found.break_even.low, found.break_even.high
    assert low is not None
    assert low <= found.break_even.price
    assert high is None or high >= found.break_even.price


def test_verdicts_say_who_should_buy_from_whom(advice: Advice) -> None:
    verdicts = {
        (pair.buyer, pair.seller): (pair.price, pair.verdict) for pair in advice.summary().contracts
    }

    assert len(verdicts) == 6
    assert verdicts["north", "south"] == (0.05, "yes")
    assert verdicts["west", "south"] == (None, "yes")  # it could buy
    assert verdicts["south", "west"][1] != "yes"
    said = " ".join(advice.table().split())
    assert "Buy from south at 0.05" in said
    assert "could buy from south" in said
    assert " EUR." in said


def test_parts_are_worth_what_replays_without_them_lose(advice: Advice) -> None:
    summary = advice.summary()
    first, *others = CONFIG["learner"]
    config = {**CONFIG, "learner": [{**first, "functions": ["coin"]}, *others]}
    numbers = [covey.replay(each, log()).summary().learners["north"] for each in (CONFIG, config)]
    lost = [
        (each.errors or 0) + (each.cost_total or 0.0) - each.account.earned
        for each in numbers
        if each.account is not None
    ]
    weak = next(each for each in summary.functions if each.name == "weak")

    assert weak.gain_points is not None
    assert weak.gain_points.mean == pytest.approx(100 * (lost[1] - lost[0]) / numbers[0].slots)
    assert {each.name for each in summary.functions} == {"weak", "coin"}
    assert [each.name for each in summary.contexts] == ["x"]
    assert [each.name for each in summary.peers] == [*SITES]
    south = summary.peers[1]
    assert south.verdict == "yes"


def test_the_best_network_gains_most_of_all_and_by_leaving_out_one_by_one(
    advice: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = advice.summary().networks
    gains = [each.gain_points.mean for each in networks if each.gain_points is not None]
    monkeypatch.setattr(advising, "MOST_SITES", 2)
    greedy = covey.advise(CONFIG, log(), prices=[0.0]).summary()

    assert gains == sorted(gains, reverse=True)
    assert len(networks) == 4
    assert {"north", "south"} <= set(advice.summary().best)
    assert greedy.best == advice.summary().best
    assert [(pair.buyer, pair.seller) for pair in greedy.contracts] == [
        *(("north", "south"), ("north", "west"), ("south", "north"))
    ]


def test_a_site_whose_answers_cost_more_than_they_earn_would_leave() -> None:
    north, south, _ = CONFIG["learner"]
    config = {"data": {"at": "site"}, "learner": [north, {**south, "serving-cost": 0.2}]}
    config["learner"][0] = {**north, "peers": {"south": 0.05}}
    rows = {name: column[log()["site"] != "west"] for name, column in log().items()}
    summary = covey.advise(config, rows, prices=[0.1]).summary()

    assert [site.verdict for site in summary.sites] == ["yes", "no"]
    assert summary.leaving == ["south"]
    assert "south would gain by leaving" in " ".join(summary.conclusions)


def test_finished_replays_are_kept_and_another_configuration_is_refused(
    kept: Path, advice: Advice
) -> None:
    played = list[float]()
    again = covey.advise(
        CONFIG, log(), prices=PRICES, out=kept, progress=lambda share, _: played.append(share)
    )
    other = {**CONFIG, "policy": {"seed": 5}}

    assert played == []
    assert again.summary() == advice.summary()
    with pytest.raises(ConfigError, match="another advice"):
        covey.advise(other, log(), prices=PRICES, out=kept)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learner": CONFIG["learner"][2:]}, "two learners"),
        ({"ensemble": {}, "data": {"context": ["x"]}}, "ensemble"),
    ],
)
def test_configurations_without_prices_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        covey.advise({**CONFIG, **changes}, log())


def points(*gains: tuple[float, float]) -> list[PricePoint]:
    return [
        PricePoint(k / 10, 1, 1.0, Interval(mean, mean - width, mean + width), 0.0, 0.0)
        for k, (mean, width) in enumerate(gains)
    ]


@pytest.mark.parametrize(
    ("gains", "expected", "shown"),
    [
        ([(2, 0), (-2, 0)], BreakEven(0.05, 0.05, 0.05), "0.05 (0.05 to 0.05)"),
        ([(2, 1), (0, 1), (-2, 1)], BreakEven(0.1, 0.05, 0.15), "0.1 (0.05 to 0.15)"),
        ([(2, 1), (1, 0.5)], BreakEven(0.1, 0.1, None), "above 0.1"),
        ([(-1, 2), (-3, 1)], BreakEven(None, None, 1 / 30), "none (to 0.0333)"),
        ([(-1, 0.5), (1, 0.5)], BreakEven(None, None, 0.0), "none"),
        ([(1, 2), (0, 0)], BreakEven(0.1, None, 0.1), "0.1 (0 to 0.1)"),
    ],
)
def test_a_break_even_price_is_where_the_gain_and_the_ends_of_its_interval_fall_to_nothing(
    gains: list[tuple[float, float]], expected: BreakEven, shown: str
) -> None:
    found = break_even(points(*gains))

    assert msgspec.structs.astuple(found) == pytest.approx(msgspec.structs.astuple(expected))
    assert str(found) == shown


def test_a_report_has_a_page_a_slide_and_tables(advice: Advice, tmp_path: Path) -> None:
    advice.report(tmp_path, has_slide=True)
    numbers = msgspec.json.decode((tmp_path / "numbers.json").read_bytes())
    contracts = [*csv.reader((tmp_path / "contracts.csv").read_text().splitlines())]

    assert numbers == json.loads(advice.json())
    assert [row[0] for row in contracts[1:]][:2] == ["north from south", "north from west"]
    assert (tmp_path / "advice.tex").read_text().count(r"\begin{tabular}") == 6
    for name in ("advice.html", "slide.html"):
        page = read((tmp_path / name).read_text())
        assert {link[:1] for link in page.links} <= {"#"}
        assert "svg" in page.tags
    assert len(advice.plot().get_legend().get_texts()) == 6
    assert repr(advice).startswith("<Advice on 6 contracts: ")


def test_the_command_prints_the_advice_of_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, toml = demo.write(tmp_path, slots=300)
    files = [str(path), "--config", str(toml), "--quiet", "--workers", "1", "--prices", "0,0.1"]
    code = cli.main(["advise", *files, "--json", "--report", str(tmp_path / "a"), "--slide"])
    printed = json.loads(capsys.readouterr().out)

    assert code == 0
    assert printed == json.loads(covey.replay(toml, path).advice(prices=[0, 0.1]).json())
    assert (tmp_path / "a" / "slide.html").exists()
    assert cli.main(["advise", *files, "--slide"]) == 2
    assert "--report" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["advise", *files, "--prices", "0,7"])
    assert "from 0 to 1" in capsys.readouterr().err


def test_every_field_of_the_numbers_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "advice.md").read_text()
    records = (AdviceSummary, PairAdvice, Worth, PricePoint, BreakEven)
    fields = {field.name for record in records for field in msgspec.structs.fields(record)}

    assert {name for name in fields if f"`{name}`" not in page} == set()
