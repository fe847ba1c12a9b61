"""Two more baselines of the tables: a rule without learning, and online boosting."""

import math

from covey.replay.baselines import BaselineAnswer, elect

_TINY = 1e-16


class WinStay:
    """Uses a function while it is right, and changes to the next one when it is wrong."""

    name = "win-stay"

    def __init__(self) -> None:
        self._function = 0

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(predictions[self._function], predictions, self._function)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        if guess.by == self._function and guess.label != label:
            self._function = (self._function + 1) % len(guess.predictions)


class OzaRussell:
    """Online boosting of Oza and Russell, with the functions as members, in their order.

    A label passes through the members with a weight that falls after a right member and grows
    after a wrong one. Functions are not trained here, so the original's Poisson draws are omitted.
    """

    name = "oza-russell"

    def __init__(self, functions: int) -> None:
        self.right = [0.0] * functions  # the sums of weights that the paper calls lambda^sc
        self.wrong = [0.0] * functions  # and lambda^sw

    @property
    def weights(self) -> list[float]:
        """The weight of each vote: 0 for members worse than chance, unless all are."""
        sums = zip(self.right, self.wrong, strict=True)
        logs = [max(0.0, math.log((right + _TINY) / (wrong + _TINY))) for right, wrong in sums]
        return logs if any(logs) else [1.0] * len(logs)

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(elect(self.weights, predictions), predictions)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        weight = 1.0
        for k, prediction in enumerate(guess.predictions):
            sums = self.right if prediction == label else self.wrong
            sums[k] += weight
            weight *= (self.right[k] + self.wrong[k]) / (2 * sums[k])
