"""Accounts of sites: what they buy from each other and what that costs.

A price is paid by the site that asks and received by the site that answers; costs of functions,
links and cost columns are received by nobody.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from covey.types import BY_CONTEXT

DIGITS = 9  # of differences, which have rounding errors


class Payment(NamedTuple):
    """What one site pays another for an answer."""

    payer: str
    receiver: str
    amount: float


# Asker and arm -> who pays whom for an answer: several payments on a path through relays.
Payments = Mapping[tuple[str, str], tuple[Payment, ...]]


class Account(msgspec.Struct, frozen=True):
    """What a site did with the others; amounts in units of a right answer."""

    bought: int  # answers of peers
    sold: int  # answers to peers
    paid: float  # to peers
    earned: float  # from peers
    serving_cost: float  # of the answers to peers
    balance: float  # earned less paid and serving cost
    spent: float  # on what nobody receives: own functions, links, cost columns
    right: float  # own right answers
    utility: float  # right answers less what was spent, and the balance


class Dealings(msgspec.Struct):
    """What one site did, as far as accounts need it."""

    right: float = 0.0
    cost: float = 0.0  # of all its decisions
    asked: dict[str, int] = {}  # arm -> answers; those of own functions do not matter
    prices: dict[str, float] = {}  # arm -> sum of what was paid, where prices change

    def mean_price(self, arm: str) -> float:
        return self.prices.get(arm, 0.0) / max(1, self.asked.get(arm, 0))


def settle_accounts(
    dealings: Mapping[str, Dealings], payments: Payments, serving_costs: Mapping[str, float]
) -> dict[str, Account]:
    """Return the account of every site by name."""
    sums = {name: dict.fromkeys(_SUMMED, 0.0) for name in dealings}
    for name, dealing in dealings.items():
        _add(sums[name], spent=dealing.cost)
        for arm, times in dealing.asked.items():
            path = payments.get((name, arm))
            if path is None:
                continue
            _add(sums[name], spent=-times * path[0].amount)
            for payer, receiver, amount in path:
                _add(sums[payer], bought=times, paid=times * amount)
                _add(sums[receiver], sold=times, earned=times * amount)
            if not arm.endswith(BY_CONTEXT):  # else no function runs
                server = path[-1].receiver
                _add(sums[server], serving_cost=times * serving_costs.get(server, 0.0))
    return {name: _account(dealing.right, sums[name]) for name, dealing in dealings.items()}


def total_account(accounts: Iterable[Account]) -> Account:
    """Return the account of all sites: what they pay each other has no effect on its balance."""
    sums, right = dict.fromkeys(_SUMMED, 0.0), 0.0
    for account in accounts:
        _add(sums, **{name: getattr(account, name) for name in _SUMMED})
        right += account.right
    return _account(right, sums)


_SUMMED = ("bought", "sold", "paid", "earned", "serving_cost", "spent")


def _add(sums: dict[str, float], **more: float) -> None:
    for name, amount in more.items():
        sums[name] += amount


def _account(right: float, sums: Mapping[str, float]) -> Account:
    balance = round(sums["earned"] - sums["paid"] - sums["serving_cost"], DIGITS) + 0.0  # not -0.0
    spent = round(sums["spent"], DIGITS) + 0.0
    whole: Any = {name: int(sums[name]) for name in ("bought", "sold")}
    known = {**sums, **whole, "spent": spent}
    return Account(**known, balance=balance, right=right, utility=right - spent + balance)
