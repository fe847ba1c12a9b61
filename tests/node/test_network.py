"""Real functions, peers with prices and tickets, in one process."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS
from covey.errors import ConfigError, DataError, FunctionError
from support.presets import fitting
from support.snapshots import snapshot_of

CONFIG: dict[str, Any] = {
    "policy": {"preset": "cos", "slices": 1, "explore": {"scale": 0, "power": 0}},
    "learner": [
        {"name": "north", "functions": ["guess"], "peers": {"south": 0.2}},
        {"name": "south", "functions": ["sign"], "peers": {}},
    ],
}
FUNCTIONS: dict[str, Callable[[float], int]] = {"guess": lambda x: 0, "sign": lambda x: int(x > 0)}


def network(**functions: object) -> covey.Network:
    return covey.Network(CONFIG, functions={**FUNCTIONS, **functions}, dimension=1)


def everything(sites: covey.Network) -> list[object]:
    return [snapshot_of(site.learner) for site in sites.values()]


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_with_every_link_closed_a_site_answers_by_itself(preset: str) -> None:
    setup = {**CONFIG, "policy": fitting({"preset": preset, "slices": 1})}
    sites = covey.Network(setup, functions=FUNCTIONS, dimension=1)
    sites.reprice("north", "south", None)

    answers = [sites["north"].predict(0.5, (0.3,)) for _ in range(20)]

    assert {answer.function for answer in answers} == {"guess"}


def test_a_site_without_labels_and_without_peers_answers_by_itself() -> None:
    north, south = CONFIG["learner"]
    setup = {**CONFIG, "learner": [{**north, "supervised": False, "peers": {}}, south]}

    answer = covey.Network(setup, functions=FUNCTIONS, dimension=1)["north"].predict(0.5, (0.3,))

    assert answer.function == "guess"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda x: 1 / 0, "function 'sign' of learner 'south' raised ZeroDivisionError"),
        (lambda x: None, "function 'sign' of learner 'south' answered None, which is not a label"),
        (lambda x: float("nan"), "answered nan, which is not a label"),
        (lambda x: [1], "answered a list, which is not a label"),
        (lambda x: np.array([1, 2]), "answered a ndarray, which is not a label"),
    ],
)
def test_a_function_that_fails_is_named_and_all_counters_are_as_before(
    broken: Callable[[float], Any], message: str
) -> None:
    sites = network(sign=broken)
    north = sites["north"]
    north.learn(north.predict(0.5, (0.3,)).ticket, 1)
    sites["south"].learner.report(north.learner.known_cell("", 0), 2, "north")
    before = everything(sites)

    with pytest.raises(FunctionError, match=message):
        north.predict(0.5, (0.3,))
    assert [s.cells for s in everything(sites)] == [s.cells for s in before]  # type: ignore[attr-defined]


@pytest.mark.parametrize("label", [None, float("nan"), [1]])
def test_something_that_is_not_a_label_is_refused(label: object) -> None:
    north = network()["north"]
    ticket = north.predict(0.5, (0.3,)).ticket

    with pytest.raises(DataError, match="the label is .*, which is not a label"):
        north.learn(ticket, label)  # type: ignore[arg-type]
    assert north.learn(ticket, 0).is_new


def test_numpy_scalars_and_their_python_twins_are_the_same_label() -> None:
    north = network(guess=lambda x: np.int64(1))["north"]
    answer = north.predict(0.5, (0.3,))

    assert north.learn(answer.ticket, np.float64(1.0)).is_right


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"guess": FUNCTIONS["guess"]}, "learner 'south' lists function 'sign', but"),
        (
            {**FUNCTIONS, "gess": FUNCTIONS["guess"]},
            "no learner lists function 'gess'; did you mean",
        ),
        ({**FUNCTIONS, "sign": 3}, "function 'sign' is a int; give a callable"),
    ],
)
def test_functions_must_match_the_configuration(functions: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        covey.Network(CONFIG, functions=functions, dimension=1)


def asked(sites: covey.Network, rounds: int, *, seed: int) -> set[str]:
    """Return the arms that north exploits in the last quarter of some rounds."""
    arms = []
    for x in np.random.default_rng(seed).normal(size=rounds):
        answer = sites["north"].predict(x, (0.5,))
        sites["north"].learn(answer.ticket, int(x > 0))
        arms.append(answer.arm if answer.phase == "exploit" else "")
    return set(arms[-rounds // 4 :]) - {""}


def test_prices_change_while_running_and_what_was_learnt_stays() -> None:
    config = {**CONFIG, "policy": {}}
    sites = covey.Network(config, functions=FUNCTIONS, dimension=1)

    cheap = asked(sites, 200, seed=1)
    sites.reprice("north", "south", 0.9)
    dear = asked(sites, 200, seed=2)
    sites.reprice("north", "south", None)
    gone = asked(sites, 200, seed=3)
    sites.reprice("north", "south", 0.05)
    back = sites["north"].predict(0.5, (0.5,))

    assert (cheap, dear, gone) == ({"south"}, {"guess"}, {"guess"})
    assert (back.arm, back.price) == ("south", 0.05)


def test_an_unknown_site_is_named_with_the_nearest_one() -> None:
    config = {"learner": [{"name": "airport", "functions": ["zero"]}]}
    network = covey.Network(config, functions={"zero": lambda x: 0}, dimension=0)

    with pytest.raises(KeyError, match="the network has no site 'airprt'; did you mean 'airport'?"):
        network["airprt"]
    assert "airprt" not in network
    assert repr(network) == "<Network of airport>"
    assert repr(network["airport"]).startswith("<LocalSite airport: ")


def test_text_is_no_label_of_a_number_nor_a_number_of_text() -> None:
    for answer, label in ((1, "1"), ("spam", 1), (True, "true")):
        config = {"learner": [{"name": "north", "functions": ["a"]}]}
        north = covey.Network(config, functions={"a": lambda x, said=answer: said})["north"]
        ticket = north.predict(0).ticket
        before = snapshot_of(north.learner)

        with pytest.raises(covey.UnfitLabel, match=r"the answer is .*numbers only, or text only"):
            north.learn(ticket, label)

        assert snapshot_of(north.learner) == before
        assert north.learn(ticket, answer).is_right


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: covey.replay([], {}), "a list; give a dict, or the path"),
        (lambda: covey.Network(ONE, functions=[len]), "give a dict from names to functions"),
        (lambda: covey.Network(ONE, functions={"a": len}, dimension=-1), "must be 0 or more"),
        (lambda: _one().predict(0, 0.5), r"as in \(0\.5,\)"),
        (lambda: _one().predict(0, "a"), r"as in \(0\.5,\)"),
        (lambda: _one().learn(_one().predict(0, [0.5]), 1), "`ticket` is the number"),
    ],
)
def test_common_slips_are_refused_with_what_to_write(call: Any, says: str) -> None:
    with pytest.raises(covey.CoveyError, match=says):
        call()


ONE = {"learner": [{"name": "north", "functions": ["a"]}]}


def _one() -> Any:
    return covey.Network(ONE, functions={"a": lambda x: 0}, dimension=1)["north"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_batch_may_be_a_data_frame_and_an_instance_a_row_of_one(library: str) -> None:
    columns = {"x": [0.1, 0.7, 0.9], "size": [3.0, 4.0, 5.0]}
    make = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}[library]
    frame = getattr(importlib.import_module(library), make)(columns)
    config = {"data": {"context": ["x"]}, **ONE}
    seen: list[Any] = []
    model = covey.columns(lambda row: seen.append(row) or 0, ["size"])
    north = covey.Network(config, functions={"a": model})["north"]

    answers = north.predict_batch(frame)
    if library == "pandas":
        answers.append(north.predict(frame.iloc[1]))
        assert north.peek(frame.iloc[2]).label == 0
        seen.pop()

    assert seen == [[3.0], [4.0], [5.0], [4.0]][: len(answers)]
    assert len(answers) == 3 + (library == "pandas")
