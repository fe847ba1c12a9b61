"""Shadow mode: a drawn share of rows gets the answers of all arms, and nothing else changes."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np
import pytest

from covey.errors import FunctionBusy
from covey.node import shadow
from covey.node.functions import FairQueue, Job
from covey.node.node import Node
from covey.site.requests import OWN, SHADOW, ShadowRow, ShadowSpan, is_drawn
from covey.site.status import GainSums
from covey.store.reading import StoredSite
from covey.store.store import Store
from support import virtual
from support.snapshots import snapshot_of
from support.virtual import Disk, World

FUNCTIONS = {"low": lambda x: x % 2, "high": lambda x: x % 3, "south_own": lambda x: x % 5}
PRICE = 0.25


class Drawn(World):
    """Two sites, of which the first draws rows."""

    def __init__(self, share: float, **functions: Any) -> None:
        self.shadow = {"north": share}
        learners = [
            {"name": "north", "functions": ["low", "high"], "peers": {"south": PRICE}},
            {"name": "south", "functions": ["south_own"], "peers": {}},
        ]
        policy = {"preset": "cos", "slices": 2, "label-wait": 100}
        config = {"policy": policy, "learner": learners}
        super().__init__(config, FUNCTIONS | functions, dimension=1, seed=5)

    @property
    def north(self) -> Node:
        return self.nodes["north"]

    @property
    def kept(self) -> dict[tuple[int, int], ShadowRow]:
        rows = self.stores["north"].all(ShadowRow)
        return {(row.request, row.row): row for row in rows}


async def stream(world: World, rows: range, *, labelled: bool = True) -> list[Any]:
    """Ask and label rows one by one, each under its number; return the decisions."""
    decided = []
    for k in rows:
        answer = await world.predict("north", f"r{k}", k, (k % 10 / 10,))
        decided.append((answer.label, answer.phase, answer.arm))
        if labelled:
            await world.learn("north", f"r{k}", k % 2)
    await asyncio.sleep(5.0)
    return decided


@virtual.timed
async def test_every_drawn_row_has_the_answers_of_all_own_functions() -> None:
    world = Drawn(0.3)
    await stream(world, range(200))
    (span,) = world.stores["north"].all(ShadowSpan)
    requests = {one.number: one for one in world.stores["north"].requests()}
    drawn = {(number, 0) for number, one in requests.items() if is_drawn(span, OWN, one.id, 0)}

    assert 30 < len(drawn) < 90
    assert world.kept.keys() == drawn
    for (number, _), one in world.kept.items():
        request = requests[number]
        case = int(request.id[1:])
        answers = {**one.answers, request.group(0).arm: request.predictions[0]}
        assert (answers["low"], answers["high"]) == (case % 2, case % 3)


def test_the_shadow_changes_no_decision_and_no_counter() -> None:
    async def lived(share: float) -> Any:
        world = Drawn(share)
        decided = await stream(world, range(150))
        return decided, snapshot_of(world.north.learner), world.stores["north"].counters()

    plain = virtual.run(lived(0.0))

    assert virtual.run(lived(1.0)) == plain


@virtual.timed
async def test_functions_run_in_the_shadow_after_the_answer() -> None:
    events: list[Any] = []

    def noted(name: str) -> Any:
        def call(x: int) -> int:
            events.append(name)
            return x % 2

        return call

    world = Drawn(1.0, low=noted("low"), high=noted("high"))
    answer = await world.north.predict(1, (0.5,))
    events.append("answered")
    await asyncio.sleep(5.0)
    other = "high" if answer.arm == "low" else "low"

    assert events == [answer.arm, "answered", other]


@virtual.timed
async def test_a_request_that_is_sent_again_is_not_run_again() -> None:
    calls: Counter[int] = Counter()

    def counted(x: int) -> int:
        calls[x] += 1
        return 0

    world = Drawn(1.0, low=counted)
    for _ in range(3):
        for k in range(20):
            await world.predict("north", f"r{k}", k, (0.5,))
        await asyncio.sleep(5.0)

    assert calls == Counter(range(20))


def test_draws_depend_on_source_id_row_and_seed_only() -> None:
    span = ShadowSpan(1, 0.25, "ab" * 32, [])
    drawn = [is_drawn(span, "", str(k), 0) for k in range(4_000)]
    again = [is_drawn(span, "", str(k), 0) for k in range(4_000)]
    other = [is_drawn(ShadowSpan(9, 0.25, "cd" * 32, []), "", str(k), 0) for k in range(4_000)]

    assert drawn == again
    # 0.25 of 4,000 rows, with four standard deviations; a quarter of them in both draws.
    assert abs(sum(drawn) - 1_000) < 4 * 27.4
    assert abs(sum(a and b for a, b in zip(drawn, other, strict=True)) - 250) < 4 * 15.3
    assert is_drawn(ShadowSpan(1, 1.0, "ab" * 32, []), "client/x", "a", 3)
    assert not is_drawn(ShadowSpan(1, 0.0, "ab" * 32, []), "client/x", "a", 3)


@virtual.timed
async def test_a_restart_draws_on_and_keeps_what_is_known() -> None:
    world = Drawn(0.5)
    await stream(world, range(40))
    before, spans = world.kept, world.stores["north"].all(ShadowSpan)
    world.crash("north")
    world.boot("north")
    await stream(world, range(40, 80))

    assert world.stores["north"].all(ShadowSpan) == spans
    assert before.items() <= world.kept.items()
    assert len(world.kept) > len(before)
    assert world.stores["north"].check() == []


@virtual.timed
async def test_the_net_gain_is_that_over_the_best_own_function_on_the_same_rows() -> None:
    world = Drawn(0.5)
    await stream(world, range(100))
    await stream(world, range(100, 140), labelled=False)
    few = Drawn(0.5)
    await stream(few, range(20))
    for k in range(100, 140):  # when the functions have answered
        await world.learn("north", f"r{k}", k % 2)
    store = world.stores["north"]
    (span,) = store.all(ShadowSpan)
    gains: dict[str, list[float]] = {"low": [], "high": []}
    for request in store.requests():
        if is_drawn(span, OWN, request.id, 0):
            case, group = int(request.id[1:]), request.group(0)
            served = (request.answers[0] == case % 2) - group.price
            for name, answer in (("low", case % 2), ("high", case % 3)):
                gains[name].append(served - (answer == case % 2))
    before = world.north.state().gain
    world.crash("north")
    world.boot("north")
    after = world.north.state().gain

    reported = StoredSite(
        name="north",
        fingerprint="",
        counters={},
        arms=world.north.arms,
        requests=[*store.requests()],
        spans=store.all(ShadowSpan),
        shadows=store.all(ShadowRow),
        contexts=None,
    )

    assert before == after == reported.gain
    assert before is not None
    assert before.points is not None
    assert (before.rows, before.best_own) == (len(gains["low"]), "low")
    assert before.points.mean == pytest.approx(100 * mean(gains["low"]))
    assert before.points.low < before.points.mean < before.points.high
    assert str(few.north.state().gain).startswith("unknown: ")
    assert str(few.north.state().gain).endswith(" of 30 rows drawn so far")
    without = Drawn(0.0)
    await stream(without, range(5))
    assert without.north.state().gain is None


def test_the_interval_of_the_net_gain_holds_the_truth_in_93_percent_of_streams_or_more() -> None:
    rng, accuracies, site = np.random.default_rng(3), np.array([0.7, 0.69, 0.5]), 0.75
    held = 0
    for _ in range(500):
        sums = GainSums({"a": "a", "b": "b", "c": "c"})
        for served, right in zip(rng.random(120), rng.random((120, 3)), strict=True):
            sums.add((served < site) - (right < accuracies).astype(float))
        points = sums.state().points
        assert points is not None
        held += points.low <= 100 * (site - 0.7) <= points.high

    assert held >= 0.93 * 500


@virtual.timed
async def test_a_function_that_fails_has_the_answer_none_and_a_busy_one_has_no_answer() -> None:
    class Busy(Disk):
        async def run(self, function: Any, call: Any, **how: Any) -> Any:
            if function.name == "high" and how.get("source") == SHADOW:
                raise FunctionBusy("busy")
            return call()

    class Crowded(Drawn):
        def disk(self, name: str) -> Any:
            return Busy(self, name)

    failing = Drawn(1.0, high=sys.exit)
    await stream(failing, range(20))
    busy = Crowded(1.0)
    await stream(busy, range(20))
    state = busy.north.state().shadow
    assert state is not None

    assert {one.answers.get("high", 0) for one in failing.kept.values()} <= {None, 0}
    assert None in [one.answers.get("high", 0) for one in failing.kept.values()]
    assert all("high" not in one.answers for one in busy.kept.values())
    assert state.complete + state.incomplete == 20
    assert state.incomplete > 0


@virtual.timed
async def test_rows_beyond_the_queue_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow, "MOST_WAITING", 8)

    world = Drawn(1.0)
    await world.north.answer(list(range(30)), [(0.5,)] * 30)
    waiting = world.north.state().shadow
    await asyncio.sleep(5.0)
    done = world.north.state().shadow
    assert waiting is not None
    assert done is not None

    assert (waiting.dropped, waiting.waiting) == (22, 8)
    assert (done.complete, done.dropped, done.waiting) == (8, 22, 0)
    assert len(world.kept) == 8


# -- the store and the queue --------------------------------------------------------------------


@virtual.timed
async def test_folded_requests_take_their_shadow_with_them() -> None:
    class Small(Drawn):
        def store(self, name: str) -> Store:
            return self.stores.get(name) or Store(":memory:", rows_kept=20)

    world = Small(1.0)
    await stream(world, range(400))
    numbers = {one.number for one in world.stores["north"].requests()}

    assert len(numbers) < 400
    assert {request for request, _ in world.kept} <= numbers
    assert world.stores["north"].check() == []


def test_calls_in_the_shadow_come_after_all_others() -> None:
    def job(source: str) -> Job:
        return Job(None, lambda: None, source, 1.0)  # type: ignore[arg-type]

    def taken(sources: Sequence[str]) -> list[str]:
        queue = FairQueue("f")
        for source in sources:
            queue.add(job(source))
        found = []
        while queue:
            one = queue.take()
            assert one is not None
            found.append(one.source)
        return found

    assert taken([SHADOW, "south", OWN, SHADOW, "west", OWN]) == [
        OWN, OWN, "south", "west", SHADOW, SHADOW,
    ]  # fmt: skip
