"""Options of generated replay configurations: each adds keys and columns to a draft."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

PRESETS = (
    "auto",
    "cos",
    "dcza",
    "share-ucb",
    "discounted",
    "multi-resolution",
    "cos-ce",
    "balance",
    None,  # left out: `auto`, or `cos` where another key implies it
)
PHASES = ("cos", "dcza", "cos-ce", None)  # presets that train, explore and exploit
LAYERS = ("auto", "multi-resolution")
SITES = ("north", "south", "west", "east")
Table = dict[str, Any]
Item = TypeVar("Item")


class Draft:
    """A configuration while options are added to it."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(f"frozen {number}")  # noqa: S311 - repeatable is what counts
        self.preset = PRESETS[number % len(PRESETS)]
        self.rows = 90 + 10 * self.integer(0, 15)
        self.learners = [_learner(self, k) for k in range(self.integer(2, 4))]
        self.labels = [str(self.integer(0, 1)) for _ in range(self.rows)]
        self.columns: dict[str, Sequence[Any]] = {
            "label": self.labels,
            "x": self.shares(3),
            "y": self.shares(2),
        }
        self.data: Table = {"context": ["x", "y"] if self.chance(0.4) else ["x"]}
        self.policy: Table = {} if self.preset is None else {"preset": self.preset}
        self.more: Table = {}  # further tables
        self.options: list[str] = []
        if self.preset not in LAYERS:
            self.policy["slices"] = self.integer(1, 4)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def integer(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.integer(0, len(items) - 1)]

    def shares(self, digits: int, most: float = 1.0) -> list[float]:
        """Return a column of numbers from 0 to `most`."""
        return [round(self._random.random() * most, digits) for _ in range(self.rows)]

    def integers(self, *items: int) -> list[int]:
        """Return a column of these numbers."""
        return [self.pick(items) for _ in range(self.rows)]

    def has(self, *options: str) -> bool:
        """Say whether one of the options has been added."""
        return any(option in self.options for option in options)

    @property
    def names(self) -> list[str]:
        """The names of the learners."""
        return [learner["name"] for learner in self.learners]

    def others(self, learner: Table) -> list[str]:
        """Return the names of the other learners."""
        return [name for name in self.names if name != learner["name"]]

    def arms(self, learner: Table) -> list[str]:
        """Return the names of a learner's arms, as far as they see the data."""
        peers = [] if self.has("ensemble", "links") else learner.get("peers", self.others(learner))
        return [*learner["functions"], *peers]


def _learner(draft: Draft, place: int) -> Table:
    site = SITES[place]
    return {"name": site, "functions": [f"{site}-{k}" for k in range(draft.integer(1, 3))]}


# An option changes a draft; it returns False if it does not go with what is there already.


def _own_stream(draft: Draft) -> bool:
    if draft.has("ensemble"):
        return False
    receivers = [one["name"] for one in draft.learners if one.get("arrivals", True)]
    draft.data["at"] = "site"
    draft.columns["site"] = [draft.pick(receivers) for _ in range(draft.rows)]
    return True


def _hidden_labels(draft: Draft) -> bool:
    draft.data["revealed"] = "seen"
    draft.columns["seen"] = draft.integers(0, 1, 1)
    return True


def _late_labels(draft: Draft) -> bool:
    draft.data["delay"] = "late"
    draft.columns["late"] = draft.integers(0, 0, 1, 2, 15)
    return True


def _missing_labels(draft: Draft) -> bool:
    return _hidden_labels(draft)  # only where a label is hidden may it be empty


def _label_wait(draft: Draft) -> bool:
    draft.policy["label-wait"] = draft.pick([0, 1, 5])
    return _late_labels(draft)


def _pending(draft: Draft) -> bool:
    draft.policy["pending"] = True
    return _late_labels(draft)


def _costs(draft: Draft) -> bool:
    for learner in draft.learners:
        learner["function-costs"] = [draft.pick([0.0, 0.1, 0.25]) for _ in learner["functions"]]
    return True


def _peers(draft: Draft) -> bool:
    if draft.has("links", "random costs", "reward", "view"):
        return False
    for learner in draft.learners:
        peers = [name for name in draft.others(learner) if draft.chance(0.7)]
        learner["peers"] = {name: draft.pick([0.0, 0.05, 0.2]) for name in peers}
    return True


