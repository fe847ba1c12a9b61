"""Functions that are added, replaced or retired while a network in one process runs.

What becomes of the arms is decided as for a store: see `node.change`. An arm that stays keeps its
counters and open tickets, a new one begins with none, and those of one that goes are set aside.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from covey.bandit.learner import Learner, Snapshot
from covey.errors import ConfigError
from covey.node.change import WantedArm, adopt
from covey.node.requests import (
    OWN,
    Arm,
    CellLine,
    Loaded,
    Request,
    SetAside,
    SourceState,
    StoreChange,
)
from covey.node.saving import SavedSite, request_of, saved_request
from covey.node.status import kinds_of
from covey.toml import nearest

BY_ARM = ("rewards", "cost-columns")  # keys of a learner that are by the names of arms


class _Shelf:
    """What a network has in place of a store: the counters of retired arms."""

    path = "the network"

    def __init__(self, aside: Sequence[SetAside]) -> None:
        self.aside = list(aside)

    def set_aside(self, id: str) -> list[SetAside]:
        return [one for one in self.aside if one.id == id]

    def requests(self) -> Iterator[Request]:
        return iter(())  # settings do not change, so nothing is counted again

    def change(self, change: StoreChange) -> None:
        left = [one for one in self.aside if one.id not in change.returned]
        self.aside = [*left, *change.set_aside]


def arms_of(saved: SavedSite, learner: Learner) -> list[Arm]:
    """Return the arms that a site has or had."""
    return saved.arms or [
        Arm(name, name, kind, "", place)
        for place, (name, kind) in enumerate(kinds_of(learner).items())
    ]


def altered(
    saved: SavedSite,
    arms: Sequence[Arm],
    learner: Learner,
    meaning: str,
    *,
    versions: Mapping[str, str],
    carry: float = 0.0,
) -> SavedSite:
    """Return what a site of other functions continues from.

    `learner` is that of the other functions and has not begun; `versions` has those that change.
    All tickets of `saved` must be held in requests.
    """
    known = {arm.name: arm.version or "" for arm in arms if arm.place >= 0}
    wanted = [
        WantedArm(name, kind, versions.get(name, known.get(name, "")), carry)
        for name, kind in kinds_of(learner).items()
    ]
    shelf, requests = _Shelf(saved.aside), [request_of(one) for one in saved.requests]
    own = SourceState(OWN, saved.counters.slot, saved.counters.doubts, saved.latest)
    loaded = Loaded(
        sources={OWN: own},
        cells={OWN: _lines(saved.counters, learner)},
        counters={},
        deliveries=[],
        asked={},
        starts=1,
        requests=requests,
        latest_number=saved.next - 1,
        fingerprint=saved.meaning,
        arms=list(arms),
    )
    _, now = adopt(shelf, loaded, learner, wanted, meaning, {})
    lines = now.cells[OWN]
    counters = Snapshot(
        saved.counters.slot,
        [(line.name, line.counters) for line in lines],
        [(line.name, line.seen) for line in lines if line.seen],
        saved.counters.doubts,
    )
    return msgspec.structs.replace(
        saved,
        meaning=meaning,
        counters=counters,
        requests=[saved_request(one, saved.name) for one in requests],
        arms=now.arms,
        aside=shelf.aside,
    )


def _lines(counters: Snapshot, learner: Learner) -> list[CellLine]:
    seen = dict(counters.seen)
    return [
        CellLine(OWN, learner.names.parse(name).space, k, name, values, seen.get(name, []))
        for k, (name, values) in enumerate(counters.cells)
    ]


# -- configurations -------------------------------------------------------------------------------


def with_function(
    tables: Mapping[str, Any], site: str, name: str, cost: float
) -> Mapping[str, Any]:
    """Return a configuration in which a learner lists one more function."""
    own, changed = _learner(tables, site)
    if name in own["functions"]:
        raise ConfigError(f"learner {site!r} has a function {name!r}; replace it, or name another")
    costs = own.get("function-costs") or [0.0] * len(own["functions"])
    own["functions"] = [*own["functions"], name]
    if cost or "function-costs" in own:
        own["function-costs"] = [*costs, cost]
    return changed


def without_function(tables: Mapping[str, Any], site: str, name: str) -> Mapping[str, Any]:
    """Return a configuration in which a learner does not list a function."""
    own, changed = _learner(tables, site)
    place = _place(own, site, name)
    if len(own["functions"]) == 1:
        raise ConfigError(f"{name!r} is the last function of learner {site!r}; add another first")
    own["functions"] = [one for one in own["functions"] if one != name]
    if own.get("function-costs"):
        own["function-costs"] = [cost for k, cost in enumerate(own["function-costs"]) if k != place]
    for key in BY_ARM:
        if name in own.get(key, {}):
            own[key] = {arm: one for arm, one in own[key].items() if arm != name}
    if isinstance(own.get("free"), list):
        own["free"] = [one for one in own["free"] if one != name]
    return changed


def check_alone(tables: Mapping[str, Any], site: str, name: str) -> None:
    """Raise `ConfigError` unless a learner lists a function, and no other does."""
    own, _ = _learner(tables, site)
    _place(own, site, name)
    for other in tables["learner"]:
        if other["name"] != site and name in other["functions"]:
            raise ConfigError(
                f"function {name!r} is also listed by learner {other['name']!r}; give each its own"
            )


def _learner(tables: Mapping[str, Any], site: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the table of a learner, and a configuration with that table: both may be changed."""
    learners = [dict(one) for one in tables["learner"]]
    own = next(one for one in learners if one["name"] == site)
    return own, {**tables, "learner": learners}


def _place(own: Mapping[str, Any], site: str, name: str) -> int:
    functions: list[str] = list(own["functions"])
    if name not in functions:
        hint = nearest(name, functions)
        raise ConfigError(f"learner {site!r} has no function {name!r}{hint}")
    return functions.index(name)
