"""Four doors: what a configuration decides in a replay, a network, nodes and a simulation.

A network says before each decision what it will be, and is saved, pickled and copied on the way;
nodes are restarted. None of this may change a decision.
"""

import copy
import hashlib
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import covey
from covey.config import load
from covey.node.node import Question
from covey.replay.outcome import Account
from covey.simulation import scenario
from covey.simulation.run import play
from covey.site.ensemble import SiteEnsemble
from golden.configurations import SLOTS, Golden, Table, log_of
from support import virtual
from support.effort import effort

HORIZON = 300  # slots of a simulation
RESTARTED = 20  # a site restarts when so many batches have arrived
REPLACED = 40  # a network continues as a copy
PEEKED = effort(7, long=7, plain=50)  # and says what it will decide
DECIDED = attrgetter("phase", "arm", "function", "price")
Row = tuple[Any, ...]


def record(golden: Golden, door: str) -> Table:
    """Return what is kept of a configuration behind a door."""
    through = {"replay": _replayed, "network": _networked, "node": _served, "simulate": _simulated}
    made: Table = _rounded(through[door](golden))
    return made


def replayed(golden: Golden) -> Any:
    """Return the result of a replay."""
    return covey.replay(golden.config, log_of(golden.config))


def rows_of(result: Any) -> list[Row]:
    """Return the decisions of a replay: slot, site, phase, arm, function and price of each."""
    columns = result.trace.columns()
    names = ("slot", "learner", "phase", "arm", "function", "cost")
    return list(zip(*(columns[name] for name in names), strict=True))


def _replayed(golden: Golden) -> Table:
    result = replayed(golden)
    columns, outcome = result.trace.columns(), result.outcome
    more = ("cell", "prediction", "correct", "alarm")
    learners = result.summary().learners
    kept = _kept(rows_of(result))
    kept["trace"] = _hash([columns[name] for name in more])
    kept["error %"] = {name: one.error_percent for name, one in learners.items()}
    kept["alone %"] = {name: one.alone_percent for name, one in learners.items()}
    kept["paid"] = {name: one.cost_total for name, one in learners.items()}
    kept |= _utilities(outcome.accounts)
    if outcome.ensemble is not None:
        kept["ensemble errors"] = outcome.ensemble.numbers.errors
        kept["ensemble weights"] = _hash(outcome.ensemble.numbers.weights)
    return kept


class Batch(NamedTuple):
    """Rows that arrive at a site together: one, or those of a batch."""

    site: str
    rows: list[int]
    slots: list[int]

    @property
    def id(self) -> str:
        return f"{self.site}/{self.rows[0]}"


