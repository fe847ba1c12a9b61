"""The page of a replay is one self-contained file with escaped names."""

import re

import msgspec
import pytest

from covey.report.page import replay_page
from support.outcomes import (
    HOSTILE,
    SITES,
    drawings,
    idle_learner,
    make_outcome,
    read,
    shown_words,
    small_outcome,
)


@pytest.mark.parametrize(("count", "dimension"), [(1, 0), (4, 1), (8, 2), (2, 3)])
def test_the_page_is_well_formed_and_loads_nothing(count: int, dimension: int) -> None:
    page = replay_page(make_outcome(SITES[:count], dimension=dimension), title="A replay")
    reader = read(page)

    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(reader.tags)
    assert all(link.startswith("#") for link in reader.links)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []


def test_ids_in_the_page_are_unique_and_every_reference_has_its_target() -> None:
    page = replay_page(make_outcome(SITES[:4]), title="A replay")
    reader = read(page)
    referred = {link.removeprefix("#") for link in reader.links}
    referred |= set(re.findall(r"url\(#([^)]*)\)", page))

    assert len(reader.ids) == len(set(reader.ids))
    assert referred <= set(reader.ids)


def test_hostile_names_are_shown_as_they_are_written() -> None:
    outcome = make_outcome(HOSTILE)
    page = replay_page(outcome, title="<i>A & B</i>")
    words = shown_words(page)

    assert "<i>A & B</i>" in words
    assert "<b>a&b</b>" in words
    assert "$x_1$ \\frac" in words
    assert '"quoted" <script>' in words
    assert "script" not in read(page).tags


@pytest.mark.parametrize("dimension", [0, 1, 2, 3])
def test_hostile_names_of_contexts_and_policies_are_escaped(dimension: int) -> None:
    outcome = make_outcome(["north", "east"], dimension=dimension)
    names = ["<u>$h$</u>"] * dimension
    hostile = msgspec.structs.replace(outcome, context_names=names, policy="<u>CoS</u> & $x")
    page = replay_page(hostile, title="A replay")

    assert "<u>CoS</u> & $x" in shown_words(page)
    assert "u" not in read(page).tags


def test_a_log_without_rows_still_gives_a_page() -> None:
    page = replay_page(small_outcome(idle_learner("a"), idle_learner("b")), title="A replay")

    assert drawings(page) == []
    assert "No learner asked a peer" in shown_words(page)