def _only_helps(draft: Draft) -> bool:
    if draft.has("own stream"):
        return False
    draft.learners[-1]["arrivals"] = False
    return True


def _label_probability(draft: Draft) -> bool:
    for learner in draft.learners:
        learner["label-probability"] = draft.pick([0.3, 0.7, 1.0])
    return _seed(draft)


def _seed(draft: Draft) -> bool:
    draft.policy["seed"] = draft.integer(1, 99)
    return True


def _unsupervised(draft: Draft) -> bool:
    draft.learners[draft.integer(0, len(draft.learners) - 1)]["supervised"] = False
    return True


def _serving_costs(draft: Draft) -> bool:
    draft.policy["carry-serving-costs"] = draft.chance(0.8)
    for learner in draft.learners:
        learner["serving-cost"] = draft.pick([0.0, 0.05, 0.15])
    return True


def _reward(draft: Draft) -> bool:
    draft.policy["reward"] = {"accuracy": 0.9, "power": 1.5, "cost": draft.pick([0.5, 2.0])}
    if not draft.has("own contexts", "candidates", "no context"):
        draft.policy["reward"]["context"] = [0.5] * len(draft.data["context"])
    learner = draft.learners[0]
    learner["rewards"] = {draft.pick(draft.arms(learner)): {"accuracy": 0.8}}
    return True


def _random_costs(draft: Draft) -> bool:
    for learner in draft.learners:
        arms = [arm for arm in draft.arms(learner) if draft.chance(0.6)]
        learner["cost-columns"] = {arm: draft.pick(["fee", "toll"]) for arm in arms}
    draft.columns |= {"fee": draft.shares(3, 0.3), "toll": draft.shares(3, 0.1)}
    return True


def _busy_peers(draft: Draft) -> bool:
    draft.columns["busy"] = draft.integers(0, 0, 1, 4)
    for learner in draft.learners:
        learner["answer-delay"] = draft.pick([0, 2, "busy", "busy"])
        if draft.chance(0.7):
            learner["answer-wait"] = draft.pick([0, 1, 3])
    return True


def _own_contexts(draft: Draft) -> bool:
    if draft.has("candidates", "scales", "previous label", "reward", "ensemble", "view"):
        return False
    for learner in draft.learners:
        if draft.chance(0.8):
            learner["context"] = draft.pick([["x"], ["y"], ["y", "x"], []])
    return True


def _candidates(draft: Draft) -> bool:
    if draft.has("own contexts", "scales", "previous label", "reward", "ensemble", "view"):
        return False
    draft.data.pop("context", None)
    draft.data["candidates"] = draft.pick([["x", "y"], ["y", ["x", "y"]], ["x", []]])
    if draft.chance(0.5):
        draft.learners[-1]["candidates"] = ["y", "x"]
    return True


def _view(draft: Draft) -> bool:
    if draft.has("own contexts", "candidates", "scales", "previous label", "no context"):
        return False
    learner = draft.learners[0]
    arms = learner["functions"][:1]
    learner["view"] = [{"columns": ["x"], "arms": arms, "where": {"x": [0.0, 0.5]}}]
    return True


def _scales(draft: Draft) -> bool:
    if draft.has("own contexts", "candidates", "previous label", "reward", "view"):
        return False
    draft.columns |= {
        "bytes": draft.integers(0, 3, 17, 250, 999, 2000),
        "degrees": draft.integers(-9, -3, 0, 12, 25, 31),
        "time": draft.integers(0, 25_200, 43_200, 80_000, 90_000),
    }
    first = draft.pick(
        [
            {"column": "bytes", "scale": "log", "high": 999, "clip": True},
            {"column": "degrees", "scale": "linear", "low": -10, "high": 40},
            {"column": "degrees", "scale": "rank", "sample-rows": 20},
            {"column": "degrees", "scale": "rank", "sample": [-3, 0, 12]},
            {"column": "time", "scale": "hour"},
            {"scale": "slot", "horizon": 1000},
        ]
    )
    draft.data["context"] = [first, "y"] if draft.chance(0.5) else [first]
    return True


def _previous_label(draft: Draft) -> bool:
    if draft.has("own contexts", "candidates", "scales", "reward", "loss", "view", "text"):
        return False
    draft.data["context"] = ["x", {"scale": "previous-label", "classes": [0, 1]}]
    return True


