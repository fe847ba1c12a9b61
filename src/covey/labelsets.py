"""The valid true labels of a site."""

import reprlib
from collections.abc import Iterable, Sequence

from covey.batches import Key, key_of
from covey.classifiers import Function
from covey.contexts import Contexts
from covey.errors import DataError, UnfitLabel
from covey.types import Label

SHOWN = 5  # classes in a message


class LabelSet:
    """The valid labels. Text, numbers and booleans are distinct: 1 is not true."""

    def __init__(self, classes: Sequence[Label] = (), contexts: Contexts | None = None) -> None:
        """Without `classes` any label is valid; `contexts` can use it as the previous label."""
        self.classes = tuple(classes)
        self._contexts = contexts
        self._keys = frozenset(map(key_of, classes))

    def check(self, labels: Sequence[Label]) -> None:
        """Raise `UnfitLabel` for a label that is not one of the classes."""
        distinct = set(zip(map(type, labels), labels, strict=True))  # 1 and True are not the same
        for _, label in distinct:
            self._check(key_of(label))

    def check_own(self, labels: Sequence[Label]) -> None:
        """Raise `UnfitLabel` for an invalid label of an own instance."""
        self.check(labels)
        if self._contexts is not None:
            try:
                self._contexts.check_labels(labels)
            except DataError as error:
                raise UnfitLabel(f"truth: {error}") from None

    def _check(self, key: Key) -> None:
        label = key[1]
        if label == "":
            raise UnfitLabel("truth is an empty text, which is not a label")
        if self._keys and key not in self._keys:
            raise UnfitLabel(f"truth is {reprlib.repr(label)}, which is not {self.wanted}")

    @property
    def wanted(self) -> str:
        """The valid labels, as text."""
        few = ", ".join(map(reprlib.repr, self.classes[:SHOWN]))
        more = len(self.classes) - SHOWN
        return f"one of the classes {few}" + (f" and {more} more" if more > 0 else "")

    def has(self, label: Label) -> bool:
        """Return whether a label is one of the classes; true without classes."""
        return not self._keys or key_of(label) in self._keys


def declared(functions: Iterable[Function]) -> tuple[Label, ...]:
    """Return the classes that functions declare, if the declarations agree."""
    found = [function.classes for function in functions if function.classes]
    sets = {frozenset(map(key_of, classes)) for classes in found}
    return found[0] if len(sets) == 1 else ()


ANY = LabelSet()
