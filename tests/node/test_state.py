"""The store is always the sum of its labels, and a restart continues where the state was."""

from collections.abc import Awaitable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from covey.bandit.learner import UNKNOWN, Learner
from covey.bandit.partitions import Uniform
from covey.bandit.policies import Policy, policy_from
from covey.errors import ConflictingLabel, FunctionError, LateLabel
from covey.kernel.rules import Cell, Report
from covey.network.local_site import run
from covey.site.handler import Handler
from covey.site.requests import AskRow, Assistance, CellLine, Request
from covey.site.state import loaded_state
from covey.site.trust import Trust
from covey.store.fingerprint import schema_fingerprint
from covey.store.store import Store
from covey.types import Context
from support.snapshots import snapshot_of
from support.tables import rows_of

POLICIES: dict[str, dict[str, Any]] = {
    "grid": {"preset": "cos", "slices": 2, "label-wait": 8},
    "pending": {"preset": "share-ucb", "slices": 2, "label-wait": 8, "pending": True},
    "zooming": {"preset": "dcza", "split-power": 1.0, "label-wait": 8},
    "inheriting": {"preset": "dcza", "split-power": 1.0, "label-wait": 8, "inherit": True},
    "window": {"preset": "cos", "slices": 2, "label-wait": 8, "forget": {"window": 3}},
    "labelled": {"preset": "cos", "slices": 2, "label-wait": 8, "count": "labelled"},
    "auto": {"preset": "auto", "label-wait": 8},
}
ARMS = ("f", "g", "south")


def policy_of(name: str) -> Policy:
    return policy_from(POLICIES[name]).resolve(dimension=1, most_functions=2)


