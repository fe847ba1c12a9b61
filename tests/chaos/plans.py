"""What a seed stands for: a network, the faults it must bear, and what its clients do.

Every seed picks some of the faults and how bad they are, so that rare pairs come up too.
"""

import random
from typing import Any

import msgspec

from chaos.cases import MOST_ROWS
from covey.node.functions import PEER_TICKETS, Limits
from covey.server.config import PeerConfig
from covey.site.trust import Trust
from support.message_links import KEY
from support.presets import fitting
from support.virtual import Weather

NEVER = 10_000  # slots: labels are waited for as long as a seed lasts
LIES = ("low", "low", "high", "garbage", "silent", "poison", "flood", "scribble")
# Some more than once: a seed must go on to stand for the same network.
PRESETS = (
    *("auto", "share-ucb", "cos", "cos", "dcza", "auto", "auto", "share-ucb", "cos", "dcza"),
)
TRUSTS: tuple[tuple[Trust, ...], ...] = (
    ("isolated",),
    ("full",),
    ("earned", "isolated"),
    ("earned", "isolated", "isolated", "full"),
    ("earned", "full"),
)


class Storm(Weather):
    """Weather in which, besides, disks fill up and power goes; zero: not in this seed."""

    tail: float = 0.0  # of messages, that take up to a minute
    crash_at_send: float = 0.0
    power: float = 0.0  # at a commit: the power goes in the midst of it, or right after
    restarts_per_h: float = 0.0  # of any node, by kill -9 or without power
    cuts_per_h: float = 0.0  # of links, for a minute or so, in one direction or in both
    full_per_h: float = 0.0  # disks, for half a minute or so
    sync_failure: float = 0.0  # at a commit
    broken: float = 0.0  # functions that raise
    disconnect: float = 0.0  # clients and peers that do not wait for the answer
    damage: float = 0.0  # messages and responses that are truncated or changed
    crossed: float = 0.0  # messages that are lost, and get the response to another one
    pauses_per_h: float = 0.0  # of any node, which stops for a while and then goes on
    hellos_per_h: float = 0.0


