"""Python names of 0.1.0 still work, and a warning says what they are called now."""

import importlib

import pytest

import covey
from covey import _deprecated
from covey.bandit.links import Links
from covey.errors import CoveyDeprecationWarning
from covey.functions.function import untrained
from covey.replay.baselines import BaselineAnswer
from covey.replay.outcome import BaselineRun, Outcome
from covey.simulation.runner import simulate


@pytest.mark.parametrize(
    ("module", "name", "new", "thing"),
    [
        ("links", "Links", "bandit.links.Links", Links),
        ("classifiers", "fresh", "functions.function.untrained", untrained),
        ("contest", "Contest", "replay.outcome.BaselineRun", BaselineRun),
        ("types", "Outcome", "replay.outcome.Outcome", Outcome),
        ("simulation", "simulate", "simulation.runner.simulate", simulate),
    ],
)
def test_an_old_name_is_found_with_a_warning(
    module: str, name: str, new: str, thing: object
) -> None:
    old = importlib.import_module(f"covey.{module}")

    with pytest.warns(DeprecationWarning, match=rf"covey\.{module}\.{name} is now covey\.{new};"):
        assert getattr(old, name) is thing


def test_an_old_module_is_imported_from_covey() -> None:
    from covey import links

    with pytest.warns(DeprecationWarning, match="covey.bandit.links"):
        assert links.Links is Links


@pytest.mark.parametrize("old", sorted({**_deprecated.MODULES, "types": ""}))
def test_a_name_that_never_was_is_no_attribute(old: str) -> None:
    module = importlib.import_module(f"covey.{old}")

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("new", sorted({*_deprecated.MODULES.values()}))
def test_every_new_module_is_there(new: str) -> None:
    assert importlib.import_module(f"covey.{new}").__doc__


def test_every_new_name_is_there() -> None:
    for new in _deprecated.NAMES.values():
        module, _, name = new.rpartition(".")
        assert getattr(importlib.import_module(f"covey.{module}"), name)


def test_the_old_name_of_the_predictions_of_a_baseline_is_found_with_a_warning() -> None:
    answer = BaselineAnswer(1, (1, 2))

    with pytest.warns(CoveyDeprecationWarning, match="use BaselineAnswer.predictions"):
        assert answer.said == (1, 2)


def test_the_asynchronous_node_is_found_in_its_package() -> None:
    assert covey.node.Node.__module__ == "covey.node.node"
