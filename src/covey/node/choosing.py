"""Models of another library as the functions of one site, which learns where each is right.

The library calls its models. The site is shown their answers with the features of an instance, so
that nothing but cells and counters is learnt here; every label scores every model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.errors import ConfigError
from covey.node.network import Network

SITE = "here"


class Answered(dict[Any, Any]):
    """The features of an instance, with the answers of the models as `said`."""

    def __init__(self, features: Mapping[Any, Any], said: Mapping[str, Any]) -> None:
        super().__init__(features)
        self.said = said


class _Said:
    """A function that says what a model answered; None: it had no answer yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def predict(self, instance: Answered) -> Any:
        return instance.said[self.name]

    def learn(self, instance: Answered, label: Any) -> None:
        """Learn nothing: the library trains its models."""


class ModelChoice:
    """Chooses one of several models for each instance, by the context of the instance."""

    def __init__(
        self,
        names: Sequence[str],
        context: Sequence[Any] | None,
        policy: Mapping[str, Any] | None,
    ) -> None:
        """`context` and `policy` are those of a configuration; None: one cell, the default."""
        if not names:
            raise ConfigError("there are no models; give at least one, by name")
        config: dict[str, Any] = {
            "policy": dict(policy or {}),
            "learner": [{"name": SITE, "functions": list(names), "free": True}],
        }
        if context:
            config["data"] = {"context": list(context)}
        functions = {name: _Said(name) for name in names}
        dimension = None if context else 0
        self._network = Network(config, functions=functions, dimension=dimension)

    def best(self, features: Mapping[Any, Any], said: Mapping[str, Any]) -> str:
        """Return the model that answers an instance; nothing changes."""
        return self._network[SITE].peek(Answered(features, said)).function

    def learn(self, features: Mapping[Any, Any], said: Mapping[str, Any], label: Any) -> None:
        """Score the answers of all models with a label."""
        self._network[SITE].observe(Answered(features, said), label)