class Client(msgspec.Struct, frozen=True):
    """One client of a site: its name there, and how it behaves."""

    site: str
    source: str
    rounds: int
    pause_s: float  # mean, between requests
    label_s: float  # mean, until its label is there
    rows: int = 1  # of a request, at most


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a seed decides before anything runs."""

    seed: int
    config: dict[str, Any]
    accuracy: dict[str, float]  # of functions
    liars: dict[str, str]  # site -> how it lies
    storm: Storm
    clients: list[Client]
    limits: Limits
    peer_tickets: int
    tables: dict[str, dict[str, PeerConfig]]  # [[peer]]: at whom, of whom
    trained: frozenset[str]  # functions that can be trained
    rates: dict[str, float]  # of the sites' clocks

    @property
    def names(self) -> list[str]:
        """The sites."""
        return [learner["name"] for learner in self.config["learner"]]

    @property
    def trust(self) -> dict[str, dict[str, Trust]]:
        """How labels count: at whom, and of whom."""
        return {
            site: {name: one.trust for name, one in table.items()}
            for site, table in self.tables.items()
        }

    @property
    def unsupervised(self) -> set[str]:
        """The sites that take no labels."""
        learners = self.config["learner"]
        return {learner["name"] for learner in learners if not learner.get("supervised", True)}

    @property
    def wait(self) -> int:
        """For how many slots labels are accepted."""
        return int(self.config["policy"]["label-wait"])


def plan(seed: int) -> Plan:
    """Return what seed number `seed` stands for."""
    chance = random.Random(f"plan {seed}")  # noqa: S311 - a seeded world
    names = [f"site{k}" for k in range(chance.choice((3, 3, 4, 5, 7)))]
    config = {"policy": _policy(chance), "learner": _learners(chance, names)}
    if config["policy"]["preset"] in ("cos", "dcza") and chance.random() < 0.25:
        _show_cells_only(chance, config["learner"])
    if chance.random() < 0.2:
        chance.choice(config["learner"])["supervised"] = False
    liars = {name: chance.choice(LIES) for name in names if chance.random() < 0.15}
    functions = [name for learner in config["learner"] for name in learner["functions"]]
    return Plan(
        seed=seed,
        config=config,
        accuracy={name: chance.uniform(0.4, 1.0) for name in functions},
        liars=liars if len(liars) < len(names) else {},
        storm=_storm(chance),
        clients=[_client(chance, name) for name in names for _ in range(chance.choice((1, 2)))],
        limits=(limits := _limits(chance, config["policy"]["label-wait"]))[0],
        peer_tickets=limits[1],
        tables=_tables(chance, config["learner"]),
        trained=_some(chance, functions) if chance.random() < 0.3 else frozenset(),
        rates={name: chance.uniform(0.9, 1.1) for name in names},
    )


def _policy(chance: random.Random) -> dict[str, Any]:
    policy: dict[str, Any] = {
        "preset": chance.choice(PRESETS),
        "slices": chance.choice((1, 2, 3)),
        "label-wait": chance.choice((NEVER, NEVER, 40, 15)),
    }
    if policy["preset"] in ("cos", "dcza"):
        policy["reading"] = chance.choice(("spec", "paper"))
        policy["pending"] = chance.random() < 0.5
        policy["split-power"] = chance.choice((2.0, 4.0))
    return fitting(policy)


def _learners(chance: random.Random, names: list[str]) -> list[dict[str, Any]]:
    near = chance.choice((_all, _line, _star))
    return [
        {
            "name": name,
            "functions": [f"f{k}-{j}" for j in range(chance.choice((1, 1, 2)))],
            "peers": {names[other]: 0.05 for other in near(k, len(names))},
        }
        for k, name in enumerate(names)
    ]


def _all(k: int, count: int) -> list[int]:
    return [other for other in range(count) if other != k]


def _line(k: int, count: int) -> list[int]:
    return [other for other in (k - 1, k + 1) if 0 <= other < count]


def _star(k: int, count: int) -> list[int]:
    return [0] if k else list(range(1, count))


def _show_cells_only(chance: random.Random, learners: list[dict[str, Any]]) -> None:
    for learner in learners:
        hidden = {peer: price for peer, price in learner["peers"].items() if chance.random() < 0.5}
        learner["context-peers"] = hidden
        learner["peers"] = {a: b for a, b in learner["peers"].items() if a not in hidden}


def _some(chance: random.Random, names: list[str]) -> frozenset[str]:
    return frozenset(name for name in names if chance.random() < 0.5)


def _tables(
    chance: random.Random, learners: list[dict[str, Any]]
) -> dict[str, dict[str, PeerConfig]]:
    trusts = chance.choice(TRUSTS)
    return {
        site["name"]: {
            other["name"]: _table(chance, site, other, chance.choice(trusts))
            for other in learners
            if other is not site
        }
        for site in learners
    }


def _table(
    chance: random.Random, site: dict[str, Any], other: dict[str, Any], trust: Trust
) -> PeerConfig:
    """Return what a site says of another one: what it needs, and sometimes more or less."""
    name, by_context = other["name"], site["name"] in other.get("context-peers", {})
    is_asked = by_context or site["name"] in other["peers"]
    may_ask = chance.random() < (0.9 if is_asked else 0.5)
    is_shown_cells = name in site.get("context-peers", {})
    return PeerConfig(
        name=name,
        key=KEY,
        share="data" if name in site["peers"] else "context" if is_shown_cells else "none",
        trust=trust,
        may_ask=may_ask,
        asks_by_context=by_context and may_ask,
        rate_per_s=chance.choice((1_000.0, 1_000.0, 5.0)),
        in_flight=chance.choice((8, 8, 2)),
    )


def _storm(chance: random.Random) -> Storm:
    def some(low: float, high: float) -> float:
        """Return a rate of a fault, or zero in half of the seeds."""
        return float(low * (high / low) ** chance.random()) if chance.random() < 0.5 else 0.0

    return Storm(
        delay_s=chance.choice((0.005, 0.05, 0.2)),
        commit_s=chance.choice((0.001, 0.005, 0.005, 0.3)),
        loss=some(0.01, 0.2),
        repeats=some(0.02, 0.3),
        tail=some(0.01, 0.1),
        crash=some(0.002, 0.03),
        crash_at_send=some(0.002, 0.02),
        power=some(0.002, 0.03),
        restarts_per_h=some(5, 60),
        cuts_per_h=some(20, 200),
        full_per_h=some(2, 20),
        sync_failure=some(0.001, 0.01),
        broken=some(0.01, 0.1),
        disconnect=some(0.01, 0.1),
        damage=some(0.01, 0.1),
        crossed=some(0.01, 0.1),
        pauses_per_h=some(20, 200),
        hellos_per_h=some(60, 600),
    )


def _client(chance: random.Random, site: str) -> Client:
    return Client(
        site,
        chance.choice(("", "", "client/ann", "client/bob")),
        chance.randrange(12, 36),
        pause_s=chance.choice((0.2, 3.0, 10.0)),
        label_s=chance.choice((0.1, 5.0, 60.0)),
        rows=chance.choice((1, 1, MOST_ROWS)),
    )


def _limits(chance: random.Random, wait: int) -> tuple[Limits, int]:
    """Return the limits of all sites, and how many rows of a peer they hold."""
    if chance.random() < 0.5:
        return Limits(), PEER_TICKETS
    tickets = Limits().tickets if wait == NEVER else wait + 20
    return Limits(tickets=tickets), chance.choice((15, 40))