class Stream:
    """The log of a configuration as it arrives: rows at their sites, labels when they come."""

    def __init__(self, golden: Golden) -> None:
        self.config, self.columns = golden.config, log_of(golden.config)
        self.records = [dict(zip(self.columns, row, strict=True)) for row in self._lines()]
        self.truths = self._column("label", "label")
        self.functions = {f"f{k}": Answer(f"f{k}") for k in range(6)}
        self.is_batched = "batch" in self.config["data"]
        self.is_one_slot = golden.is_one_slot
        self.is_relayed = any(learner.get("relay") for learner in self.config["learner"])

    def _lines(self) -> Iterator[Row]:
        return zip(*self.columns.values(), strict=True)

    def _column(self, key: str, default: Any) -> list[Any]:
        """Return the column that a key of [data] names."""
        name = self.config["data"].get(key, default)
        return self.columns[name] if isinstance(name, str) else [name] * SLOTS

    def arrivals(self) -> Iterator[Batch]:
        """Yield what arrives, in order."""
        if not self.is_batched:
            for row in range(SLOTS):
                yield from (Batch(site, [row], [row + 1]) for site in self._receivers(row))
            return
        numbers = self._column("batch", None)
        for number in dict.fromkeys(numbers):
            rows = [row for row in range(SLOTS) if numbers[row] == number]
            slots = [number + 1 if self.is_one_slot else row + 1 for row in rows]
            yield Batch(*self._receivers(rows[0]), rows, slots)

    def _receivers(self, row: int) -> list[str]:
        at = self._column("at", None)[row]
        return [one["name"] for one in self.config["learner"]] if at is None else [at]

    def labelled_after(self, batch: Batch) -> Iterator[Batch]:
        """Yield what gets its labels when a batch has been answered."""
        row = batch.rows[-1]
        if self.is_batched:
            yield batch
        elif batch.site == self._receivers(row)[-1]:  # the slot ends
            late, seen = self._column("delay", 0), self._column("revealed", 1)
            due = [k for k in range(row + 1) if k + late[k] == row and seen[k]]
            for k in sorted(due, key=lambda k: k != row):  # its own labels first
                yield from (Batch(site, [k], [k + 1]) for site in self._receivers(k))

    def truth_of(self, batch: Batch) -> list[Any]:
        """Return the labels of rows; none if their site gets no labels."""
        (own,) = (one for one in self.config["learner"] if one["name"] == batch.site)
        return [self.truths[row] for row in batch.rows] if own.get("supervised", True) else []

    def cost(self, batch: Batch, arm: str) -> Any:
        """Return the costs that are seen with the label of a row."""
        links = [link.get("cost-column") for link in self.config.get("link", ())]
        if any(links):
            return {name: self.columns[name][batch.rows[0]] for name in links if name}
        (own,) = (one for one in self.config["learner"] if one["name"] == batch.site)
        column = own.get("cost-columns", {}).get(arm)
        return None if column is None else self.columns[column][batch.rows[0]]

    def points(self) -> dict[str, Any]:
        """Return the contexts of all rows as each site sees them."""
        setup, optional = load(self.config), ("at", "revealed", "delay")
        given = {key: self._column(key, None) for key in optional if key in self.config["data"]}
        given["labels"] = self.truths
        if self.is_one_slot:
            given["slots"] = np.array(self._column("batch", None)) + 1
        return {
            site.name: setup.contexts_of(place).extract(self.columns, first_slot=1, **given)
            for place, site in enumerate(setup.sites)
        }


