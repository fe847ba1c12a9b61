"""The utility of cooperation per learner, and of the whole system.

A right answer is worth 1. A request costs the asker its price and the helper its serving cost. If
prices include that cost (`carry-serving-costs`), the asker reimburses the helper, so that the best
choice for each learner is the best for the system.
"""

from collections.abc import Mapping, Sequence

from covey.types import Account, LearnerOutcome


def settle(
    learners: Sequence[LearnerOutcome], serving_costs: Mapping[str, float], *, are_carried: bool
) -> dict[str, Account]:
    """Return the account of every learner by name; utilities sum to the system's."""
    served = {learner.name: 0 for learner in learners}
    for learner in learners:
        for arm, times in learner.arms.items():
            if arm in served and arm not in learner.functions:
                served[arm] += times
    return {
        learner.name: _account(learner, served[learner.name], serving_costs, are_carried)
        for learner in learners
    }


def system(accounts: Mapping[str, Account]) -> float:
    """Return the utility of all learners together."""
    return sum(account.utility for account in accounts.values())


def _account(
    learner: LearnerOutcome, served: int, serving_costs: Mapping[str, float], are_carried: bool
) -> Account:
    borne = served * serving_costs.get(learner.name, 0.0)
    return Account(
        right=learner.judged - learner.errors,
        paid=learner.cost_total,
        served=served,
        received=borne if are_carried else 0.0,
        borne=borne,
    )
