"""Configuration: sites and their arms from TOML or a mapping, and every error message."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from covey import config
from covey.bandit.policies import DCZA
from covey.bandit.settings import Settings
from covey.config import LearnerSpec
from covey.errors import ConfigError

pytestmark = pytest.mark.beside_the_kernel

WHOLE = """
[data]
label = "truth"
context = ["hour", { column = "bytes", scale = "log", high = 1e6 }]
at = "site"
revealed = "seen"
delay = "late"

[policy]
preset = "dcza"
split-power = 2.0
train = { scale = 2.0, power = 0.5 }

[[learner]]
name = "north"
functions = ["nb", "logistic"]
function-costs = [0.0, 0.25]
peers = { south = 0.1 }

[[learner]]
name = "south"
functions = ["tree"]
arrivals = false
"""


def learner(name: str, *functions: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "functions": list(functions or [f"{name}-f"]), **more}


def sites_of(*learners: dict[str, Any], **policy: Any) -> tuple[LearnerSpec, ...]:
    return config.load({"policy": policy, "learner": list(learners)}).sites


def sentence_of(source: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(source)
    return str(caught.value)


def complaint_about(*learners: dict[str, Any]) -> str:
    return sentence_of({"learner": list(learners)})


def test_a_file_names_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_text(WHOLE, encoding="utf-8")
    setup = config.load(path)
    data = setup.data

    assert (data.label, data.at, data.revealed, data.delay) == ("truth", "site", "seen", "late")
    assert (setup.context.names, setup.context.dimension) == (["hour", "bytes"], 2)


def test_a_file_sets_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_text(WHOLE, encoding="utf-8")

    assert config.load(path).settings == DCZA(split_power=2.0, train={"scale": 2.0, "power": 0.5})


def test_a_file_lists_the_learners(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_text(WHOLE, encoding="utf-8")

    assert config.load(str(path)).sites == (
        LearnerSpec("north", ("nb", "logistic"), (1,), (0.0, 0.25, 0.1), receives=True),
        LearnerSpec("south", ("tree",), (0,), (0.0, 0.0), receives=False),
    )


def test_one_learner_is_enough() -> None:
    setup = config.load({"learner": [learner("north", "nb")]})

    assert setup.sites == (LearnerSpec("north", ("nb",), (), (0.0,), receives=True),)
    assert (setup.data.label, setup.context.dimension) == ("label", 0)
    assert setup.settings == Settings(preset="auto")


def test_the_default_peers_are_all_others_at_cost_zero() -> None:
    first, second, third = sites_of(learner("a"), learner("b"), learner("c"))

    assert [site.peers for site in (first, second, third)] == [(1, 2), (0, 2), (0, 1)]
    assert second.costs == (0.0, 0.0, 0.0)


def test_an_empty_peers_table_means_no_peers() -> None:
    first, _ = sites_of(learner("a", peers={}), learner("b"))

    assert (first.peers, first.costs) == ((), (0.0,))


def test_peer_arms_are_in_the_order_of_the_learners() -> None:
    peers = {"d": 0.4, "a": 0.1, "c": 0.3}
    sites = sites_of(learner("a"), learner("b", "f", "g", peers=peers), learner("c"), learner("d"))

    assert (sites[1].peers, sites[1].costs) == ((0, 2, 3), (0.0, 0.0, 0.1, 0.3, 0.4))


def test_a_peer_with_cost_above_one_is_no_arm_and_warns() -> None:
    peers = {"b": 1.5, "c": 1.0}
    with pytest.warns(UserWarning, match="never asks") as caught:
        first, *_ = sites_of(learner("a", peers=peers), learner("b"), learner("c"))

    assert (first.peers, first.costs) == ((2,), (0.0, 1.0))
    assert [str(warning.message) for warning in caught] == [
        "learner 'a' never asks 'b': cost 1.5 is above 1, the value of a correct label"
    ]


def test_a_peer_at_a_cost_of_one_is_an_arm_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, _ = sites_of(learner("a", peers={"b": 1}), learner("b"))

    assert first.peers == (1,)


def test_function_costs_from_zero_to_one_are_valid() -> None:
    (site,) = sites_of(learner("a", "f", "g", **{"function-costs": [0, 1]}))

    assert site.costs == (0.0, 1.0)


def test_two_learners_may_list_the_same_column() -> None:
    sites = sites_of(learner("a", "nb"), learner("b", "nb"))

    assert [site.functions for site in sites] == [("nb",), ("nb",)]


@pytest.mark.parametrize(
    ("policy", "peers"),
    [
        ({"mode": "spec"}, [(1, 2), (0, 2), (0, 1)]),
        ({"mode": "paper"}, [(1, 2), (), ()]),
        ({"mode": "paper", "reading": {"askers": "all"}}, [(1, 2), (0, 2), (0, 1)]),
        ({"mode": "spec", "reading": {"askers": "first"}}, [(1, 2), (), ()]),
    ],
)
def test_in_paper_mode_only_the_first_asks(policy: dict[str, Any], peers: list[Any]) -> None:
    sites = sites_of(learner("a"), learner("b"), learner("c"), **policy)

    assert [site.peers for site in sites] == peers


def test_a_learner_without_peers_keeps_its_functions_and_costs() -> None:
    second = learner("b", "f", "g", **{"function-costs": [0.1, 0.2]})
    sites = sites_of(learner("a"), second, mode="paper")

    assert sites[1] == LearnerSpec("b", ("f", "g"), (), (0.1, 0.2), receives=True)


def test_a_site_alone_has_its_own_functions_only() -> None:
    first, _ = sites_of(learner("a", "f", "g", peers={"b": 0.5}), learner("b"))

    assert first.alone() == LearnerSpec("a", ("f", "g"), (), (0.0, 0.0), receives=True)


def test_the_theorem_uses_the_largest_number_of_functions() -> None:
    setup = config.load(
        {
            "policy": {"preset": "dcza", "parameters": "theorem"},
            "learner": [learner("a", "f"), learner("b", "g", "h", "i")],
        }
    )

    assert setup.policy(1).train.scale == 3.0


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"polcy": {}, "learner": [learner("a")]},
            "unknown table [polcy]; did you mean 'policy'?",
        ),
        (
            {"xyz": {}},
            "unknown table [xyz]; known: data, ensemble, learner, link, link-change, policy",
        ),
        (
            {"data": {"lable": "y"}, "learner": [learner("a")]},
            "unknown key 'lable' in [data]; did you mean 'label'?",
        ),
        (
            {"policy": {"slises": 3}, "learner": [learner("a")]},
            "unknown key 'slises' in [policy]; did you mean 'slices'?",
        ),
        (
            {"data": {"label": 3}, "learner": [learner("a")]},
            "[data] label: expected str, got int",
        ),
        (
            {"data": {"context": "hour"}, "learner": [learner("a")]},
            "[data] context: expected array, got str",
        ),
        (
            {"data": {"context": [3]}, "learner": [learner("a")]},
            "[data] context[0]: expected str | object, got int",
        ),
        (
            {
                "data": {"context": ["x", {"column": "y", "scale": "lgo"}]},
                "learner": [learner("a")],
            },
            "context[1]: unknown scale 'lgo'; did you mean 'log'?",
        ),
        ({"data": [], "learner": [learner("a")]}, "[data] is not a table of keys and values"),
        ({"policy": 3, "learner": [learner("a")]}, "[policy] is not a table of keys and values"),
    ],
)
def test_a_wrong_table_is_one_sentence(table: dict[str, Any], sentence: str) -> None:
    assert sentence_of(table) == sentence


@pytest.mark.parametrize("learners", [{}, {"learner": []}, {"learner": learner("a")}])
def test_learners_must_be_listed(learners: dict[str, Any]) -> None:
    assert sentence_of(learners) == (
        "no learners; add a [[learner]] table with a name and its functions"
    )


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            [learner("a"), {"functions": ["f"]}],
            "[[learner]] 2: missing required field name",
        ),
        ([{"name": "a"}], "[[learner]] 1: missing required field functions"),
        ([learner("a"), "b"], "[[learner]] 2 is not a table of keys and values"),
        (
            [learner("a"), learner("b", arivals=False)],
            "unknown key 'arivals' in [[learner]] 2; did you mean 'arrivals'?",
        ),
        (
            [learner("a", function_costs=[0.0])],
            "unknown key 'function_costs' in [[learner]] 1; did you mean 'function-costs'?",
        ),
        ([{"name": 7, "functions": ["f"]}], "[[learner]] 1 name: expected str, got int"),
        (
            [{"name": "a", "functions": "f"}],
            "[[learner]] 1 functions: expected array, got str",
        ),
        (
            [{"name": "a", "functions": ["f", 3]}],
            "[[learner]] 1 functions[1]: expected str, got int",
        ),
        ([learner("a", arrivals=1)], "[[learner]] 1 arrivals: expected bool, got int"),
        ([learner("a", peers=["b"])], "[[learner]] 1 peers: expected object, got array"),
        (
            [learner("a", peers={"b": "dear"}), learner("b")],
            "[[learner]] 1 peers[...]: expected float, got str",
        ),
        (
            [learner("a"), learner("b"), learner("a")],
            "duplicate learner name 'a'",
        ),
        ([learner("")], "learner name is empty; set one"),
        (
            [{"name": "a", "functions": []}],
            "learner 'a' has no functions; list at least one column of predictions",
        ),
        (
            [learner("a", "f", "g", "f")],
            "duplicate function name 'f' of learner 'a'",
        ),
        (
            [learner("a", "f", "")],
            "function name of learner 'a' is empty; set one",
        ),
        (
            [learner("a", "b"), learner("b", "f")],
            "'b' is the name of a learner and of a function of learner 'a'; rename one of them",
        ),
        (
            [learner("a", "f", "g", **{"function-costs": [0.5]})],
            "learner 'a' has 2 functions and 1 function-costs; give one cost per function",
        ),
        (
            [learner("north", peers={"suoth": 0.1}), learner("south")],
            "learner 'north' lists unknown learner 'suoth' in peers; did you mean 'south'?",
        ),
        (
            [learner("north", peers={"x": 0.1}), learner("south")],
            "learner 'north' lists unknown learner 'x' in peers; known: north, south",
        ),
        (
            [learner("a", peers={"a": 0.1}), learner("b")],
            "learner 'a' lists itself in peers; remove it",
        ),
    ],
)
def test_a_wrong_learner_is_one_sentence(tables: list[Any], sentence: str) -> None:
    assert complaint_about(*tables) == sentence


@pytest.mark.parametrize("cost", [-0.1, 1.1, math.nan, math.inf])
def test_a_function_cost_outside_zero_to_one_is_rejected(cost: float) -> None:
    sentence = complaint_about(learner("a", "f", "g", **{"function-costs": [0.0, cost]}))

    assert sentence == f"learner 'a': the cost of function 'g' is {cost}; it must lie in [0, 1]"


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf])
def test_a_negative_peer_cost_is_rejected(cost: float) -> None:
    sentence = complaint_about(learner("a", peers={"b": cost}), learner("b"))

    assert sentence == f"learner 'a': the cost of peer 'b' is {cost}; it must be 0 or more"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"

    assert sentence_of(path) == f"cannot read {path}: No such file or directory"


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    assert sentence_of(tmp_path) == f"cannot read {tmp_path}: Is a directory"


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_text("[data]\nlabel = label\n", encoding="utf-8")
    sentence = sentence_of(path)

    assert sentence.startswith(f"{path} is not valid TOML: ")
    assert "line 2" in sentence


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_bytes(b'[data]\nlabel = "caf\xe9"\n')

    assert sentence_of(path) == f"{path} is not UTF-8 text"
