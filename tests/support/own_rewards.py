"""Rewards of one's own, as a user would write them."""

from collections.abc import Sequence


def formula(accuracy: float, cost: float, context: Sequence[float]) -> float:
    """Return 0.9 * accuracy^1.5 - 2 * cost * (1 + context[0] / 2)."""
    slope = 1.0 + 0.5 * context[0]
    slope += 0.0 * context[1]
    return 0.9 * accuracy**1.5 - 2.0 * cost * slope


def outage(accuracy: float, cost: float, context: Sequence[float]) -> float:
    """Errors cost twenty times as much where an attack takes the network down."""
    weight = 20.0 if context[0] > 0.8 else 1.0
    return -weight * (1.0 - accuracy) - cost


def thrift(accuracy: float, cost: float, context: Sequence[float]) -> float:
    """Costs count eight times in half of the contexts."""
    return accuracy - (8.0 if context[0] < 0.5 else 1.0) * cost


def of_loss(loss: float, cost: float, context: Sequence[float]) -> float:
    """Return a value by the expected loss, in the unit of the loss."""
    return -loss / 50.0 - (1.0 + context[0]) * cost


def fails_late(accuracy: float, cost: float, context: Sequence[float]) -> float:
    """Fail where an arm costs something."""
    return accuracy / (1.0 if cost == 0 else 0.0)


def not_a_number(accuracy: float, cost: float, context: Sequence[float]) -> float:
    """Return what no arm can be compared by."""
    return float("nan")


def of_two(accuracy: float, cost: float) -> float:
    """Take no context."""
    return accuracy - cost


NOT_A_FUNCTION = 1.0
