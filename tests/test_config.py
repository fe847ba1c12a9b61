"""Configuration: sites and their arms from TOML or a mapping, and every error message."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from covey import config
from covey.bandit.policies import DCZA, Auto
from covey.config import LearnerSpec
from covey.errors import ConfigError

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
        LearnerSpec("south", ("tree",), (), (0.0,), receives=False),
    )


def test_one_learner_is_enough() -> None:
    setup = config.load({"learner": [learner("north", "nb")]})

    assert setup.sites == (LearnerSpec("north", ("nb",), (), (0.0,), receives=True),)
    assert (setup.data.label, setup.context.dimension) == ("label", 0)
    assert setup.settings == Auto()


def test_a_learner_without_peers_asks_nobody() -> None:
    sites = sites_of(learner("a"), learner("b", peers={}), learner("c"))

    assert [(site.peers, site.costs) for site in sites] == [((), (0.0,))] * 3


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
        ({"preset": "cos", "reading": "spec"}, [(1, 2), (0, 2), (0, 1)]),
        ({"preset": "cos", "reading": "paper"}, [(1, 2), (), ()]),
    ],
)
def test_by_the_papers_reading_only_the_first_asks(
    policy: dict[str, Any], peers: list[Any]
) -> None:
    names = ("a", "b", "c")
    every = [learner(name, peers={peer: 0.0 for peer in names if peer != name}) for name in names]
    sites = sites_of(*every, **policy)

    assert [site.peers for site in sites] == peers


def test_a_learner_without_peers_keeps_its_functions_and_costs() -> None:
    second = learner("b", "f", "g", **{"function-costs": [0.1, 0.2]})
    sites = sites_of(learner("a"), second, preset="cos", reading="paper")

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
