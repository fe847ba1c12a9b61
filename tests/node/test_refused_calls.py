"""Calls that do not fit are refused with a sentence, and change nothing: see refusals.toml."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConfigError, CoveyError, DataError
from covey.node.node import Node
from support.batched import CONTEXTS, ROWS, counters, network
from support.lives import live
from support.virtual import World

CASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text())


@pytest.mark.parametrize(("rows", "contexts", "says"), CASES["rows"])
def test_rows_that_do_not_fit_are_refused_in_a_network_and_at_a_node(
    rows: Any, contexts: list[list[float]], says: str
) -> None:
    points = [tuple(context) for context in contexts]
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)
    before = counters(sites)

    with pytest.raises(DataError) as refused:
        sites["north"].predict_batch(rows, points)
    assert says in str(refused.value)
    assert counters(sites) == before

    async def story(node: Node, world: World) -> None:
        with pytest.raises(DataError) as refused:
            await node.answer(rows, points)
        assert says in str(refused.value)
        assert node.learner.slot == 0
        assert (await node.answer([1], [(0.5,)])).slot == 1

    live(story)


@pytest.mark.parametrize(("tickets", "labels", "says"), CASES["labels"])
def test_labels_that_do_not_fit_are_refused_all_together(
    tickets: list[int], labels: list[Any], says: str
) -> None:
    sites = network()
    sites["north"].predict_batch(ROWS, CONTEXTS)
    sites["north"].learn(8, 1)
    before = counters(sites)

    with pytest.raises(CoveyError) as refused:
        sites["north"].learn_batch(tickets, labels)
    assert says in str(refused.value)
    assert counters(sites) == before


@pytest.mark.parametrize(("asker", "peer", "price", "says"), CASES["prices"])
def test_a_price_that_makes_no_sense_is_refused(
    asker: str, peer: str, price: float, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        network().reprice(asker, peer, price)
    assert says in str(refused.value)