def _no_context(draft: Draft) -> bool:
    if draft.has("candidates", "reward", "previous label", "scales", "view"):
        return False
    del draft.data["context"]
    return True


def _text(draft: Draft) -> bool:
    if draft.has("loss", "previous label"):
        return False
    classes = ["ham", "spam", "größer, als"]
    draft.labels[:] = [draft.pick(classes) for _ in range(draft.rows)]
    return True


def _loss(draft: Draft) -> bool:
    # With these two, 0.1.0 served function -1 once a graded label of a peer had come.
    if draft.preset in ("share-ucb", "balance"):
        return False
    if draft.has("text", "context peers", "ensemble", "previous label"):
        return False
    draft.data["loss"] = {"kind": draft.pick(["squared", "absolute"]), "bound": 4.0}
    draft.labels[:] = [str(value) for value in draft.shares(2, 9.0)]
    return True


def _links(draft: Draft) -> bool:
    if draft.has("peers", "random costs", "reward", "ensemble", "paper", "view"):
        return False
    names = draft.names
    links: list[Table] = [{"between": names[:2], "cost": 0.05}]
    links += [{"from": "south", "to": name, "cost": 0.1} for name in names[2:]]
    links += [{"from": "north", "to": name, "cost": "gone"} for name in names[2:]]
    draft.more["link"] = links
    if draft.chance(0.6):
        draft.more["link-change"] = [
            {"slot": 20, "between": names[:2], "cost": "gone"},
            {"slot": 40, "from": "south", "to": "north", "cost": 0.0},
            *({"slot": 50, "from": "north", "to": name, "cost": 0.02} for name in names[2:]),
        ]
    return True


def _learnt_links(draft: Draft) -> bool:
    if not _links(draft):
        return False
    draft.more.pop("link-change", None)
    draft.policy["relearn-every"] = draft.pick([10, 30])
    draft.more["link"][0] = {"between": draft.names[:2], "cost-column": "line", "guess": 0.02}
    draft.columns["line"] = draft.shares(3, 0.2)
    draft.options.append("links")
    return True


