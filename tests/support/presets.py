"""Policies of all presets over one context, and tests that run each of them with drawn seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import RECORDS, Own, Policy, keys_of, policy_from

INDEXED = ("auto", "share-ucb")  # arms are chosen by an upper index, without phases


def fitting(table: dict[str, Any]) -> dict[str, Any]:
    """Return a [policy] table without the keys that its preset does not have."""
    record = RECORDS.get(table["preset"], Own)  # "module:Class" is one's own
    known = {"preset", *keys_of(record)}
    return {key: value for key, value in table.items() if key in known}


def policy_of(table: dict[str, Any], *, functions: int) -> Policy:
    """Return the policy of a [policy] table, for one context."""
    given_ = policy_from({"seed": 7, **table})
    return given_.resolve(dimension=1, most_functions=functions)


def sides(policy: Policy) -> list[int]:
    """Return the cells per dimension on each level."""
    return [level.side for level in policy.partition.levels(1)]


def with_seeds(
    name: str, tables: Sequence[dict[str, Any]], *, examples: int = 8
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each [policy] table as its argument `name`, with a few values of `seed`."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(seed=st.integers(0, 2**32 - 1))(test)
        each = pytest.mark.parametrize(name, tables, ids=str)(drawn)
        marked: Callable[..., None] = settings(max_examples=examples, deadline=None)(each)
        return marked

    return mark
