"""Labels of several sources show a change; sources that lie cannot, if they are fewer than half."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from covey.bandit.policies import policy_from
from covey.kernel.rules import Cell
from covey.site.earned import BLOCK, CHANGE_LEVEL, ChangeTest, EarnedTrust
from covey.site.requests import OWN
from reference import drift as reference

PEERS = ("a", "b", "c")
Accuracy = Callable[[str, int], float]  # of a source, after so many labels


def said(
    accuracy: Accuracy, seed: int, most: int, sources: Sequence[str] = (OWN, *PEERS)
) -> list[reference.Said]:
    """Return labels of sources in turn, of two functions in two regions."""
    rng = np.random.default_rng(seed)
    labels: list[reference.Said] = []
    for place in range(most):
        source = sources[place % len(sources)]
        function, region = str(rng.choice(["f", "g"])), str(rng.choice(["2:0", "2:1"]))
        right = float(rng.random() < accuracy(source, place))
        labels.append((source, function, region, right))
    return labels


def found(test: ChangeTest, labels: Sequence[reference.Said], pooled: Sequence[str]) -> int | None:
    """Return after how many labels the test shows a change."""
    for count, one in enumerate(labels, 1):
        if test.take(*one, pooled):
            return count
    return None


def fall(at: int, to: float = 0.45) -> Accuracy:
    return lambda source, place: 0.85 if place < at else to


# -- the statistic ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_verdict_is_that_of_products_over_all_starts(seed: int) -> None:
    labels = said(fall(400, 0.85 if seed == 0 else 0.4), seed, 640)

    count = found(ChangeTest(), labels, PEERS)

    assert (count is None) == (seed == 0)
    end = len(labels) if count is None else count
    sums = [reference.capital(labels[:some], PEERS) for some in (end - 40, end - 1, end)]
    assert [one >= 1 / CHANGE_LEVEL for one in sums] == [False, False, count is not None]


@pytest.mark.parametrize("right", [0.5, 0.75, 0.95])
def test_nothing_is_shown_where_nothing_changes_though_read_after_every_label(right: float) -> None:
    counts = [
        found(ChangeTest(), said(lambda source, place: right, seed, 1_500), PEERS)
        for seed in range(20)
    ]

    assert counts == [None] * 20


@pytest.mark.parametrize(("before", "after"), [(0.85, 0.5), (0.5, 0.85)])
@pytest.mark.parametrize("past", [600, 3_000])
def test_falls_and_rises_are_found_soon(before: float, after: float, past: int) -> None:
    for seed in range(5):
        labels = said(lambda _, place: before if place < past else after, seed, past + 300)

        count = found(ChangeTest(), labels, PEERS)

        assert count is not None
        assert past < count < past + 300


def test_a_site_without_labels_of_its_own_finds_a_change_by_the_others() -> None:
    count = found(ChangeTest(), said(fall(600), 1, 1_000, PEERS), PEERS)

    assert count is not None
    assert count > 600


# -- liars -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peers", "liars"), [(("a",), ("a",)), (("a", "b"), ("a",)), (PEERS, ("a",))]
)
def test_a_liar_does_not_show_a_change_whatever_it_says(
    peers: tuple[str, ...], liars: tuple[str, ...]
) -> None:
    """It is honest at first, and sends four labels for each one of another source."""
    sources = (OWN, *(peer for peer in peers for _ in range(4 if peer in liars else 1)))
    for seed in range(5):
        labels = said(
            lambda source, place: 0.05 if source in liars and place > 600 else 0.8,
            seed,
            3_000,
            sources,
        )
        assert found(ChangeTest(), labels, peers) is None


def test_two_liars_of_five_do_not_show_a_change_and_do_not_hide_one() -> None:
    peers, liars = ("a", "b", "c", "d", "e"), ("a", "d")
    lies = said(
        lambda source, place: 0.05 if source in liars and place > 600 else 0.8,
        2,
        3_000,
        (OWN, *peers),
    )
    honest = said(
        lambda source, place: 0.85 if place < 900 or source in liars else 0.4,
        2,
        2_000,
        (OWN, *peers),
    )

    assert found(ChangeTest(), lies, peers) is None
    assert found(ChangeTest(), honest, peers) is not None


def test_without_a_pooled_source_nothing_is_shown() -> None:
    assert found(ChangeTest(), said(fall(600), 1, 1_000), ()) is None


# -- what is kept ----------------------------------------------------------------------------------


def test_after_the_site_has_forgotten_the_test_begins_anew_with_other_starts() -> None:
    labels = said(fall(500), 4, 900)
    again, test = said(fall(500), 5, 900), ChangeTest()
    first = found(test, labels, PEERS)
    assert first is not None

    test.follow(77)
    test.follow(77)
    count = found(test, again, PEERS)

    assert count is not None
    used = -(-first // BLOCK)
    assert reference.capital(again[:count], PEERS, used + 1) >= 1 / CHANGE_LEVEL
    assert reference.capital(again[: count - 1], PEERS, used + 1) < 1 / CHANGE_LEVEL


def test_a_stored_test_goes_on_as_the_one_that_was_stored() -> None:
    labels = said(fall(500), 6, 900)
    test, stored = ChangeTest(), {}
    shown = None
    for count, one in enumerate(labels):
        if count % 90 == 0:
            stored |= {line.other: line.state for line in test.changes()}
            assert test.changes() == []
            test = ChangeTest()
            for source, state in stored.items():
                test.load(source, state)
        if test.take(*one, PEERS):
            shown = count + 1
            break

    assert shown is not None
    assert shown == found(ChangeTest(), labels, PEERS)


# -- trust that is earned --------------------------------------------------------------------------


CELL = Cell(0, (0,))


def earned(**policy: Any) -> EarnedTrust:
    made = policy_from(policy).resolve(dimension=1, most_functions=2)
    return EarnedTrust(PEERS, {"": made})


def shown_at(trust: EarnedTrust, *, liar: str | None = None) -> int | None:
    """Let functions fall after 150 slots; return when that is shown."""
    rng = np.random.default_rng(1)
    for slot in range(400):
        for source in (OWN, *PEERS):
            right = float(rng.random() < (0.9 if slot < 150 else 0.4))
            right = 1.0 - right if source == liar else right
            if source == OWN:
                is_change = trust.take_own("", (0.1,), "f", right, slot)
            else:
                is_change = trust.take(source, CELL, "f", right, slot)
            if is_change:
                return slot
    return None


@pytest.mark.parametrize("liar", [None, "b"])
def test_pooled_sources_and_own_labels_show_a_change(liar: str | None) -> None:
    trust = earned(preset="share-ucb", slices=1, alarm=5)

    slot = shown_at(trust, liar=liar)

    assert slot is not None
    assert 150 < slot < 170
    assert [peer for peer in PEERS if not trust.is_pooled(peer)] == ([liar] if liar else [])