class Answer:
    """A function that finds its answer in the record; it can be pickled, and named in a file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Table) -> Any:
        return record.get(self.name, 0)  # a view may hide it


def _networked(golden: Golden) -> Table:
    stream = Stream(golden)
    network = covey.Network(golden.config, functions=stream.functions)
    if "ensemble" in golden.config:
        return _voted(stream, network)
    decisions, answers, late = list[Row](), dict[str, list[Any]](), 0
    for count, batch in enumerate(stream.arrivals(), 1):
        network = _replaced(network, count)
        site, records = network[batch.site], [stream.records[row] for row in batch.rows]
        slot = batch.slots[0]
        if stream.is_batched:
            made = list(site.predict_batch(records, slot=slot))
        else:
            told = site.peek(records[0], slot=slot) if count % PEEKED == 0 else None
            made = [site.predict(records[0], slot=slot)]
            assert told is None or DECIDED(told) == DECIDED(made[0])
        answers[batch.id] = made
        decisions += [
            (slot, batch.site, *DECIDED(answer))
            for slot, answer in zip(batch.slots, made, strict=True)
        ]
        for due in stream.labelled_after(batch):
            asked, labels = answers[due.id], stream.truth_of(due)
            try:
                if stream.is_batched:
                    network[due.site].learn_batch([one.ticket for one in asked], labels)
                elif labels:
                    cost = stream.cost(due, asked[0].arm)
                    network[due.site].learn(asked[0].ticket, labels[0], cost=cost)
            except covey.TicketError:
                late += 1
    kept = {**_kept(decisions), "late": late}
    return kept | _utilities(network.accounts)


def _replaced(network: covey.Network, count: int) -> covey.Network:
    """Return what continues as the network does: now and then another one."""
    if count % REPLACED:
        return network
    way = count // REPLACED % 3
    if way == 0:
        return copy.deepcopy(network)
    if way == 1:
        return pickle.loads(pickle.dumps(network))  # type: ignore[no-any-return]  # noqa: S301
    given = network._given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.covey"
        network.save(path)
        return covey.Network.load(path, functions=given.functions, config=given.config)


def _voted(stream: Stream, network: covey.Network) -> Table:
    votes = []
    for row, given in enumerate(stream.records):
        network = _replaced(network, row + 1)
        vote = network.ensemble.predict(given, slot=row + 1)
        network.ensemble.learn(vote.ticket, stream.truths[row])
        votes.append(vote.label)
    return _kept_of_votes(stream, votes)


class World(virtual.World):
    """Nodes; with an `[ensemble]` the first of them answers with the vote of all."""

    def ensemble(self, name: str) -> SiteEnsemble | None:
        if self.setup.ensemble is None or name != self.names[0]:
            return None
        return SiteEnsemble(name, self.names[1:], self.setup.ensemble)


def _served(golden: Golden) -> Table:
    return virtual.run(_in_nodes(golden))


async def _in_nodes(golden: Golden) -> Table:
    stream, decisions, arms, late = Stream(golden), list[Row](), dict[str, str](), 0
    points, voter = stream.points(), "site0" if "ensemble" in golden.config else None
    width = points["site0"].shape[1]
    world = World(golden.config, stream.functions, dimension=width, trust="full")
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    for count, batch in enumerate(stream.arrivals(), 1):
        if voter not in (None, batch.site):
            continue
        if count % RESTARTED == 0:
            world.crash(batch.site)
            world.boot(batch.site)
        request = await world.nodes[batch.site].answer(
            [stream.records[row] for row in batch.rows],
            points[batch.site][batch.rows],
            question=Question("", batch.id),
            slot=batch.slots[0],
        )
        for k, slot in enumerate(batch.slots):
            made, answer = request.group(k), request.answers[k]
            how = (made.phase, made.arm, request.function(k), made.price, answer)
            decisions.append((slot, batch.site, *how))
        arms[batch.id] = decisions[-1][3]
        for due in [batch] if voter else stream.labelled_after(batch):
            late += not await _labelled(world, stream, due, arms)
    for node in world.nodes.values():
        node.stop()
    if voter:
        return _kept_of_votes(stream, [row[-1] for row in decisions])
    return {**_kept([row[:-1] for row in decisions]), "late": late}


async def _labelled(world: virtual.World, stream: Stream, due: Batch, arms: dict[str, str]) -> bool:
    """Send labels, wait until all peers know them, and say whether they came in time."""
    node, labels = world.nodes[due.site], stream.truth_of(due)
    try:
        if stream.is_batched:
            await node.learn_rows(due.id, list(range(len(labels))), labels)
        elif labels:
            await node.learn(due.id, labels[0], cost=stream.cost(due, arms[due.id]))
    except covey.TicketError:
        return False
    while any(one.undelivered for one in world.nodes.values()):  # a relay passes labels on
        for one in world.nodes.values():
            await one.drained()
    return True


def _simulated(golden: Golden) -> Table:
    policy = {"name": "golden", **golden.config["policy"]}
    tables = {"policy": [policy], "environment": [golden.environment]}
    checked = scenario.load({"scenario": {"horizon-slots": HORIZON}, **tables})
    world, settings = checked.environments["golden"], checked.policies["golden"]
    run = play(world, settings, seed=1, horizon=HORIZON, checkpoints=[100, HORIZON])
    more = {"alarms": run.alarms, **_utilities(run.accounts), "ensemble": run.ensemble}
    return {
        "regret": run.regret,
        "error": run.errors,
        "cost": run.cost,
        "phases": run.phases,
        "messages": run.messages,
        **{name: value for name, value in more.items() if value},
    }


def _utilities(accounts: Mapping[str, Account]) -> Table:
    """Return the utilities where there are serving costs."""
    if not any(account.serving_cost for account in accounts.values()):
        return {}
    return {"utility": {name: account.utility for name, account in accounts.items()}}


def _kept(decisions: list[Row]) -> Table:
    """Return what is kept of decisions: slot, site, phase, arm, function and price of each."""
    return {
        "decisions": _hash(decisions),
        "phases": dict(sorted(Counter(row[2] for row in decisions).items())),
        "arms": dict(sorted(Counter(f"{row[1]}: {row[3]}" for row in decisions).items())),
    }


def _kept_of_votes(stream: Stream, votes: list[Any]) -> Table:
    errors = sum(vote != truth for vote, truth in zip(votes, stream.truths, strict=True))
    return {"votes": _hash(votes), "ensemble errors": errors}


def _hash(rows: Any) -> str:
    text = json.dumps(_rounded(rows), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _rounded(value: Any) -> Any:
    """Return the same with floats of nine digits, about which all machines agree."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
