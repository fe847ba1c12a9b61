"""A policy of one's own decides wherever covey does, or gives a sentence."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import ConfigError, PolicyError
from support import two_sites, virtual
from support.own_policies import EpsilonGreedy, LinUCB
from support.snapshots import snapshot_of

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


class Witness(covey.CustomPolicy):
    """Takes all arms in turn, and notes what it sees and learns."""

    asks_peers = True
    seen: list[Any]
    learnt: list[Any]

    def choose(self, cell: covey.CellState) -> int:
        """Note what an own instance shows."""
        self.seen.append((self.functions, cell.slot, cell.context, cell.reports))
        return cell.slot % (self.functions + self.peers)

    def serve(self, cell: covey.CellState) -> int:
        """Note what a peer's instance shows."""
        self.seen.append(("serve", cell.context))
        return 0

    def learn(self, context: tuple[float, ...], arm: int, gain: float) -> None:
        """Note a label."""
        self.learnt.append((self.functions, context, arm, gain))


class Forgetful(LinUCB):
    """Learns, but has no state."""

    state = restore = None  # type: ignore[assignment]


class Failing(covey.CustomPolicy):
    """Fails to learn, and to say what it has learnt."""

    def choose(self, cell: covey.CellState) -> int:
        """Return the first arm."""
        return 0

    def learn(self, context: tuple[float, ...], arm: int, gain: float) -> None:
        """Raise."""
        raise ValueError("no more")

    def state(self) -> Any:
        """Return what no JSON has."""
        return object()

    def restore(self, value: Any) -> None:
        """Restore nothing."""


def network_of(preset: Any, **policy: Any) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "slices": 2, **policy},
        "learner": [{"name": "one", "functions": ["a", "b"]}],
    }


def stream() -> dict[str, Any]:
    return two_sites.stream(SLOTS, 0.9, 0.6)


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

    assert [sum(counters[1:]) for _, counters in snapshot_of(site.learner).cells] == [0]
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


PAIR = [
    {"name": "one", "functions": ["a", "b"], "peers": {"two": 0.1}},
    {"name": "two", "functions": ["c"], "arrivals": False},
]


@pytest.mark.parametrize("delay", [None, np.arange(12)[::-1] % 5])
def test_a_policy_sees_contexts_and_reports_and_learns_every_label_with_its_context(
    delay: Any,
) -> None:
    class Noting(Witness):
        seen, learnt = list[Any](), list[Any]()

    contexts = np.arange(12)[:, None] / 12
    labels = np.ones(12, int)
    trace = covey.replay(
        {**network_of(Noting), "learner": PAIR},
        labels=labels,
        predictions=np.array([labels, labels, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]]),
        contexts=contexts,
        delay=delay,
    )
    own = [entry for entry in Noting.seen if entry[0] == 2]
    served = [(0, (0.25 if x < 0.5 else 0.75,)) for (x,) in contexts[1::3]]
    late = np.zeros(12, int) if delay is None else delay
    arrived = [k for k in range(12) if k + late[k] < 12]

    assert [entry[1:3] for entry in own] == [(k + 1, (k / 12,)) for k in range(12)]
    assert [("serve", context) for _, context in served] == [
        entry for entry in Noting.seen if entry[0] == "serve"
    ]
    assert sorted(entry[1:] for entry in Noting.learnt if entry[0] == 2) == [
        ((k / 12,), (k + 1) % 3, float(trace.correct[k])) for k in arrived
    ]
    assert [entry[1] for entry in Noting.learnt if entry[0] == 1 and delay is None] == [
        context for _, context in served if delay is None
    ]
    if delay is None:  # peers report before each decision: one answer is right, then one is wrong
        reports = [entry[3] for entry in own]
        assert reports[3:6] == [[(4, 1, 1.0)], [(5, 1, 1.0)], [(6, 2, 0.5)]]


def test_what_a_policy_learns_is_copied_and_stored_or_it_has_no_state_and_says_so(
    tmp_path: Path,
) -> None:
    functions: dict[str, Any] = {"a": lambda _: 1, "b": lambda _: 0}

    def taught(policy: Any) -> Any:
        network = covey.Network(network_of(policy), functions=functions, dimension=1)
        for k in range(60):
            made = network["one"].predict(k, (k % 6 / 6,))
            network["one"].learn(made.ticket, int(k % 6 < 3))
        return network

    learnt = taught(LinUCB)
    shown = [learnt["one"].peek(1, (x,)).label for x in (0.0, 0.9)]
    learnt.save(tmp_path / "learnt")
    again = covey.Network.load(tmp_path / "learnt", functions=functions, config=network_of(LinUCB))

    assert shown == [1, 0]
    assert [again["one"].predict(1, (x,)).label for x in (0.0, 0.9)] == shown
    with pytest.raises(PolicyError, match="state and restore"):
        taught(Forgetful).save(tmp_path / "forgetful")
    with pytest.raises(PolicyError, match="state and restore"):
        virtual.World(network_of(Forgetful), functions, dimension=1)


def test_what_fails_in_learn_or_state_is_a_sentence_and_a_label_can_come_again() -> None:
    config = network_of(Failing, pending=True)
    network = covey.Network(config, functions={"a": abs, "b": abs}, dimension=1)
    made = network["one"].predict(1, (0.5,))
    for _ in range(2):
        with pytest.raises(PolicyError, match="raised ValueError in learn"):
            network["one"].learn(made.ticket, 1)

    table = network["one"].learner.tables[""]
    assert table.saved.pending(0) == [1, 0]
    assert table.record(0, 0) == (0, 0)
    with pytest.raises(PolicyError, match="state returned no JSON value"):
        network["one"].peek(1, (0.5,))
    with pytest.raises(PolicyError, match="raised ValueError in learn"):
        covey.replay(config, **stream())


def test_a_state_needs_both_methods_and_stays_with_its_arms() -> None:
    class Half(covey.CustomPolicy):
        def state(self) -> int:
            return 1

    with pytest.raises(ConfigError, match="state and restore; add the other"):
        covey.replay(network_of(Half), **stream())
    functions: dict[str, Any] = {"a": abs, "b": abs}
    network = covey.Network(network_of(LinUCB), functions=functions, dimension=1)
    network["one"].observe(1, 1, (0.5,))
    before = network["one"].learner.tables[""].policy.state()
    network.add_function("one", "c", abs)
    after = network["one"].learner.tables[""].policy.state()

    assert len(before) > len(after)
    assert bytes(after[-2:]) == b"[]"
    assert network["one"].observe(1, 1, (0.5,)).arm == "a"