def _ensemble(draft: Draft) -> bool:
    if draft.has("own stream", "loss", "links", "own contexts", "candidates", "context peers"):
        return False
    update = ["gradient", "majority", "hedge", "fixed-share"][draft.rows // 10 % 4]
    draft.more["ensemble"] = {
        "weights": draft.pick(["global", "cell"]),
        "update": update,
        "predict": draft.pick(["vote", "vote" if update == "gradient" else "sample"]),
        "seed": 3,
    }
    return True


def _horizon(draft: Draft) -> bool:
    if draft.has("doubling"):
        return False
    draft.policy["horizon"] = draft.pick([1000, 5000])
    draft.policy.pop("slices", None)
    return True


def _most_cells(draft: Draft) -> bool:
    draft.policy |= {"max-level": 30, "max-cells": 4000}
    return True


def _check_claims(draft: Draft) -> bool:
    draft.policy["check-claims"] = True
    return True


def _hidden_from_first(draft: Draft) -> bool:
    draft.policy["hidden-from"] = draft.pick(["first", "all"])
    return _hidden_labels(draft)


def _first_asks(draft: Draft) -> bool:
    if draft.has("random costs", "reward", "links", "learnt links"):
        return False
    draft.policy["askers"] = "first"
    return True


def _paper(draft: Draft) -> bool:
    if draft.has("random costs", "reward", "links", "learnt links"):
        return False
    draft.policy["mode"] = "paper"
    if draft.chance(0.5):
        draft.policy["askers"] = "all"
    return True


def _parameters(draft: Draft) -> bool:
    draft.policy["parameters"] = draft.pick(["z1", "z2", "theorem"])
    draft.policy["alpha"] = draft.pick([0.5, 0.8])
    draft.policy["most-functions"] = 2
    return True


def _thresholds(draft: Draft) -> bool:
    for key in ("explore", "train", "explore-peers"):
        draft.policy[key] = {"scale": draft.pick([0.0, 0.2, 0.6]), "power": draft.pick([0.0, 0.2])}
    return True


def _reading(draft: Draft) -> bool:
    draft.policy |= {
        "order": draft.pick(["own-train-peers", "train-own-peers"]),
        "helper": draft.pick(["explore-first", "greedy"]),
        "count": draft.pick(["arrivals", "labelled", "uses"]),
    }
    return True


def _random_ties(draft: Draft) -> bool:
    draft.policy["ties"] = "random"
    return _seed(draft)


def _forget(draft: Draft) -> bool:
    draft.policy["forget"] = draft.pick([{"window": 8}, {"window": 40}, {"discount": 0.9}])
    return True


def _context_peers(draft: Draft) -> bool:
    if draft.has("loss", "ensemble"):
        return False
    for learner in draft.learners[: draft.integer(1, 2)]:
        learner["context-peers"] = {draft.pick(draft.others(learner)): draft.pick([0.0, 0.02])}
    draft.policy["history"] = draft.pick(["labels", "asked"])
    return True


def _doubling(draft: Draft) -> bool:
    if draft.has("horizon", "scales", "ensemble"):
        return False
    draft.policy |= {"horizon": "doubling", "first-epoch": draft.pick([16, 32])}
    draft.policy["alpha"] = draft.pick(["estimated", 1.0])
    draft.policy.pop("slices", None)
    return True


def _splits(draft: Draft) -> bool:
    draft.policy["split-scale"] = draft.pick([1.0, 4.0])
    draft.policy["split-power"] = draft.pick([1.0, 2.0])
    draft.policy["level-offset"] = draft.integer(0, 1)
    return True


def _inherit(draft: Draft) -> bool:
    draft.policy["inherit"] = True
    return _splits(draft)


def _index_scale(draft: Draft) -> bool:
    draft.policy["index-scale"] = draft.pick([0.1, 0.5, 2.0])
    return True


def _alarm(draft: Draft) -> bool:
    draft.policy["alarm"] = draft.pick([0.0, 1.0, 3.0])
    return True


def _finest_level(draft: Draft) -> bool:
    draft.policy.pop("slices", None)
    draft.policy["finest-level"] = draft.integer(1, 5)
    return True


def _lipschitz(draft: Draft) -> bool:
    draft.policy["lipschitz"] = draft.pick([0.05, 1.0])
    return True


def _slices(draft: Draft) -> bool:
    if draft.has("finest level"):
        return False
    draft.policy["slices"] = draft.integer(2, 5)
    return True


def _discount(draft: Draft) -> bool:
    draft.policy["forget"] = {"discount": draft.pick([0.8, 0.95])}
    return True


Option = Callable[[Draft], bool]
ANY: dict[str, Option] = {
    "own stream": _own_stream,
    "hidden labels": _hidden_labels,
    "late labels": _late_labels,
    "missing labels": _missing_labels,
    "label wait": _label_wait,
    "pending": _pending,
    "costs": _costs,
    "peers": _peers,
    "only helps": _only_helps,
    "label probability": _label_probability,
    "unsupervised": _unsupervised,
    "serving costs": _serving_costs,
    "reward": _reward,
    "random costs": _random_costs,
    "busy peers": _busy_peers,
    "own contexts": _own_contexts,
    "view": _view,
    "scales": _scales,
    "previous label": _previous_label,
    "no context": _no_context,
    "text": _text,
    "loss": _loss,
    "links": _links,
    "learnt links": _learnt_links,
    "ensemble": _ensemble,
    "most cells": _most_cells,
    "check claims": _check_claims,
    "hidden from first": _hidden_from_first,
    "first asks": _first_asks,
}
OF_PHASES: dict[str, Option] = {
    "thresholds": _thresholds,
    "paper": _paper,
    "parameters": _parameters,
    "horizon": _horizon,
    "reading": _reading,
    "random ties": _random_ties,
    "forget": _forget,
    "candidates": _candidates,
    "context peers": _context_peers,
    "doubling": _doubling,
}
OF_PRESET: dict[str | None, dict[str, Option]] = {
    "auto": {
        "index scale": _index_scale,
        "alarm": _alarm,
        "finest level": _finest_level,
        "lipschitz": _lipschitz,
        "slices": _slices,
    },
    "dcza": {"splits": _splits, "inherit": _inherit},
    "share-ucb": {"index scale": _index_scale, "alarm": _alarm, "horizon": _horizon},
    "discounted": {"index scale": _index_scale, "discount": _discount},
    "multi-resolution": {
        "index scale": _index_scale,
        "alarm": _alarm,
        "finest level": _finest_level,
        "lipschitz": _lipschitz,
        "slices": _slices,
    },
    "cos-ce": {"lipschitz": _lipschitz},
    "balance": {"index scale": _index_scale},
}
