"""Cooperation accounts: what learners gain, pay, and spend on the instances of others."""

from collections.abc import Mapping, Sequence

import msgspec


class Account(msgspec.Struct, frozen=True):
    """Utility account of one learner."""

    right: float
    paid: float  # for own functions and for asking
    served: int  # requests of others that it answered
    received: float  # serving costs that prices passed on to it
    served_cost: float  # its serving costs

    @property
    def utility(self) -> float:
        """Gains minus payments, plus received serving costs minus own serving costs."""
        return self.right - self.paid + self.received - self.served_cost


class Dealings(msgspec.Struct):
    """What one learner did, as far as accounts need it."""

    right: float = 0.0
    paid: float = 0.0
    asked: dict[str, int] = {}  # learner -> instances that it was asked to label


def settle_accounts(
    dealings: Mapping[str, Dealings], serving_costs: Mapping[str, float], *, are_carried: bool
) -> dict[str, Account]:
    """Return the account of every learner by name; utilities sum to the system's."""
    served = dict.fromkeys(dealings, 0)
    for dealing in dealings.values():
        for name, times in dealing.asked.items():
            served[name] += times
    served_cost = {name: times * serving_costs.get(name, 0.0) for name, times in served.items()}
    return {
        name: Account(
            right=one.right,
            paid=one.paid,
            served=served[name],
            received=served_cost[name] if are_carried else 0.0,
            served_cost=served_cost[name],
        )
        for name, one in dealings.items()
    }


def asked_of(
    arms: Mapping[str, int], functions: Sequence[str], names: Sequence[str]
) -> dict[str, int]:
    """Return how often each learner was asked, of how often each arm was chosen."""
    return {arm: times for arm, times in arms.items() if arm in names and arm not in functions}


def system_utility(accounts: Mapping[str, Account]) -> float:
    return sum(account.utility for account in accounts.values())
