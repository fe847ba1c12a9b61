"""Logs, arrays and configurations that cannot be replayed are refused with what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.errors import ConfigError, CoveyError, DataError
from covey.replay.baselines import make
from support import two_sites
from support.refusals import refusals, refuses
from support.replays import EVERY_KIND, NETWORK, ONE_CONTEXT, PATIENT, RIGHT, play, stream
from support.two_sites import NORTH, SOUTH


def _arrays(wrong: dict[str, Any], loss: dict[str, Any] | None = None) -> None:
    data = {**ONE_CONTEXT["data"], **({} if loss is None else {"loss": loss})}
    covey.replay({**ONE_CONTEXT, "data": data}, **{**RIGHT, **wrong})


def _setup(data: dict[str, Any], north: dict[str, Any]) -> None:
    load({"data": data, "learner": [{**NORTH, "peers": {"south": 0.1}, **north}, SOUTH]})


def _cost(values: list[Any]) -> None:
    config = {"learner": [{**NORTH, "cost-columns": {"a": "fee"}}]}
    covey.replay(config, **two_sites.stream(2, 0.5, 0.5), columns={"fee": values})


def _delay(values: list[Any]) -> None:
    config = {"learner": [NORTH, {**SOUTH, "answer-delay": "late"}]}
    covey.replay(config, **two_sites.stream(2, 0.5, 0.5, 0.5), columns={"late": values})


def _lateness(
    kind: str, data: dict[str, Any] | None = None, policy: dict[str, Any] | None = None
) -> None:
    columns = {"label": [1, 0], "a": [1, 1], "late": np.array([1, 1]).astype(kind), "ts": [1, 2]}
    learner = [{"name": "north", "functions": ["a"]}]
    config = {"data": data or {"delay": "late"}, "policy": policy or {}, "learner": learner}
    covey.replay(config, columns)


def _network(north: dict[str, Any]) -> None:
    functions = dict.fromkeys(("a", "b", "c"), lambda x: 1)
    covey.Network({"learner": [{**NORTH, **north}, SOUTH]}, functions=functions, dimension=1)


def _policy(policy: dict[str, Any], north: dict[str, Any] | None = None) -> None:
    site = {"name": "north", "functions": ["a", "b"], "peers": {}, **(north or {})}
    covey.replay({"policy": policy, "learner": [site]}, **two_sites.stream(10, 0.5, 0.5))


def _config(*, arrivals: bool = True, **tables: Any) -> None:
    load({"learner": [{"name": "north", "functions": ["nb"], "arrivals": arrivals}], **tables})


DOORS = {
    "config": _config,
    "baselines": lambda names: make(names, functions=2),
    "arrays": _arrays,
    "setup": _setup,
    "cost": _cost,
    "delay": _delay,
    "lateness": _lateness,
    "network": _network,
    "policy": _policy,
}


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_what_cannot_be_replayed_is_refused_and_leaves_no_trace(
    tmp_path: Path, door: str, given: dict[str, Any], says: list[str]
) -> None:
    def row(column: str, value: Any) -> None:
        columns = {**stream(5), "label": [1] * 5, "seen": [1] * 5}
        columns[column] = [*list(columns[column])[:2], value, *list(columns[column])[3:]]
        play(columns, NETWORK, tmp_path)

    refuses({**DOORS, "row": row}, door, given, [*(["3: "] if door == "row" else []), *says])

    assert [path.name for path in tmp_path.iterdir()] == (["log.csv"] if door == "row" else [])


@EVERY_KIND
@pytest.mark.parametrize(
    ("columns", "policy", "says"),
    [
        ({"label": [1], "goood": [1], "bad": [1]}, {}, "has no column 'good'; did you mean 'goood"),
        ({"label": [], "good": [], "bad": []}, {}, "has no rows; a log needs at least one"),
        (
            {"label": [1] * 4, "good": [1] * 4, "bad": [1] * 4},
            {"preset": "cos", "horizon": 3},
            "raise horizon in",
        ),
    ],
)
def test_a_log_that_cannot_be_replayed_leaves_no_trace(
    tmp_path: Path, kind: str, columns: dict[str, Any], policy: dict[str, Any], says: str
) -> None:
    with pytest.raises(CoveyError, match=says):
        play(columns, {**PATIENT, "policy": policy}, tmp_path, kind)

    assert [path.name for path in tmp_path.iterdir()] == [f"log.{kind}"]


def test_arrays_longer_than_the_horizon_are_refused() -> None:
    with pytest.raises(CoveyError, match="more rows than the horizon of 1 slots"):
        covey.replay({**ONE_CONTEXT, "policy": {"preset": "cos", "horizon": 1}}, **RIGHT)


def test_weights_per_cell_need_one_context_space() -> None:
    learners = [{**NORTH, "candidates": ["x", "y"]}, {**SOUTH, "context": ["y"]}]
    network = {"policy": {"preset": "cos"}, "learner": learners}

    with pytest.raises(CoveyError, match=r"\[ensemble\] weights = \"cell\" .* candidates"):
        load({**network, "ensemble": {"weights": "cell"}})
    assert load({**network, "ensemble": {"weights": "global"}}).ensemble is not None
    assert load({"ensemble": {"weights": "cell"}, "learner": learners}).ensemble is not None


TWO = {"learner": [{"name": "north", "functions": ["a"]}, {"name": "south", "functions": ["b"]}]}
CONTEXTS = [[0.1], [0.9]]


@pytest.mark.parametrize("names", [("a", "a"), ("label", "a"), ("a", "delay")])
def test_every_array_has_a_name_of_its_own(names: tuple[str, str]) -> None:
    pairs = zip(("north", "south"), names, strict=True)
    config = {"learner": [{"name": name, "functions": [function]} for name, function in pairs]}

    with pytest.raises(DataError, match="two arrays have the name .*; rename"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], delay=[0, 0])


@pytest.mark.parametrize("name", ["at", "revealed", "delay"])
def test_a_column_that_the_configuration_names_must_be_given(name: str) -> None:
    config = {**TWO, "data": {name: "some column"}}

    with pytest.raises(ConfigError, match=f"give replay the array {name}"):
        covey.replay(config, predictions=[[1, 1], [0, 0]], labels=[1, 1], contexts=CONTEXTS)
