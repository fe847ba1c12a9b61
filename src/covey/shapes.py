"""What the counters of a site mean, in words: its arms, its cells, its policy and its contexts.

A shape is a text of lines `part: value`; where a part has several values, each has its line.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.contexts import SCALES, Scale
from covey.learner import Learner
from covey.partitions import Uniform, Zooming
from covey.policies import Policy
from covey.settings import Forget

NOT_SAID = ("column", "clip")  # of a scale; the column is its name


def shape_of(learner: Learner, scales: Sequence[Scale] = ()) -> str:
    """Return what counters mean: if this changes, what is stored does not fit.

    `scales` are the coordinates of contexts, where the site makes these of features.
    """
    parts = _parts(learner, scales)
    return "\n".join(f"{part}: {' '.join(value.split())}" for part, value in parts)


def cells_of(policy: Policy) -> str:
    """Return how a policy cuts contexts into cells."""
    partition = policy.partition
    if isinstance(partition, Uniform):
        return f"{partition.slices} slices per dimension"
    if isinstance(partition, Zooming):
        limit = f"{partition.scale:g} * 2^({partition.power:g} * (level + {partition.offset}))"
        return f"halved at {limit} arrivals, down to level {partition.max_level}"
    sides = [str(level.side) for level in partition.levels(policy.dimension)]
    return f"{' and '.join(sides)} slices per dimension at once"


def preset_of(learner: Learner) -> str:
    """Return the preset of a learner, which is one in all its context spaces."""
    return next(iter(learner.policies.values())).settings.preset


def _parts(learner: Learner, scales: Sequence[Scale]) -> Iterator[tuple[str, str]]:
    for arm in learner.arms:
        yield "arm", arm
    for space, policy in learner.policies.items():
        where = f" of {space}" if space else ""
        yield f"cells{where}", cells_of(policy)
        yield f"dimensions{where}", str(policy.dimension)
    yield "preset", preset_of(learner)
    yield "forgets", _forgets(next(iter(learner.policies.values())).settings.forget)
    for scale in scales:
        yield "context", _words(scale)


def _forgets(forget: Forget) -> str:
    if forget.window is not None:
        return f"all but the latest {forget.window} labels of a cell"
    return "nothing" if forget.discount is None else f"by a discount of {forget.discount}"


def _words(scale: Scale) -> str:
    """Return a coordinate: its name, its scale and the bounds of that."""
    kind = next(name for name, one in SCALES.items() if type(scale) is one)
    options: Any = scale
    said = [
        f"{field.encode_name} {_value(getattr(options, field.name))}"
        for field in msgspec.structs.fields(options)
        if field.name not in NOT_SAID and getattr(options, field.name) is not None
    ]
    return f"{scale.name} ({', '.join([kind, *said])})"


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value, "<f8").tobytes()).hexdigest()
        return f"of {value.size} numbers ({digest[:12]})"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
