"""Sources that agree are told from those that do not, at a level that holds for all labels."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from covey.bandit.policies import policy_from
from covey.kernel.rules import Cell
from covey.site.earned import (
    CLEARLY,
    LEVEL,
    PERIOD,
    PROOF,
    TOLERANCE,
    EarnedTrust,
    Regions,
    Relation,
    is_audit,
    share,
)
from covey.site.requests import OWN
from reference import agreement as reference

HALF = LEVEL / 2 * share(1) * share(1)  # the level of the first test of the first relation


def relation() -> Relation:
    return Relation("south", OWN, 1)


def pair(
    one: Relation, theirs: float, own: float, *, function: str = "f", region: str = "1:0"
) -> bool:
    """Take two labels that form a pair; return whether the verdict changed."""
    turned = one.take(function, [region], own, is_first=False, slot=7)
    return one.take(function, [region], theirs, is_first=True, slot=7) or turned


def until_turned(one: Relation, draw: Callable[[], tuple[float, float]], most: int) -> int | None:
    for count in range(1, most + 1):
        if pair(one, *draw()):
            return count
    return None


# -- the statistic ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_verdict_is_that_of_a_sum_over_all_starts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, pairs, turned = relation(), [], None
    for count in range(1, 141):
        function, region = str(rng.choice(["f", "g"])), str(rng.choice(["2:0", "2:1"]))
        own, theirs = float(rng.random() < 0.8), float(rng.random() < (0.8 if seed < 2 else 0.1))
        pairs.append((function, region, theirs - own))
        if pair(one, theirs, own, function=function, region=region):
            turned = count
            break
        assert not reference.is_apart(pairs, TOLERANCE, HALF)

    assert (turned is not None) == (seed >= 2)
    assert turned is None or reference.is_apart(pairs, TOLERANCE, HALF)


def test_a_source_is_pooled_again_when_the_sum_over_all_starts_says_so() -> None:
    rng = np.random.default_rng(3)
    one = relation()
    assert until_turned(one, lambda: (0.0, 1.0), 100)
    differences: list[float] = []
    while one.differs:
        own, theirs = float(rng.random() < 0.9), float(rng.random() < 0.9)
        differences.append(theirs - own)
        pair(one, theirs, own)
        expected = reference.is_near(differences, CLEARLY, HALF) and len(differences) >= PROOF
        assert one.differs != expected

    assert (one.attempt, one.functions, one.new_pairs) == (2, [], 0)


def test_the_levels_of_all_tests_add_up_to_the_level() -> None:
    levels = [
        Relation("a", "b", number, attempt).level
        for number in range(1, 400)
        for attempt in range(1, 400)
    ]

    assert 0.98 * LEVEL < 2 * sum(levels) < LEVEL


@pytest.mark.parametrize("far", [0.0, TOLERANCE, -TOLERANCE])
def test_honest_sources_are_not_parted_though_tested_after_every_label(far: float) -> None:
    rng = np.random.default_rng(4)
    parted = 0
    for _ in range(60):
        one = relation()
        draw = lambda: (float(rng.random() < 0.6 + far), float(rng.random() < 0.6))  # noqa: E731
        parted += until_turned(one, draw, 400) is not None

    assert parted == 0


@pytest.mark.parametrize(("honest", "most"), [(0, 60), (1_000, 130)])
def test_a_lie_is_found_soon_however_long_the_source_was_honest(honest: int, most: int) -> None:
    rng = np.random.default_rng(5)
    one = relation()
    for _ in range(honest):
        assert not pair(one, float(rng.random() < 0.8), float(rng.random() < 0.8))

    found = until_turned(one, lambda: (float(rng.random() < 0.2), float(rng.random() < 0.8)), most)

    assert found is not None
    assert one.functions == ["f"]


def test_opposite_lies_in_two_regions_do_not_cancel() -> None:
    rng = np.random.default_rng(6)
    one = relation()
    for count in range(400):
        is_left = count % 2 == 0
        own = float(rng.random() < 0.5)
        region = "2:0" if is_left else "2:1"
        if pair(one, float(is_left), own, region=region):
            break

    assert one.differs


def test_each_parting_doubles_what_is_needed_to_be_pooled_again() -> None:
    one, needed = relation(), []
    for _ in range(3):
        assert until_turned(one, lambda: (0.0, 1.0), 200)
        needed.append(until_turned(one, lambda: (1.0, 1.0), 5_000))

    assert needed == [PROOF, 2 * PROOF, 4 * PROOF]


# -- pairs -----------------------------------------------------------------------------------------


def test_labels_form_a_pair_only_if_function_and_region_are_the_same() -> None:
    one = relation()
    one.take("f", ["1:0", "2:0"], 1.0, is_first=False, slot=1)
    for function, region in (("g", "2:0"), ("f", "2:1")):
        one.take(function, [region], 1.0, is_first=True, slot=1)
        assert one.pairs == 0

    one.take("f", ["2:0"], 1.0, is_first=True, slot=1)

    assert one.pairs == 1
    assert [waiting.function for waiting in one.waiting] == ["g", "f"]


def test_a_label_is_used_once_and_the_latest_first() -> None:
    one = relation()
    for gain in (0.0, 1.0):
        one.take("f", ["1:0"], gain, is_first=False, slot=1)

    one.take("f", ["1:0"], 1.0, is_first=True, slot=1)

    assert [waiting.gain for waiting in one.waiting] == [0.0]


def test_labels_of_different_periods_form_no_pair() -> None:
    one = relation()
    one.take("f", ["1:0"], 1.0, is_first=False, slot=1)
    for _ in range(PERIOD):
        one.take("g", ["1:0"], 1.0, is_first=False, slot=1)

    one.take("f", ["1:0"], 0.0, is_first=True, slot=1)

    assert one.pairs == 0
    assert len(one.waiting) <= PERIOD


def test_a_stored_relation_goes_on_as_the_one_that_was_stored() -> None:
    rng = np.random.default_rng(8)
    one = relation()
    for count in range(300):
        if count % 20 == 0:
            again = msgspec.json.decode(msgspec.json.encode(one), type=Relation)
            assert again == one
            one = again
        right = 0.8 if count < 60 or count > 120 else 0.1
        pair(one, float(rng.random() < right), float(rng.random() < 0.8))

    assert one.attempt + one.differs > 1


# -- verdicts --------------------------------------------------------------------------------------


def policy(**more: Any) -> Any:
    return policy_from(more).resolve(dimension=1, most_functions=2)


def earned(*sources: str) -> EarnedTrust:
    return EarnedTrust(sources, {"": policy(preset="cos", slices=1)})


CELL = Cell(0, (0,))


def judged(*sources: str, liars: str, has_own: bool = False) -> EarnedTrust:
    """Return what is known of sources after 200 labels of each; those of liars are false."""
    trust = earned(*sources)
    for count in range(200):
        if has_own:
            trust.take_own("", (0.5,), "f", float(count % 5 > 0), count)
        for source in sources:
            trust.take(source, CELL, "f", float((count % 5 > 0) != (source in liars)), count)
    return trust


@pytest.mark.parametrize(
    ("sources", "liars", "has_own", "why"),
    [
        ("abc", "c", False, "its labels differ from those of 2 of 2 others"),
        ("ab", "ab", False, None),  # none is believed, as they differ
        ("abc", "bc", True, "its labels of 'f' differ from the site's own"),
    ],
)
def test_own_labels_are_believed_or_without_them_more_than_half_of_the_others(
    sources: str, liars: str, has_own: bool, why: str | None
) -> None:
    trust = judged(*sources, liars="b" if sources == "ab" else liars, has_own=has_own)

    assert [source for source in sources if not trust.is_pooled(source)] == list(liars)
    reasons = {state.why for state in trust.states() if state.source in liars}
    assert why is None or reasons == {why}
    assert {str(one).partition(" since slot ")[0] for one in trust.turned} >= {
        f"{liar}: parted" for liar in liars
    }


def test_labels_of_fully_trusted_peers_count_as_own() -> None:
    trust = earned("a")
    for count in range(200):
        trust.take("a", CELL, "f", 0.0, count)
        trust.take(OWN, CELL, "f", 1.0, count)

    assert not trust.is_pooled("a")


def test_sources_of_another_trust_are_neither_compared_nor_pooled() -> None:
    trust = earned("a")
    trust.take("other", CELL, "f", 1.0, 1)

    assert trust.states() == []
    assert trust.changes() == []
    assert not trust.is_pooled("other")


def test_loaded_trust_judges_as_before() -> None:
    trust, stored = earned("a", "b", "c"), {}
    for count in range(150):
        for source in ("a", "b", "c"):
            trust.take(source, CELL, "f", float((count % 5 > 0) != (source == "b")), count)
        stored |= {(line.source, line.other): line for line in trust.changes()}
    again = earned("a", "b", "c")

    again.load(stored.values())

    assert again.states() == trust.states()
    assert again.turned == []
    for one in (trust, again):
        one.take("a", CELL, "f", 1.0, 151)
    assert again.changes() == trust.changes()


# -- regions and audits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "context", "cell", "region"),
    [
        ({"preset": "cos", "slices": 3}, 0.5, Cell(0, (1,)), "3:1"),
        ({"preset": "cos", "slices": 40}, 0.5, Cell(0, (20,)), "4:2"),
        ({"preset": "auto"}, 0.99, Cell(1, (1,)), "2:1"),
        ({"preset": "auto"}, 0.99, Cell(5, (31,)), "4:3"),
        ({"preset": "auto"}, 1.0, Cell(0, (0,)), "1:0"),
    ],
)
def test_the_region_of_a_cell_is_among_those_around_its_contexts(
    settings: dict[str, Any], context: float, cell: Cell, region: str
) -> None:
    regions = Regions(policy(**settings))

    assert regions.of_cell(cell) == region
    assert region in regions.around((context,))
    assert len(regions.around((context,))) <= 3


def test_audits_become_rare() -> None:
    firsts = (1_000, 10_000, 100_000)
    counts = [sum(map(is_audit, range(first, first + 1_000))) for first in firsts]

    expected = [sum(1 / (8 + k**0.5) for k in range(first, first + 1_000)) for first in firsts]
    assert counts == pytest.approx(expected, abs=3)
    assert not any(map(is_audit, range(1, 5)))
