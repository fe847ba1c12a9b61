"""A policy of one's own decides wherever covey does, or gives a sentence."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import settings_from
from covey.errors import ConfigError, PolicyError
from covey.simulation import scenario
from support.own_policies import CellUCB, EpsilonGreedy

OWN = "support.own_policies"
SLOTS = 400


class Broken(covey.CustomPolicy):
    """Returns or raises what it is told."""

    def __init__(self, functions: int, peers: int, *, answer: Any = None) -> None:
        super().__init__(functions, peers)
        self._answer = answer

    def choose(self, cell: covey.CellState) -> Any:
        """Return the answer."""
        return 1 // 0 if self._answer is None else self._answer


def network_of(preset: Any, **policy: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "slices": 2, **policy},
        "learner": [{"name": "one", "functions": ["a", "b"]}],
    }


def stream(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, SLOTS)
    right = rng.random((2, SLOTS)) < np.array([[0.9], [0.6]])
    return {
        "labels": labels,
        "predictions": np.where(right, labels, 1 - labels),
        "contexts": rng.random((SLOTS, 1)),
    }


def ucb_by_hand(played: dict[str, Any], scale: float) -> list[str]:
    """Return what UCB1 per half of the unit interval chooses."""
    counts: dict[tuple[int, int], list[int]] = {}
    chosen = []
    for slot, x in enumerate(played["contexts"][:, 0], 1):
        values = []
        for arm in (0, 1):
            tried, right = counts.get((int(x * 2), arm), [0, 0])
            bound = math.sqrt(scale * math.log(slot + 1) / tried) if tried else math.inf
            values.append(right / tried + bound if tried else bound)
        arm = values.index(max(values))
        one = counts.setdefault((int(x * 2), arm), [0, 0])
        one[0] += 1
        one[1] += int(played["predictions"][arm, slot - 1] == played["labels"][slot - 1])
        chosen.append("ab"[arm])
    return chosen


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_replay_decides_as_the_policy_does_by_hand(scale: float) -> None:
    config = network_of(f"{OWN}:CellUCB", options={"scale": scale})

    arms = covey.replay(config, **stream()).columns()["arm"]

    assert list(arms) == ucb_by_hand(stream(), scale)
    assert len(set(arms)) == 2


def test_a_class_and_its_name_are_the_same_policy() -> None:
    by_class = covey.replay(network_of(EpsilonGreedy), **stream())
    by_name = covey.replay(network_of(f"{OWN}:EpsilonGreedy"), **stream())

    assert by_class.columns() == by_name.columns()


def test_the_seed_changes_random_choices_and_nothing_else_does() -> None:
    first = covey.replay(network_of(EpsilonGreedy, seed=1), **stream()).columns()
    again = covey.replay(network_of(EpsilonGreedy, seed=1), **stream()).columns()
    other = covey.replay(network_of(EpsilonGreedy, seed=2), **stream()).columns()

    assert first == again
    assert first["arm"] != other["arm"]


def test_a_class_that_cannot_be_imported_works_in_this_process() -> None:
    class Second(covey.CustomPolicy):
        def choose(self, cell: covey.CellState) -> int:
            return 1

    arms = covey.replay(network_of(Second), **stream()).columns()["arm"]

    assert set(arms) == {"b"}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "raised ZeroDivisionError in choose"),
        ("a", "returned 'a'; return the number of an arm"),
        (2, "returned 2; it must be 0 to 1"),
        (-1, "returned -1; it must be 0 to 1"),
    ],
)
def test_a_policy_that_fails_gives_a_sentence_and_changes_nothing(
    answer: Any, sentence: str
) -> None:
    config = network_of(Broken, options={"answer": answer})
    with pytest.raises(PolicyError, match=sentence):
        covey.replay(config, **stream())
    site = covey.Network(config, functions={"a": abs, "b": abs}, dimension=1)["one"]
    with pytest.raises(PolicyError, match=sentence):
        site.predict(1, (0.5,))

    assert [sum(counters[1:]) for _, counters in site.learner.snapshot().cells] == [0]
    assert site.learner.slot == 0


def test_a_peer_that_is_not_available_must_not_be_chosen() -> None:
    config = network_of(Broken, options={"answer": 2})
    config["learner"] = [
        {"name": "one", "functions": ["a", "b"], "peers": {"two": 0.1}},
        {"name": "two", "functions": ["c"]},
    ]
    network = covey.Network(config, functions=dict.fromkeys("abc", abs), dimension=1)
    assert network["one"].predict(1, (0.5,)).arm == "two"
    network.reprice("one", "two", None)

    with pytest.raises(PolicyError, match="is not available now"):
        network["one"].predict(1, (0.5,))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"preset": "no_such_module:Policy"}, "cannot be imported"),
        ({"preset": f"{OWN}:NoSuchPolicy"}, "cannot be imported"),
        ({"preset": "math:sqrt"}, "has no methods choose and serve"),
        ({"preset": f"{OWN}:CellUCB", "options": {"size": 1}}, "raised TypeError"),
        ({"preset": f"{OWN}:CellUCB", "alarm": 3.0}, "does not support alarm"),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused_with_a_sentence(
    policy: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settings_from(policy)


def test_simulations_compare_it_with_others_in_one_and_two_processes(tmp_path: Path) -> None:
    def runs(workers: int) -> Any:
        loaded = scenario.load(
            {
                "scenario": {"horizon-slots": 2_000, "seeds": 2, "workers": workers},
                "environment": [{"name": "calm", "case": "C4"}],
                "policy": [
                    {"name": "mine", "preset": CellUCB, "slices": 4},
                    {"name": "CoS", "preset": "cos", "slices": 4},
                ],
            }
        )
        found = covey.simulate(loaded, tmp_path / str(workers))
        regrets = {
            (run.policy, run.seed): sum(one[-1] for one in run.regret.values()) for run in found
        }
        return loaded, regrets

    loaded, here = runs(1)

    assert here == runs(2)[1]
    assert {policy for policy, _ in here} == {"mine", "CoS"}
    assert all(regret > 0 for regret in here.values())
    assert loaded.policies["mine"].preset == f"{OWN}:CellUCB"


def test_a_replay_by_command_finds_a_module_beside_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "second_arm.py").write_text(
        "import covey\n\nclass Second(covey.CustomPolicy):\n"
        "    def choose(self, cell):\n        return 1\n"
    )
    (tmp_path / "two.toml").write_text(
        '[data]\nlabel = "truth"\n[[data.context]]\ncolumn = "x"\n[policy]\n'
        'preset = "second_arm:Second"\n[[learner]]\nname = "one"\nfunctions = ["a", "b"]\n'
    )
    rows = [f"{k % 7 / 7},{k % 2},0,1" for k in range(50)]
    (tmp_path / "log.csv").write_text("\n".join(["x,truth,a,b", *rows]) + "\n")
    command = [sys.executable, "-m", "covey", "replay", "log.csv", "--config", "two.toml"]

    done = subprocess.run(
        [*command, "--trace", "trace.csv"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert {line.split(",")[4] for line in (tmp_path / "trace.csv").read_text().split()[1:]} == {
        "b"
    }