class Site:
    """A state and its handler; every function and every peer answers with the instance.

    The instance None is one that every function fails for.
    """

    def __init__(
        self,
        policy: Policy,
        store: Store,
        trust: Trust = "full",
        *,
        functions: Sequence[str] = ("f", "g"),
        peers: Sequence[str] = ("south",),
    ) -> None:
        learner = Learner(
            "north",
            functions=functions,
            peers=peers,
            costs=[0.0] * len(functions) + [0.1] * len(peers),
            policy=policy,
            remembers=True,
        )
        loaded = store.load("north", schema_fingerprint(learner.arms, learner.policies))
        self.store = store
        self.learner = learner
        self.arrivals = 0  # that the peer reports
        self.state = loaded_state(learner, loaded, {"south": trust})
        self._handler = Handler(self.state, (), self)
        self._ids = 0

    def answer(
        self,
        id_: str,
        *contexts: float,
        instance: Any = 1,
        arrivals: int = 0,
        slot: int | None = None,
    ) -> Request:
        self.arrivals = arrivals
        points: Any = [(context,) for context in contexts]
        points = points if len(contexts) == 1 else np.array(points)
        return run(self._handler.answer([instance] * len(contexts), points, slot=slot, id=id_))

    def assist(self, ids: Sequence[str], cell: Cell, slot: int, instance: Any = 1) -> Request:
        cells, slots = [cell] * len(ids), [slot + k for k in range(len(ids))]
        rows = [instance] * len(ids)
        return run(self._handler.assist(rows, cells, slots, source="south", ids=ids))

    def learn(self, request: Request, row: int, label: int) -> Any:
        run(self._handler.prepare(request, {row: label}))
        return self.state.settle(request, {row: label})

    def flush(self) -> None:
        commit = self.state.take()
        if commit is not None:
            self.store.commit(commit)
            self.state.is_written(commit)

    # -- what the handler needs -----------------------------------------------------------------

    def cell(self, space: str, row: int, context: Context) -> str:
        return self.learner.place_name(space, row, context)

    def unavailable(self) -> None:
        return None

    def new_id(self) -> str:
        self._ids += 1
        return f"to-south-{self.learner.slot}-{self._ids}"

    async def run(self, function: int, rows: Any, *, is_served: bool = False) -> Any:
        if rows[0] is None:
            return FunctionError("no answer")
        return list(rows)

    async def ask(
        self, peer: str, rows: Sequence[AskRow], *, may_be_late: bool = False
    ) -> list[Assistance]:
        if rows[0].instance is None:
            raise FunctionError("no answer")
        return [Assistance(row.instance, "h") for row in rows]

    async def query(self, peer: str, cell: Any, slot: int, what: Any = "arrivals") -> Report:
        return self.arrivals, 0.0, 1.0, ()

    async def together(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        return [await call for call in calls]

    trainable = ()


Key = tuple[str, str, int]  # source, id, row


class Sums(RuleBasedStateMachine):
    """The life of a site; what clients were told is kept apart from it."""

    keys = Bundle("keys")

    @initialize(name=st.sampled_from(sorted(POLICIES)), trust=st.sampled_from(["full", "isolated"]))
    def begin(self, name: str, trust: Trust) -> None:
        self.policy, self.trust = policy_of(name), trust
        self.store = Store.memory()
        self.site = self._open()
        self.count = 0
        self.answers: dict[Key, int] = {}
        self.acknowledged: dict[Key, int] = {}

    @rule(
        target=keys,
        contexts=st.lists(st.floats(0, 1), min_size=1, max_size=4),
        instance=st.integers(0, 1),
        arrivals=st.integers(0, 9),
    )
    def answer(self, contexts: list[float], instance: int, arrivals: int) -> Any:
        self.count += 1
        self.site.answer(str(self.count), *contexts, instance=instance, arrivals=arrivals)
        return self._keys([("", str(self.count), row) for row in range(len(contexts))], instance)

    @rule(
        target=keys,
        place=st.integers(0, 1),
        instance=st.integers(0, 1),
        ahead=st.integers(0, 2),
        rows=st.integers(1, 3),
    )
    def assist(self, place: int, instance: int, ahead: int, rows: int) -> Any:
        self.count += 1
        slot = max(1, self.site.learner.slot + ahead)
        ids = [f"{self.count}-{row}" for row in range(rows)]
        self.site.assist(ids, self._cell(place), slot, instance)
        return self._keys([("south", id_, 0) for id_ in ids], instance)

    @rule(contexts=st.lists(st.floats(0, 1), min_size=1, max_size=3))
    def fail(self, contexts: list[float]) -> None:
        with pytest.raises(FunctionError):
            self.site.answer("never", *contexts, instance=None)

    @rule(place=st.integers(0, 1), rows=st.integers(1, 3))
    def fail_to_assist(self, place: int, rows: int) -> None:
        slot = max(1, self.site.learner.slot)
        with pytest.raises(FunctionError):
            self.site.assist(["never"] * rows, self._cell(place), slot, instance=None)

    @rule(place=st.integers(0, 1))
    def report(self, place: int) -> None:
        self.site.state.query(
            "south", self._cell(place), max(1, self.site.learner.slot), "arrivals"
        )

    @rule(key=keys, label=st.integers(0, 1))
    def label(self, key: Key, label: int) -> None:
        """New, repeated, conflicting, late, or of an answer that was never committed."""
        source, id_, row = key
        found = self.site.state.open.find(source, id_) or self.store.find(source, id_)
        if found is None:
            assert key not in self.answers
            return
        known = self.acknowledged.get(key)
        request = found[0]
        row = row if found[1] is None else found[1]
        try:
            settled = self.site.learn(request, row, label)
        except ConflictingLabel:
            assert known == 1 - label
        except LateLabel:
            assert known is None
        else:
            assert settled.is_new == [known is None]
            assert settled.is_right == [self.answers[key] == label]
            self.site.flush()
            self.acknowledged[key] = label
            if isinstance(self.policy.partition, Uniform):
                self._check_counters()

    @rule()
    def crash(self) -> None:
        """What was not committed is gone; the next life continues from the store."""
        self.site = self._open()
        self.answers = {
            key: answer for key, answer in self.answers.items() if self.store.find(*key[:2])
        }

    @rule()
    def restart_continues_exactly(self) -> None:
        self.site.flush()
        again = self._open()
        assert everything(again) == everything(self.site)
        decided = [one.answer("next", 0.4, 0.4, 0.9).groups for one in (again, self.site)]
        served = [one.assist(["one"], self._cell(1), 1).groups for one in (again, self.site)]
        assert decided[0] == decided[1]
        assert served[0] == served[1]
        self.site = self._open()

    @invariant()
    def counters_are_the_sum_of_the_labels(self) -> None:
        if hasattr(self, "store"):
            assert self.store.check() == []

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        for (source, id_, row), label in getattr(self, "acknowledged", {}).items():
            found = self.store.find(source, id_)
            assert found is not None
            assert found[0].truths[row if found[1] is None else found[1]] == label

    def _open(self) -> Site:
        return Site(self.policy, self.store, self.trust)

    def _check_counters(self) -> None:
        """Statistics are the sum of the labels that count for them."""
        own = ["", "south"] if self.trust == "full" else [""]
        assert learnt(self.site.learner.tables) == counted(self.store, own)
        for source, tables in overlays(self.site).items():
            assert learnt(tables) == counted(self.store, [source])

    def _cell(self, place: int) -> Cell:
        """Return one of two cells, of the second level where there are several."""
        return Cell(int(len(self.policy.partition.levels(1)) > 1), (place,))

    def _keys(self, keys: list[Key], answer: int) -> Any:
        self.answers.update(dict.fromkeys(keys, answer))
        return multiple(*keys)


def overlays(site: Site) -> dict[str, Any]:
    """Return the tables of isolated sources."""
    return {source: one.tables for source, one in site.state.sources._overlays.items()}


def everything(site: Site) -> Any:
    """Return all that a site goes by, in a form that can be compared."""
    state = site.state
    tables = {"": site.learner.tables, **overlays(site)}
    rows = {
        (source, space, row.cell): (place, row)
        for source, of_source in tables.items()
        for space, table in of_source.items()
        for place, row in enumerate(rows_of(table))
    }
    slots = {source: state.sources.of(source).slot for source in ("", "south")}
    requests = [
        (one.number, one.source, one.id, one.slot, one.row_ids, one.codes.tolist(), one.truths)
        for queue in state.open.queues.values()
        for one in queue
    ]
    return snapshot_of(site.learner), rows, slots, sorted(requests), state.open.pending_rows


def learnt(tables: Any) -> dict[tuple[str, str], tuple[int, int]]:
    """Return cell, arm -> labels, right, from the counters of tables; no zeros."""
    found = {}
    for table in tables.values():
        for row in range(len(table)):
            counters, (place,) = table.saved.stored(row), table.cells.cell(row).coordinates
            for k, arm in enumerate(ARMS):
                if counters[3 + k]:
                    found[f"g2:{place}", arm] = counters[3 + k], counters[6 + k]
    return found


def counted(store: Store, sources: list[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the same from the store, over some sources."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for (cell, source, arm), (labels, right) in store.counters().items():
        if source in sources:
            old = sums.get((cell, arm), (0, 0))
            sums[cell, arm] = (old[0] + labels, old[1] + right)
    return sums


TestSums = Sums.TestCase
TestSums.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_commit_has_only_the_cells_that_changed() -> None:
    site = Site(policy_of("grid"), Store.memory())
    site.answer("a", 0.1)
    site.state.take()

    site.answer("b", 0.9)
    commit = site.state.take()

    assert commit is not None
    assert [line.name for line in commit.of(CellLine)] == ["g2:1"]
    assert [request.id for request in commit.requests] == ["b"]
    assert site.state.take() is None


def test_a_label_for_an_answer_of_a_peer_is_delivered_from_the_same_commit() -> None:
    site = Site(policy_of("grid"), Store.memory())
    for step in range(40):
        site.learn(site.answer(str(step), 0.1), 0, 1)

    commit = site.state.take()

    assert commit is not None
    asked = [
        request.peer_answers[0].id
        for request in commit.requests
        if request.group(0).peer == "south"
    ]
    assert [(delivery.peer, delivery.id) for delivery in commit.deliveries] == [
        ("south", id_) for id_ in asked
    ]
    assert len(asked) > 5
    assert site.state.answered(0, "south") == len(asked)


@pytest.mark.parametrize("contexts", [(0.1,), (0.1, 0.9, 0.2)])
def test_labels_are_unknown_until_they_are_committed(contexts: tuple[float, ...]) -> None:
    site = Site(policy_of("grid"), Store.memory())
    request = site.answer("a", *contexts)
    site.flush()
    site.learn(request, len(contexts) - 1, 1)

    before = site.store.find("", "a")
    site.flush()
    after = site.store.find("", "a")

    assert before is not None
    assert after is not None
    assert before[0].truths == [UNKNOWN] * len(contexts)
    assert after[0].truths == [*[UNKNOWN] * (len(contexts) - 1), 1]
